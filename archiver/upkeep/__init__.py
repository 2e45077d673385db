"""Looks after an archive that stands: verify, compare, inspect."""
