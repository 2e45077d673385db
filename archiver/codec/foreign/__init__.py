"""Decodes the files of other tools and of Kafka before 0.8 to frames. Used by imports."""
