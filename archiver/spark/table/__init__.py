"""The archive as a Spark table: the data source `kafka-archive` and `archiver query`."""
