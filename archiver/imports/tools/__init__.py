"""Files of other tools and of Kafka 0.7, read for an import; kafka-backup's files are also written."""
