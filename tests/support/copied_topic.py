"""Writes copies of compacted topics to a bucket as docs/format.md §11 says, with none of our own code."""

import hashlib
import json
from collections.abc import Mapping

from tests.support.brokers import Bucket
from tests.support.foreign_reader import keys_in, s3_client


def copy_partition(
    made: Bucket, archive: Bucket, topic: str, partition: int, *, instance: str, generation: int, directory: str = ""
) -> list[str]:
    """Copy the objects of a partition from an archive of its own into another one. Returns the keys."""
    prefix = f"topics/{topic}/partition={partition}/"
    place = f"compacted/{instance}/topics/{directory or topic}/partition={partition}/generation={generation}/"
    copied = []
    for key in keys_in(made, prefix):
        copied.append(place + key.removeprefix(prefix))
        s3_client(archive).copy_object(Bucket=archive.name, Key=copied[-1], CopySource=f"{made.name}/{key}")
    return copied


def complete(
    archive: Bucket,
    topic: str,
    partition: int,
    *,
    instance: str,
    generation: int,
    until: int,
    number: int = 0,
    life: int = 0,
    other: Mapping[str, object] | None = None,
) -> str:
    """Write down that a copy is complete. Returns the key of the fact."""
    said: dict[str, object] = {"format": 1, "instance": instance, "topic": topic, "life": life, "partition": partition}
    said |= {"generation": generation, "next": until, **(other or {})}
    key = f"control/copies/{instance}/{topic}/{life}/{partition}/{number:06}.json"
    said["sha256"] = hashlib.sha256(_spelled(said)).hexdigest()
    s3_client(archive).put_object(Bucket=archive.name, Key=key, Body=_spelled(said))
    return key


def _spelled(said: Mapping[str, object]) -> bytes:
    return json.dumps(said, indent=1, sort_keys=True).encode()
