"""An archiver for Apache Kafka: topics to S3 as plain Avro, and back with Spark.

Reading order of the rooms: process, config; codec (records in memory, bytes <-> Frame); store and kafka (the two worlds outside); archive
(what lies in the bucket); groups; backup, restore, upkeep (the order of effects); spark (runs their plans); cli. Each room's docstring lists
its modules. Beside the rooms stand errors (every error that is raised on purpose, and its exit code), interrupt (what a signal does before anything is
imported), import_path (no code from the current folder), and submit (what spark-submit is given).
"""

import sys

# `python -m archiver...` is looking for what to run: no other line of ours comes before this. Spark's daemon is started as
# if with -P, on a cluster in a folder of Spark's own, to which a PYTHONPATH of the job may be relative.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    from archiver.import_path import leave_out_current_folder

    leave_out_current_folder()

__version__ = "0.1.0"
