"""Runs the plans of the rooms below on Spark. Only this room knows PySpark.

`register(spark)` makes the data source `kafka-archive` known (docs/spark.md).

- background_start: Spark for commands that do something else first: started in the background meanwhile, if this installation has it
- class_cache: the file of loaded classes that Spark's JVM is started with
- daemon: Spark's Python daemon, with what a restore's tasks need imported already
- executors: whether the executors of a cluster reach what their tasks need
- failure: what it means when a Spark job fails
- group_restore: sets the consumer groups of a restore when all its topics are whole
- isolation: what keeps other users of this machine out of a Spark that runs on it
- jvm_user: the user that Spark's JVM runs as: one without a name on this machine, too
- packing: the packed environment: what tasks of ours need, as one file for `spark-submit --archives`
- preview: `restore --dry-run`: a restore is planned, and its targets are checked
- purge_proof: the proof that a purge loses nothing: a Spark job that reads whole, before any topic is deleted, what is to be in its place
- query: `query`, from a configuration to its rows
- record_choice: which records a predicate, or the last of each key, chooses
- repartition: a restore into another number of partitions, by key: the steps for some topics together
- restore: `restore`, from a configuration to its end
- restore_job: the restore as a Spark job: create, fill one partition a task, verify, finish
- retention: `retention`: plans a sweep, with Spark listing and asking a partition in each task; shows the plan, or carries it out
- retention_tasks: the tasks of `retention` as a Spark job: partitions that are listed, and whose objects are asked
- session: Spark for a job of ours: without SQL, which takes seconds more to start, but for queries
- spark_submit: Spark as spark-submit has started it, on whatever cluster: what it was told holds, the rest is ours
- tasks: how plain tasks run on Spark: dealt out, the largest first, each giving back a report
- verify: `verify`: lists and checks the archive, and has Spark read its objects and Kafka's logs
- verify_tasks: the tasks of `verify` as Spark jobs: objects that are read and checked, partitions that are compared
- warm: have Spark's JVM start in half the time from now on
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let `spark.read.format("kafka-archive")` read archives, for as long as this session lives."""
    from archiver.spark.table.source import source_for  # noqa: PLC0415 - whoever only imports the package needs no Spark

    spark.dataSource.register(source_for(spark.sparkContext.defaultParallelism))
