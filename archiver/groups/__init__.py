"""Positions of consumer groups: snapshots, positions as of a time, folds (reduced `__consumer_offsets`), translation, setting on a target."""
