"""What tests need besides Python packages and MinIO, fetched once into `.cache`; `python -m tests.support.parts` fetches all of it."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyspark

from archiver.errors import ArchiverError
from archiver.sandbox import check_java, fetch_kafka, keep_classes
from tests.support.brokers import CACHE, KAFKA_39, KAFKA_41
from tests.support.compiled import compile_java

_JARS = CACHE / "spark-jars"
_FETCH_S = 180


def fetch_spark_avro() -> Path:
    """The jar that matches the installed PySpark. Everything that it depends on is in PySpark's own folder."""
    return fetch_jar("org.apache.spark", "spark-avro_2.13", pyspark.__version__)


def fetch_jar(organisation: str, module: str, version: str, timeout_s: float = _FETCH_S) -> Path:
    """One jar without what it depends on, fetched with the Ivy that PySpark carries, once."""
    jar = _JARS / f"{module}-{version}.jar"
    if not jar.exists():
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        command = [check_java(), f"-Divy.default.ivy.user.dir={_JARS / 'ivy'}", "-jar", str(ivy), "-notransitive"]
        command += ["-dependency", organisation, module, version, "-confs", "default"]
        command += ["-retrieve", f"{_JARS}/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        if not jar.exists():
            raise ArchiverError(f"{jar.name} could not be fetched: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return jar


def fetch_quick_kafka(version: str) -> Path:
    """A Kafka that starts with half the CPU: tests start more than a hundred brokers."""
    jars = fetch_kafka(version, CACHE)
    keep_classes(jars)
    return jars


def main() -> None:
    """What cannot be had is told, and its tests are skipped, or fail where a skip counts."""
    parts: list[Callable[[], object]] = [
        partial(fetch_quick_kafka, KAFKA_39),
        lambda: compile_java("Oracle", fetch_quick_kafka(KAFKA_41), CACHE),
        fetch_spark_avro,
    ]
    with ThreadPoolExecutor() as pool:
        for fetched in [pool.submit(part) for part in parts]:
            error = fetched.exception()
            if error is not None:
                print(error, file=sys.stderr)


if __name__ == "__main__":
    main()
