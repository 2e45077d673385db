"""The cache of loaded classes for the start of Spark's JVM, which spends most of it on loading (archiver.process.machine.jvm_classes)."""

import hashlib
from pathlib import Path
from typing import Final

import pyspark

from archiver.process.machine.caches import CachePlace, cache_places
from archiver.process.machine.jvm_classes import options_to_read

_HERE: Final = Path(__file__).parent


def place_for_classes() -> CachePlace | None:
    """Return the first folder where the class archive can be made; None if no folder fits."""
    return next((place for place in _places() if place.make(place.path.parent)), None)


def _places() -> list[CachePlace]:
    """Return the path of the class archive. Its name identifies PySpark by place and version."""
    spark = Path(pyspark.__file__).resolve().parent
    digest = hashlib.sha256(str(spark).encode()).hexdigest()[:8]
    return cache_places(_HERE, f"spark-{pyspark.__version__}-{digest}.jsa")


def options_of_spark() -> list[str]:
    """Return options with which Spark's JVM maps that file, if it exists and only this user may have changed it."""
    found = (options_to_read(place.path, place.trusted) for place in _places())
    return next(filter(None, found), [])
