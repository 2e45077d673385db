"""Decides which former copies are deleted, deletes them, and reports the status of all copies."""
