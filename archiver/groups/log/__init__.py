"""Reads `__consumer_offsets` of the archive: reduced records, and the lives of topics; reads and writes folds."""
