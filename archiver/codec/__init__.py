"""Holds records in memory as frames, and converts them from and to Kafka's and Avro's bytes."""
