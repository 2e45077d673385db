"""Archive to Kafka, without Spark."""
