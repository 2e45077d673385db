"""Backs up Kafka topics: fetches records, builds segments, puts them, and runs the backup service."""
