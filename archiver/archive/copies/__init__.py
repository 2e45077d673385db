"""Copies of compacted topics, for readers and writers: role logs (who makes them, which is current), and moments (as of when)."""
