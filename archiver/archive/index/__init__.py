"""From listing and index to inventory: which segments of a partition are readable, and which offsets are missing."""
