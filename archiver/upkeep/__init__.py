"""Maintenance of an archive: verify, compare with Kafka, inspect, retention."""
