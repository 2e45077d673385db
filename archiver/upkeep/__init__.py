"""Maintenance of an archive: verify, compare with Kafka and with the cluster's metadata, inspect, copy, status, report, retention."""
