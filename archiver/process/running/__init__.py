"""How the process runs: threads, signals, memory, pauses, child processes, failpoints."""
