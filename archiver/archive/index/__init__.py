"""Reads and writes the index, and joins it with a listing to an inventory: which segments of a partition are readable, and which offsets are missing."""
