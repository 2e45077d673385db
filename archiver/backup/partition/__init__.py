"""One partition from fetch to put: its state, its batches, its segments."""
