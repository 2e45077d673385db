"""Decides which instance makes the next copy of a partition, and when. Writes nothing."""
