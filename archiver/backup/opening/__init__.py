"""Opens a partition: which log, which life of the topic, from which offset, and whether a backup or an instance archives it."""
