"""General helpers that import no other room: logs, signals, threads, memory, columns, text, masking of secrets, Java."""
