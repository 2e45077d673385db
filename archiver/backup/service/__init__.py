"""Runs a backup: as a group member until stopped, or up to the present ends of the logs."""
