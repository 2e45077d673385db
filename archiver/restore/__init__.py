"""Archive to Kafka, without Spark: request, plan, targets, claims, tasks, groups, report."""
