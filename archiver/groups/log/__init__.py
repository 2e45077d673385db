"""Reads `__consumer_offsets` of the archive: reduced records, folds, and the lives of topics."""
