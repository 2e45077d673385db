"""Spark's Python daemon, with the modules of restore tasks already imported: forked workers share them, and begin at once.

Spark starts it as `python -m archiver.spark.daemon` (spark.python.daemon.module).
"""

import gc
import importlib
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

from archiver.process.machine.edition import edition
from archiver.process.running.failpoints import arm
from archiver.process.running.memory import tune_memory


def main() -> None:
    """Fork workers until Spark is done."""
    tune_memory()
    _import_what_tasks_need()
    _prefer_installed_pyspark()
    from pyspark import daemon  # noqa: PLC0415 - now that it is found where it is installed

    daemon.worker = _ending_quietly(daemon.worker)
    gc.freeze()  # a garbage collection would write to every object, and copy the shared memory
    daemon.manager()  # type: ignore[no-untyped-call]


def _import_what_tasks_need() -> None:
    """Import the task's modules. Errors become one line, which Spark gives to the driver (archiver.spark.session.failure)."""
    try:
        config = importlib.import_module("archiver.config.environment")
        driver = config.edition_of_driver()
        if driver and driver != edition():
            raise SystemExit(
                f"archiver: executors have archiver {edition()}, the driver {driver}; pack the driver's environment again"
            )
        importlib.import_module("archiver.restore.fill.partition_restore")
        arm(config.failpoint())  # for each worker that is forked
    except (ImportError, OSError) as error:  # an OSError: numba's library does not load
        reason = str(error).strip().partition("\n")[0]
        raise SystemExit(f"archiver: {sys.executable} cannot load what tasks need: {reason}") from error


def _ending_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """End without an error when Spark drops a task before its end, as it does under a LIMIT, or when another task has failed."""

    def work(*arguments: Any) -> int:  # noqa: ANN401 - PySpark's
        try:
            return worker(*arguments)
        except (BrokenPipeError, EOFError):  # exceptions of a task go to the driver
            return 1

    return work


def _prefer_installed_pyspark() -> None:
    """Remove from the path the zips of the installed pyspark, which Spark puts in front of it.

    Imported from these zips, it is compiled again (0.6 s), and each task reads the directories of the zips again (0.15 s).
    """
    installed = PathFinder.find_spec("pyspark", [path for path in sys.path if not path.endswith(".zip")])
    if installed is not None:
        places = tuple(installed.submodule_search_locations or ())
        sys.path[:] = [path for path in sys.path if not (path.endswith(".zip") and path.startswith(places))]
        sys.path_importer_cache.clear()


if __name__ == "__main__":
    main()
