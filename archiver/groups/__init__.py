"""Positions of consumer groups: recorded, read as of a time, folded, translated, set."""
