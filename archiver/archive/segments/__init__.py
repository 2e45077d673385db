"""One segment, written and read: its facts, its records, its entry in a listing or an index."""
