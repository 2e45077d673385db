"""Kafka to archive: fetch, segments, puts, and the service around them."""
