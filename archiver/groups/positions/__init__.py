"""Positions of consumer groups as of a time, from `__consumer_offsets` and snapshots."""
