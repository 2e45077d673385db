"""Fills partitions of targets, one a task, and reads them back."""
