"""Copies of compacted topics as anybody could read them: the role log's newest entry, the holder's objects, and the tail behind them.

By docs/format.md §11 and boto3 alone, without our own code.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.brokers import Bucket
from tests.support.foreign_reader import keys_in, read_objects, s3_client
from tests.support.records import Rec

_COPY = re.compile(
    r"compacted/(?P<instance>[^/]+)/topics/(?P<topic>[^/@]+)(?:@(?P<life>\d+))?/partition=(?P<partition>\d+)/"
    r"generation=(?P<generation>\d+)/[^/]+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The newest entry of a role log, as it stands there."""

    number: int
    type: str
    told: Mapping[str, Any]

    @property
    def holder(self) -> str:
        """`a:3`, `topics/` or empty."""
        return _named(self.told["holder"])

    @property
    def switched(self) -> int | None:
        found: int | None = self.told["switched"]
        return found


def _named(holder: object) -> str:
    if isinstance(holder, dict):
        generation = holder["generation"]
        return f"{generation['instance']}:{generation['number']}"
    return str(holder or "")


def newest_entry(bucket: Bucket, topic: str, partition: int = 0, life: int = 0) -> Entry | None:
    keys = keys_in(bucket, f"control/roles/{topic}/{life}/{partition}/")
    if not keys:
        return None
    newest = max(keys)
    told = json.loads(s3_client(bucket).get_object(Bucket=bucket.name, Key=newest)["Body"].read())
    return Entry(number=int(newest.rpartition("/")[2].removesuffix(".json")), type=told["type"], told=told)


def generations_of(bucket: Bucket, topic: str, partition: int = 0, life: int = 0) -> dict[str, list[str]]:
    """`a:3` -> the keys of its objects, in their order."""
    found: dict[str, list[str]] = {}
    for key in keys_in(bucket, "compacted/"):
        match = _COPY.fullmatch(key)
        assert match is not None, f"{key}: not a key of a copy"
        if (match["topic"], int(match["life"] or 0), int(match["partition"])) == (topic, life, partition):
            found.setdefault(f"{match['instance']}:{match['generation']}", []).append(key)
    return found


def records_given(bucket: Bucket, topic: str, partition: int = 0, life: int = 0) -> list[Rec]:
    """What a reader is given: the holder's records, and behind its end those of what it replaced.

    A reader that was overtaken by the next turn and its clearing begins again.
    """
    for _ in range(10):
        with contextlib.suppress(s3_client(bucket).exceptions.NoSuchKey):
            return _records_given(bucket, topic, partition, life)
    raise AssertionError("copies are cleared as soon as they are listed")


def _records_given(bucket: Bucket, topic: str, partition: int, life: int) -> list[Rec]:
    entry = newest_entry(bucket, topic, partition, life)
    assert entry is not None, "no role log"
    holder = entry.told["holder"]
    assert isinstance(holder, dict), f"no copy holds: {entry}"
    copies = generations_of(bucket, topic, partition, life)
    given, end = _read_from(bucket, copies.get(_named(holder), []), 0)
    assert end >= holder["next"] or not holder["next"], f"the holder ends at {end}, and not at {holder['next']}"
    replaced = entry.told["replaced"]
    tail = copies.get(_named(replaced), [])
    if replaced == "topics/":
        directory = topic if not life else f"{topic}@{life}"
        tail = keys_in(bucket, f"topics/{directory}/partition={partition}/")
    end = max(end, holder["position"])
    behind, _ = _read_from(bucket, tail, end, is_tail=True)
    return given + behind


def _read_from(bucket: Bucket, keys: list[str], position: int, *, is_tail: bool = False) -> tuple[list[Rec], int]:
    """Apply the read rule: of each object what lies at or above the position; a gap is an error."""
    given: list[Rec] = []
    for base, following, records in sorted(_objects(bucket, keys), key=lambda one: one[:2]):
        if following <= position:
            continue
        assert base <= position or (is_tail and not given), f"a gap from {position} to {base}"
        given += [record for record in records if record.offset >= position]
        position = following
    return given, position


def _objects(bucket: Bucket, keys: list[str]) -> Iterator[tuple[int, int, tuple[Rec, ...]]]:
    for segment in read_objects(bucket, keys):
        yield segment.base, segment.next, segment.records


def latest(records: list[Rec]) -> dict[bytes | None, bytes]:
    """The newest value of each key; without those that were deleted."""
    found: dict[bytes | None, bytes | None] = {}
    for record in records:
        found[record.key] = record.value
    return {key: value for key, value in found.items() if value is not None}
