"""Imports logs of Kafka brokers and archives of other tools into the archive."""
