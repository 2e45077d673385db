"""Which file of classes Spark's JVM is started with: its start is mostly the loading of those (archiver.class_archive)."""

import hashlib
import os
from pathlib import Path
from typing import Final

import pyspark

from archiver.caches import cache_places, is_writable
from archiver.class_archive import options_to_read

_HERE: Final = Path(__file__).parent


def classes_of_spark() -> Path | None:
    """Return the file that was made, if there is one that this user may read."""
    return next((file for file in _files() if os.access(file, os.R_OK)), None)


def place_for_classes() -> Path | None:
    """Return where the file can be made."""
    return next((file for file in _files() if is_writable(file.parent)), None)


def _files() -> list[Path]:
    """It is of use to the PySpark of this place and version alone."""
    spark = Path(pyspark.__file__).resolve().parent
    digest = hashlib.sha256(str(spark).encode()).hexdigest()[:8]
    return cache_places(_HERE, f"spark-{pyspark.__version__}-{digest}.jsa")


def options_of_spark() -> list[str]:
    """Return what Spark's JVM is started with to map that file, if it is there."""
    file = classes_of_spark()
    return [] if file is None else options_to_read(file)
