"""Copies of compacted topics, for readers and writers: role logs (who makes them, which is current), and moments (how far each process has read)."""
