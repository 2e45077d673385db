"""Spark's Python daemon, with what a restore's tasks need imported already: the workers it forks share that, and begin at once.

Spark starts it as `python -m archiver.spark.daemon` (spark.python.daemon.module).
"""

import gc
import sys
from importlib.machinery import PathFinder

import archiver.spark.task  # noqa: F401 - for the workers
from archiver.memory import settle_memory


def main() -> None:
    """Fork workers until Spark is done."""
    settle_memory()
    _prefer_installed_pyspark()
    from pyspark import daemon  # noqa: PLC0415 - now that it is found where it is installed

    gc.freeze()  # a look for garbage would write to every object, and copy the memory that is shared
    daemon.manager()  # type: ignore[no-untyped-call]


def _prefer_installed_pyspark() -> None:
    """Take out of the path the zips of the very pyspark that is installed, which Spark puts in front of it.

    Imported from there it is compiled anew (0.6 s), and each task reads the directories of the zips again (0.15 s).
    """
    installed = PathFinder.find_spec("pyspark", [path for path in sys.path if not path.endswith(".zip")])
    if installed is not None:
        places = tuple(installed.submodule_search_locations or ())
        sys.path[:] = [path for path in sys.path if not (path.endswith(".zip") and path.startswith(places))]
        sys.path_importer_cache.clear()


if __name__ == "__main__":
    main()
