"""Talks to Kafka brokers: fetch, produce, groups, topics, rights. The only user of the Kafka clients.

Reading order: settings, wire, codes, calls, client; then fetch, produce, admin.
"""
