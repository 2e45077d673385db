"""Jars that tests need, fetched once into `.cache`; `python -m tests.support.parts` fetches all of them."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import pyspark

from archiver.demo.sandbox import fetch_kafka
from archiver.errors import TemporaryError
from archiver.process.machine.jars import JarFolder, Module, fetch_jars
from tests.support.brokers import CACHE, KAFKA_39, KAFKA_41
from tests.support.compiled import compile_java
from tests.support.kafka_broker import keep_classes
from tests.support.zookeeper import KAFKA_28
from tests.support.zookeeper import keep_classes as keep_zookeeper_classes

HASHES: Final = Path(__file__).with_name("jars.sha256")


def _program(organisation: str, module: str, version: str) -> JarFolder:
    modules = (Module(organisation, module, version),)
    return JarFolder(name=f"{module}-{version}", modules=modules)


def _hadoop_version() -> str:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


_SPARK_AVRO: Final = Module("org.apache.spark", "spark-avro_2.13", pyspark.__version__)
# Everything else that it depends on is in PySpark's own folder.
SPARK_AVRO: Final = JarFolder(name=f"spark-avro-{pyspark.__version__}", modules=(_SPARK_AVRO,), with_dependencies=False)
SPARK_AVRO_OVER_S3A: Final = JarFolder(
    name=f"spark-avro-over-s3a-{pyspark.__version__}",
    modules=(
        _SPARK_AVRO,
        Module("org.apache.hadoop", "hadoop-aws", _hadoop_version()),
        Module("software.amazon.awssdk", "bundle", "2.29.52"),
        Module("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.2.1"),
        Module("org.wildfly.openssl", "wildfly-openssl", "2.1.4.Final"),
    ),
    with_dependencies=False,
)
S3PROXY: Final = _program("org.gaul", "s3proxy", "4.1.0")
S3MOCK: Final = _program("com.adobe.testing", "s3mock", "5.2.0")
_APICURIO: Final = Module("io.apicurio", "apicurio-registry-app", "3.3.3", "all", "tar.gz")
APICURIO: Final = JarFolder(name="apicurio-registry-app-3.3.3", modules=(_APICURIO,), with_dependencies=False)
PARTS: Final = (SPARK_AVRO, SPARK_AVRO_OVER_S3A, S3PROXY, S3MOCK, APICURIO)


def fetch_part(part: JarFolder) -> Path:
    """The folder with its jars."""
    return fetch_jars(part, CACHE, HASHES)


def fetch_quick_kafka(version: str) -> Path:
    """A Kafka that starts with half the CPU: tests start more than a hundred brokers."""
    jars = fetch_kafka(version, CACHE)
    keep_classes(jars)
    return jars


def main() -> int:
    """What cannot be had is told, and its tests are skipped, or fail where a skip counts. What is not as listed ends a set-up."""
    parts: list[Callable[[], object]] = [
        lambda: keep_zookeeper_classes(fetch_kafka(KAFKA_28, CACHE)),
        partial(fetch_quick_kafka, KAFKA_39),
        lambda: compile_java("Oracle", fetch_quick_kafka(KAFKA_41), CACHE),
        partial(fetch_part, SPARK_AVRO),
    ]
    with ThreadPoolExecutor() as pool:
        errors = [error for fetched in [pool.submit(part) for part in parts] if (error := fetched.exception())]
    for error in errors:
        print(error, file=sys.stderr)
    return 0 if all(isinstance(error, TemporaryError) for error in errors) else 1


if __name__ == "__main__":
    sys.exit(main())
