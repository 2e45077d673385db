"""Runs an instance: works on assigned partitions, and makes and deletes copies as `turn` and `clearing` decide."""
