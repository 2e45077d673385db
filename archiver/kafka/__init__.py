"""Talks to Kafka brokers: fetch, produce, groups, topics, rights. Only the demo, as a witness, uses a Kafka client beside it.

Reading order: login, brokers; then records, groups, topics.
"""
