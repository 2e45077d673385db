"""Parts of any process: logs, progress, signals, threads, memory, text for terminals, Java."""
