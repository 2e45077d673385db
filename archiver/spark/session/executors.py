"""Checks that the executors of a cluster reach the store and the brokers, before anything is changed."""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from archiver.config.model import StorageConfig
from archiver.errors import TemporaryError, UsageError
from archiver.kafka.brokers import calls
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours
from archiver.spark.session.failure import failure_of
from archiver.store.shared import store_of

_ADVICE = "the driver can: give executors the same files, rights and ways there (docs/clusters.md, What executors need)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The store and brokers that tasks of a restore connect to."""

    storage: StorageConfig
    object_key: str  # of an object that a task reads; empty: tasks read none
    kafka: KafkaSettings
    cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One executor's attempt to connect; `error` is empty if all connections succeeded."""

    host: str
    error: str = ""
    exit_code: int = 0


def try_executors(spark: SparkContext, destination: Destination) -> None:
    """Let executors try the destination, one per core at a time. Raises the error of one that failed."""
    cores = spark.defaultParallelism
    try:
        attempts = spark.parallelize(range(cores), cores).map(lambda _: reach_out(destination)).collect()
    except Py4JJavaError as error:
        raise failure_of(error) from error
    refuse_unreached(attempts)


def refuse_unreached(attempts: Sequence[Attempt]) -> None:
    failed = [one for one in attempts if one.error]
    if not failed:
        return
    first = min(failed, key=lambda one: (one.exit_code == TemporaryError.exit_code, one.host))
    kind = TemporaryError if first.exit_code == TemporaryError.exit_code else UsageError
    raise kind(f"on executor {first.host}: {first.error}; {_ADVICE}")


def reach_out(destination: Destination) -> Attempt:
    """Try to connect to the store and each broker from this executor."""
    host = socket.gethostname()
    try:
        store = store_of(destination.storage)
        if destination.object_key:
            store.head(destination.object_key)
        asyncio.run(_ask_every_broker(destination))
    except Exception as error:  # noqa: BLE001 - also a defect is reported with its host
        ours = as_ours(error, "trying what tasks need")
        return Attempt(host=host, error=str(ours), exit_code=ours.exit_code)
    return Attempt(host=host)


async def _ask_every_broker(destination: Destination) -> None:
    async with KafkaClient(destination.kafka) as client:
        found = await client.cluster_id()
        if found != destination.cluster_id:
            raise UsageError(f"the brokers it finds are of cluster {found}, the driver's of {destination.cluster_id}")
        for node_id in sorted(await client.brokers()):
            await client.send(node_id, calls.MetadataCall([]))
