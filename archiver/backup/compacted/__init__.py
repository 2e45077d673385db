"""Keeps copies of compacted topics: two instances make them in turn (decision 40)."""
