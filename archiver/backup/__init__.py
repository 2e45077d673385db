"""Kafka to archive."""
