"""The archive as a table of Spark.

- filters: filters that Spark pushes down, as a selection: what they say of partition, offset and timestamp
- options: the options of the data source, parsed and checked
- permitted: SQL of users that only reads: what is not known to do just that is refused by name
- positions: the table of positions: where consumer groups stood, as Arrow batches
- query: SQL over the archive: each topic is a table under its own name, made when a statement names it
- scan: one scan of a topic: what its tasks read, planned from facts alone; and the work of a task
- source: the data source `kafka-archive`, as PySpark's Python Data Source API wants it
"""
