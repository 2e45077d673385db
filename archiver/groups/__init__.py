"""Positions of consumer groups: saved, read as of a time, translated and set on a target; folds, each of which has the last commits of a part of `__consumer_offsets`."""
