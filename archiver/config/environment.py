"""Variables of the environment. Only this module reads `os.environ`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FILE_VARIABLE: Final = "ARCHIVER_CONFIG"
EDITION_VARIABLE: Final = "ARCHIVER_EDITION"


def variables() -> Mapping[str, str]:
    """All of them, for `${NAME}` in a configuration."""
    return os.environ


def named_file() -> str:
    """$ARCHIVER_CONFIG: the configuration where no -c names one; empty: not told."""
    return os.environ.get(FILE_VARIABLE, "")


def failpoint() -> str:
    """$ARCHIVER_FAILPOINT: where a test has this process killed (archiver.process.failpoints)."""
    return os.environ.get("ARCHIVER_FAILPOINT", "")


def is_submitted() -> bool:
    """Tell whether spark-submit has started this process, beside a JVM of its own that has all settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def python_of_workers() -> str:
    """$PYSPARK_PYTHON, which spark-submit sets from spark.pyspark.python: what Python workers are run by; empty: not told."""
    return os.environ.get("PYSPARK_PYTHON", "")


def edition_of_driver() -> str:
    """$ARCHIVER_EDITION: which archiver (archiver.process.edition) the driver of this Python worker runs; empty: not told."""
    return os.environ.get(EDITION_VARIABLE, "")


def start_spark_of(package: Path) -> None:
    """Have PySpark start the Spark that SPARK_HOME names in full, else its own: it would look beside the current folder first."""
    if not Path(os.environ.get("SPARK_HOME", "")).is_absolute():
        replaced = package / "spark-distribution"  # PYSPARK_HADOOP_VERSION has pip install another one
        os.environ["SPARK_HOME"] = str(replaced if replaced.is_dir() else package)


def prefer_loopback() -> None:
    """Let a local Spark take the loopback address: it fails where the machine's own name does not resolve."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
