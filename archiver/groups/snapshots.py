"""Snapshots of where consumer groups stood, as facts (docs/format.md §8): as of a time, the newest that tells of each group."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from archiver.archive.control import newest_numbers, read_fact
from archiver.archive.fact_model import BoundedText, FactModel, Item, KafkaText, LeaderEpoch, Number
from archiver.archive.handle import Archive
from archiver.archive.topics import MOST_PARTITIONS
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.process.json_values import spelled_number
from archiver.process.workers import side_by_side

STREAM: Final = "group-positions"
_MOST_EPOCH: Final = 2**31 - 1
# Snapshots that are read to find the groups that newer ones miss: each may have 64 MB.
_MOST_READ: Final = 200
_READ_TOGETHER: Final = 4
ReportProblem = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPosition:
    """What a group had committed of a partition."""

    offset: Number
    leader_epoch: Annotated[LeaderEpoch, Field(le=_MOST_EPOCH)] = -1
    metadata: KafkaText = ""


_Partition = Annotated[int, BeforeValidator(partial(spelled_number, most=MOST_PARTITIONS))]
GroupTopics = Mapping[Item[BoundedText], Mapping[Item[_Partition], Item[SnapshotPosition]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where all groups stood at a time, but for those that did not tell."""

    time_ms: Number
    duration_ms: Number = 0  # a group may have been asked so much later
    groups: Mapping[Item[KafkaText], Item[GroupTopics]]
    missing: tuple[Item[KafkaText], ...]


_SNAPSHOT: Final = FactModel(Snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """Where a group stood, by the newest snapshot that tells of it."""

    time_ms: int
    duration_ms: int
    topics: GroupTopics


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """What snapshots tell as of a time."""

    newest_ms: int
    groups: Mapping[str, GroupSnapshot]
    missing: Mapping[
        str, int | None
    ]  # groups that the newest one misses: of when the one is that has them; None: there is none


def read_snapshots(archive: Archive, until_ms: int, report_problem: ReportProblem) -> Snapshots | None:
    """Read the newest snapshot that was taken at or before a time, and earlier ones for groups that it misses.

    None when there is none. One that cannot be read is reported, and the one before it is read.
    """
    found = islice(newest_first(archive, until_ms, report_problem), _MOST_READ)
    newest = next(found, None)
    if newest is None:
        return None
    groups = dict(_groups_of(newest))
    missing = dict.fromkeys(sorted({*newest.missing} - groups.keys()))
    told: dict[str, int | None] = dict(missing)
    sought = set(missing)
    for earlier in found if sought else ():
        here = {group: one for group, one in _groups_of(earlier) if group in sought}
        groups |= here
        told |= {group: one.time_ms for group, one in here.items()}
        sought &= {*earlier.missing} - here.keys()  # in neither: the group did not exist then
        if not sought:
            break
    return Snapshots(newest_ms=newest.time_ms, groups=groups, missing=told)


def _groups_of(snapshot: Snapshot) -> Iterator[tuple[str, GroupSnapshot]]:
    for group, topics in snapshot.groups.items():
        yield group, GroupSnapshot(time_ms=snapshot.time_ms, duration_ms=snapshot.duration_ms, topics=topics)


def newest_first(archive: Archive, until_ms: int, report_problem: ReportProblem) -> Iterator[Snapshot]:
    """Yield snapshots from the newest on. Clocks of writers may differ: of a day the later time decides, among neighbours."""
    for stream, number in _days(archive, until_ms, report_problem):
        yield from _of_day(archive, stream, number, until_ms, report_problem)


def newest_of_days(archive: Archive, until_ms: int, report_problem: ReportProblem) -> Iterator[Snapshot]:
    """Yield the newest snapshot of each day, from the newest on."""
    for stream, number in _days(archive, until_ms, report_problem):
        yield from islice(_of_day(archive, stream, number, until_ms, report_problem), 1)


def _days(archive: Archive, until_ms: int, report_problem: ReportProblem) -> Iterator[tuple[str, int]]:
    """Yield the streams of days and the numbers of their newest snapshots, from the newest day on."""
    streams = newest_numbers(archive, STREAM)
    for stream in sorted(streams, reverse=True):
        try:
            begin_ms = _begin_ms(stream)
        except CorruptSegmentError as error:
            report_problem(str(error))
            continue
        if begin_ms <= until_ms:
            yield stream, streams[stream]


def _of_day(
    archive: Archive, stream: str, newest: int, until_ms: int, report_problem: ReportProblem
) -> Iterator[Snapshot]:
    """Yield the snapshots of a day. Each is held against the one before it in number."""
    waiting: Snapshot | None = None
    for found in _read_backwards(archive, stream, newest):
        if isinstance(found, NotWholeError):
            report_problem(str(found))
        elif found.time_ms <= until_ms and waiting is None:
            waiting = found
        elif found.time_ms <= until_ms and waiting is not None:
            first, waiting = sorted([waiting, found], key=lambda one: -one.time_ms)
            yield first
    if waiting is not None:
        yield waiting


def _read_backwards(archive: Archive, stream: str, newest: int) -> Iterator[Snapshot | NotWholeError]:
    """Read the snapshots of a day from the newest on: two, which most callers want, and then several at a time."""

    def read(number: int) -> Snapshot | NotWholeError:
        try:
            return _SNAPSHOT.read(read_fact(archive, stream, number), partial(_refusal, stream, number))
        except NotWholeError as error:
            return error

    yield from map(read, range(newest, max(newest - 2, -1), -1))
    for start in range(newest - 2, -1, -_READ_TOGETHER):
        numbers = range(start, max(start - _READ_TOGETHER, -1), -1)
        yield from side_by_side(_READ_TOGETHER, read, numbers, "snapshot")


def _refusal(stream: str, number: int, why: str) -> CorruptSegmentError:
    return CorruptSegmentError(
        f"control/{stream}: number {number} is no snapshot of group positions: {why}; the one before it is read"
    )


def _begin_ms(stream: str) -> int:
    """Return when the day of a stream begins."""
    try:
        day = datetime.strptime(stream.rpartition("/")[2], "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise CorruptSegmentError(f"control/{stream}: is not named after a day; find out who put it") from error
    return int(day.timestamp() * 1000)
