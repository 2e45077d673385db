"""Imports logs of Kafka brokers and files of other tools into the archive, and writes such files."""
