"""Kernels for the formats of other tools and of Kafka before 0.8."""
