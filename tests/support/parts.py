"""What tests need besides Python packages and MinIO, fetched once into `.cache`; `python -m tests.support.parts` fetches all of it."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyspark

from archiver.errors import ArchiverError
from archiver.sandbox import check_java, fetch_kafka, keep_classes
from tests.support.brokers import CACHE, KAFKA_39, KAFKA_41
from tests.support.compiled import compile_java
from tests.support.zookeeper import KAFKA_28

_JARS = CACHE / "spark-jars"
_FETCH_S = 180


def fetch_spark_avro() -> Path:
    """The jar that matches the installed PySpark. Everything that it depends on is in PySpark's own folder."""
    return fetch_jar("org.apache.spark", "spark-avro_2.13", pyspark.__version__)


def fetch_jar(organisation: str, module: str, version: str, timeout_s: float = _FETCH_S) -> Path:
    """One jar without what it depends on, fetched with the Ivy that PySpark carries, once."""
    jar = _JARS / f"{module}-{version}.jar"
    if not jar.exists():
        said = _ask_ivy(_JARS, "-notransitive", "-dependency", organisation, module, version, timeout_s=timeout_s)
        if not jar.exists():
            raise ArchiverError(f"{jar.name} could not be fetched: {said}")
    return jar


def fetch_program(organisation: str, module: str, version: str) -> Path:
    """The folder with the jar of a program and all that it depends on; it appears whole or not at all."""
    target = CACHE / f"{module}-{version}"
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(prefix=f"{module}-", dir=CACHE) as staging:
        jars = Path(staging) / "jars"
        said = _ask_ivy(jars, "-dependency", organisation, module, version, timeout_s=3 * _FETCH_S)
        if not (jars / f"{module}-{version}.jar").exists():
            raise ArchiverError(f"{module} {version} could not be fetched: {said}")
        with suppress(OSError):  # somebody else was first
            jars.rename(target)
    return target


def _ask_ivy(folder: Path, *asked: str, timeout_s: float) -> str:
    """Retrieve into a folder. What Ivy said is for an error."""
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = [check_java(), f"-Divy.default.ivy.user.dir={folder / 'ivy'}", "-jar", str(ivy), *asked]
    command += ["-confs", "default", "-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    return f"{done.stdout[-2000:]}{done.stderr[-2000:]}"


def fetch_quick_kafka(version: str) -> Path:
    """A Kafka that starts with half the CPU: tests start more than a hundred brokers."""
    jars = fetch_kafka(version, CACHE)
    keep_classes(jars)
    return jars


def main() -> None:
    """What cannot be had is told, and its tests are skipped, or fail where a skip counts."""
    parts: list[Callable[[], object]] = [
        partial(fetch_kafka, KAFKA_28, CACHE),
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
