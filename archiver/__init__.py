"""An archiver for Apache Kafka: topics to S3 as plain Avro, and back with Spark.

Reading order: errors, config, observe; frame and codec (records in memory, and bytes <-> records); layout and store (keys and objects);
segment, inventory, control (what the archive is made of); kafka (the wire); backup and restore (the order of effects); spark (jobs); cli.
"""

import sys

if sys.argv[:1] == [
    "-m"
]:  # `python -m archiver...` is looking for what to run: no other line of ours comes before this
    from archiver.import_path import leave_out_current_folder

    leave_out_current_folder()

__version__ = "0.1.0"
