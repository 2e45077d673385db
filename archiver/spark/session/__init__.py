"""Starts Spark, locally or under spark-submit, and runs plain tasks on it."""
