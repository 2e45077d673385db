"""Spark's Python daemon, with what a restore's tasks need imported already: the workers it forks share that, and begin at once.

Spark starts it as `python -m archiver.spark.daemon` (spark.python.daemon.module).
"""

import gc

from pyspark import daemon

import archiver.spark.task  # noqa: F401 - for the workers
from archiver.memory import settle_memory


def main() -> None:
    """Fork workers until Spark is done."""
    settle_memory()
    gc.freeze()  # a look for garbage would write to every object, and copy the memory that is shared
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
