"""What a running backup reports: events and failures, metrics, health, its wait for partitions."""
