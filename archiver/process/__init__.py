"""What any process of ours is: logs, signals, threads, memory, text for terminals, Java."""
