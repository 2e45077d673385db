"""The archive as Spark tables: the data source `kafka-archive`, and the SQL of `archiver query`."""
