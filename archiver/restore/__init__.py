"""Plans and carries out restores from archive to Kafka, in code that imports no Spark; `spark` runs it."""
