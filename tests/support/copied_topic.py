"""Writes copies of compacted topics, and role logs, as docs/format.md §11 says, with none of our own code."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.brokers import Bucket
from tests.support.foreign_reader import keys_in, s3_client

Fact = dict[str, Any]


def copy_place(topic: str, partition: int, instance: str, generation: int, life: int = 0) -> str:
    """Spell the directory of a generation."""
    directory = f"{topic}@{life}" if life else topic
    return f"compacted/{instance}/topics/{directory}/partition={partition}/generation={generation}/"


def copy_partition(
    made: Bucket, archive: Bucket, topic: str, partition: int, *, instance: str, generation: int, life: int = 0
) -> list[str]:
    """Copy the objects of a partition from an archive of its own into another one. Returns the keys."""
    prefix = f"topics/{topic}/partition={partition}/"
    place = copy_place(topic, partition, instance, generation, life)
    copied = []
    for key in keys_in(made, prefix):
        copied.append(place + key.removeprefix(prefix))
        s3_client(archive).copy_object(Bucket=archive.name, Key=copied[-1], CopySource=f"{made.name}/{key}")
    return copied


def move_to_copy(archive: Bucket, topic: str, partition: int, instance: str, generation: int) -> None:
    """Make a copy of what lies under `topics/` of a partition, and delete it there; the index, which remembers it, goes, too."""
    for key in copy_partition(archive, archive, topic, partition, instance=instance, generation=generation):
        name = key.rpartition("/")[2]
        s3_client(archive).delete_object(Bucket=archive.name, Key=f"topics/{topic}/partition={partition}/{name}")
    for key in keys_in(archive, "control/index/"):
        s3_client(archive).delete_object(Bucket=archive.name, Key=key)


def complete_copy(
    instance: str, generation: int, until: int, position: int | None = None, *, is_sure: bool = True
) -> Fact:
    """Spell a copy that was complete, as an entry names it."""
    return {
        "generation": {"instance": instance, "number": generation},
        "next": until,
        "position": until if position is None else position,
        "is_sure": is_sure,
    }


def role_entry(
    topic: str,
    partition: int,
    number: int,
    *,
    life: int = 0,
    holder: Fact | str | None,
    switched: int | None = None,
    replaced: Fact | str | None = None,
    candidate: tuple[str, int] | None = None,
    left: Sequence[Fact] = (),
    other: Mapping[str, object] | None = None,
) -> tuple[str, bytes]:
    """Spell an entry of a role log. Returns its key, and its content."""
    said: Fact = {
        "format": 1,
        "type": "switch",
        "instance": "blue",
        "topic": topic,
        "life": life,
        "partition": partition,
        "holder": holder,
        "switched": (number if switched is None else switched) if holder is not None else None,
        "broke": None,
        "replaced": replaced,
        "candidate": None if candidate is None else {"instance": candidate[0], "number": candidate[1]},
        "left": list(left),
        **(other or {}),
    }
    said["sha256"] = hashlib.sha256(_spelled(said)).hexdigest()
    return f"control/roles/{topic}/{life}/{partition}/{number:06}.json", _spelled(said)


def put_role_entry(archive: Bucket, *place: Any, **said: Any) -> str:  # noqa: ANN401 - as role_entry has them
    """Put an entry of a role log. Returns its key."""
    key, content = role_entry(*place, **said)
    s3_client(archive).put_object(Bucket=archive.name, Key=key, Body=content)
    return key


def _spelled(said: Mapping[str, object]) -> bytes:
    return json.dumps(said, indent=1, sort_keys=True).encode()
