"""Snapshots of where consumer groups stood, as facts (docs/format.md §8): the newest as of a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from archiver.archive.control import newest_numbers, read_fact
from archiver.archive.fact_model import BoundedText, FactModel, Item, LeaderEpoch, Number
from archiver.archive.handle import Archive
from archiver.archive.topics import MOST_PARTITIONS
from archiver.errors import CorruptSegmentError
from archiver.process.json_values import spelled_number

STREAM: Final = "group-positions"
_MOST_EPOCH: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPosition:
    """What a group had committed of a partition."""

    offset: Number
    leader_epoch: Annotated[LeaderEpoch, Field(le=_MOST_EPOCH)] = -1
    metadata: BoundedText = ""


_Partition = Annotated[int, BeforeValidator(partial(spelled_number, most=MOST_PARTITIONS))]
_Topics = Mapping[Item[BoundedText], Mapping[Item[_Partition], Item[SnapshotPosition]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where all groups stood at a time, but for those that did not tell."""

    time_ms: Number
    groups: Mapping[Item[BoundedText], Item[_Topics]]
    missing: tuple[Item[BoundedText], ...]


_SNAPSHOT: Final = FactModel(Snapshot)


def read_snapshot(archive: Archive, until_ms: int) -> Snapshot | None:
    """Read the newest snapshot that was taken at or before a time; None when there is none. Raises NotWholeError."""
    newest = newest_numbers(archive, STREAM)
    for stream in sorted(newest, reverse=True):
        if _begin_ms(stream) <= until_ms:
            found = max(_until(archive, stream, newest[stream], until_ms), key=lambda one: one.time_ms, default=None)
            if found is not None:
                return found
    return None


def _until(archive: Archive, stream: str, number: int, until_ms: int) -> Iterator[Snapshot]:
    """Yield a snapshot of a day, from the newest on; and the one before it, since clocks of writers may differ."""
    found = 0
    while number >= 0 and found < 2:
        snapshot = _SNAPSHOT.read(
            read_fact(archive, stream, number),
            lambda why: CorruptSegmentError(f"control/{stream}: is no snapshot of group positions: {why}"),
        )
        number -= 1
        if snapshot.time_ms <= until_ms:
            found += 1
            yield snapshot


def _begin_ms(stream: str) -> int:
    """Return when the day of a stream begins."""
    try:
        day = datetime.strptime(stream.rpartition("/")[2], "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise CorruptSegmentError(f"control/{stream}: is not named after a day; find out who put it") from error
    return int(day.timestamp() * 1000)
