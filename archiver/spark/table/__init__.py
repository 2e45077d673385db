"""The archive as a table of Spark."""
