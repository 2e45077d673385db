"""Copies of compacted topics, made by two instances in turn (decision 40)."""
