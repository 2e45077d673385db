"""What a restore is asked to do, its plan, its tasks, and its notes in the archive."""
