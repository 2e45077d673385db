"""Keeps copies of compacted topics in the archive, made in turn by two backup instances (decision 40)."""
