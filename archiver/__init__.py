"""An archiver for Apache Kafka: topics to S3 as plain Avro, and back with Spark.

Reading order of the folders (rooms): process, config; codec (records in memory, bytes <-> Frame); store and kafka (the outside world); archive (the
objects in the bucket); groups. Then backup, restore, upkeep, imports (the order of effects); spark (runs their plans); cli; demo. The site
(mkdocs.yml) lists the modules.
"""

import sys

# `python -m archiver...` still looks for its module: no other line of ours comes before this. Spark's daemon is started as
# if with -P, on a cluster in a folder of Spark's own, to which a PYTHONPATH of the job may be relative.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    from archiver.import_path import leave_out_current_folder

    leave_out_current_folder()

__version__ = "0.1.0"
