"""Log directories of Kafka brokers: scanned, compared with other replicas, and imported."""
