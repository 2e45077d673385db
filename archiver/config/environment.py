"""Reads the variables of the environment, and sets two for Spark. Only `import_path`, which runs before any import, reads another one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FILE_VARIABLE: Final = "ARCHIVER_CONFIG"
EDITION_VARIABLE: Final = "ARCHIVER_EDITION"


def variables() -> Mapping[str, str]:
    """Return all variables, for `${NAME}` in a configuration."""
    return os.environ


def named_file() -> str:
    """Return $ARCHIVER_CONFIG: the configuration file without -c; empty: not set."""
    return os.environ.get(FILE_VARIABLE, "")


def failpoint() -> str:
    """Return $ARCHIVER_FAILPOINT: the place where a test kills this process (archiver.process.running.failpoints)."""
    return os.environ.get("ARCHIVER_FAILPOINT", "")


def is_submitted() -> bool:
    """Return whether spark-submit started this process. Spark's settings are then in its JVM, too."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def python_of_workers() -> str:
    """Return $PYSPARK_PYTHON, the Python of Spark's workers, which spark-submit sets from spark.pyspark.python; empty: not set."""
    return os.environ.get("PYSPARK_PYTHON", "")


def edition_of_driver() -> str:
    """Return $ARCHIVER_EDITION: the archiver (archiver.process.machine.edition) of this Python worker's driver; empty: not set."""
    return os.environ.get(EDITION_VARIABLE, "")


def start_spark_of(package: Path) -> None:
    """Make PySpark start the Spark of an absolute SPARK_HOME, else its own. It would search beside the current folder first."""
    if not Path(os.environ.get("SPARK_HOME", "")).is_absolute():
        replaced = (
            package / "spark-distribution"
        )  # a Spark that pip installed in place of PySpark's own, for $PYSPARK_HADOOP_VERSION
        os.environ["SPARK_HOME"] = str(replaced if replaced.is_dir() else package)


def prefer_loopback() -> None:
    """Let a local Spark use the loopback address: it fails if the machine's own name does not resolve."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
