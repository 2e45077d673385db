"""An archiver for Apache Kafka: topics to S3 as plain Avro, and back with Spark.

Reading order: errors, config, observe; frame and codec (records in memory, and bytes <-> records); layout and store (keys and objects);
segment, inventory, control (what the archive is made of); kafka (the wire); backup and restore (the order of effects); spark (jobs); cli.
"""

__version__ = "0.1.0"
