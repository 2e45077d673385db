"""Finds out whether a topic may be deleted on the target, because the archive can replace it."""
