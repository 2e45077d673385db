"""Copies of compacted topics, for readers and writers: role logs, moments, and the copy that readers use."""
