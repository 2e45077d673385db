"""Settings of the Kafka clients: addresses, TLS, authentication, tokens."""
