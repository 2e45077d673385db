"""Positions of consumer groups: saved, read as of a time, translated and set on a target; folds, which are compacted `__consumer_offsets`."""
