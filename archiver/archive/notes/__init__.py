"""What is noted about topics and sweeps: lives, holds, retention settings, reports, swept ranges."""
