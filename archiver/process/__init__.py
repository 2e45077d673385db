"""Parts of every process: logs, progress, signals, threads, memory, text for terminals, Java."""
