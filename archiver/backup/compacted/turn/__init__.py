"""Decides which instance makes the next copy of a partition, and when, from what it reads. Writes nothing."""
