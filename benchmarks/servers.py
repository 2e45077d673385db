"""A broker and a MinIO that one benchmark has to itself; both are gone afterwards."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from archiver.demo.sandbox import KafkaBroker, fetch_kafka
from tests.support.brokers import CACHE, KAFKA_41, S3
from tests.support.minio import Minio, find_minio

# As Kafka's own scripts start a broker: tests prefer one that is quick to start and slow from then on.
_JAVA_OPTIONS = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@contextmanager
def own_broker() -> Iterator[tuple[KafkaBroker, Path]]:
    """And a folder for whatever else, which goes with it."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name,
        KafkaBroker(fetch_kafka(KAFKA_41, CACHE), Path(name) / "kafka", java_options=_JAVA_OPTIONS) as broker,
    ):
        yield broker, Path(name)


@contextmanager
def own_minio() -> Iterator[Minio]:
    binary = find_minio()
    if binary is None:
        raise SystemExit("no minio binary: `make setup` builds one, or name one in $ARCHIVER_MINIO")
    with Minio(binary) as minio:
        yield minio


def environment_for(minio: S3) -> dict[str, str]:
    """For a command that finds its store, and the credentials, by the AWS chain."""
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": minio.access_key,
        "AWS_SECRET_ACCESS_KEY": minio.secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": minio.endpoint,
    }
