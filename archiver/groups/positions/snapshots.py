"""Reads snapshots of group positions, which are notes (docs/format.md §8): for a time, the newest snapshot with each group."""

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from archiver.archive.format.control import (
    FACT_FORMAT,
    Fact,
    decode_fact,
    gone_error,
    is_as_written,
    list_numbers,
    newest_numbers,
    read_with,
)
from archiver.archive.format.fact_model import BoundedText, FactModel, Item, KafkaText, LeaderEpoch, Number
from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import MOST_PARTITIONS
from archiver.codec.selection import LAST_LONG
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.groups.log.lives import AMBIGUOUS
from archiver.groups.positions.archived_position import ArchivedPosition, PositionSource, State
from archiver.process.running.workers import side_by_side
from archiver.process.values.json_values import parse_json, spelled_number

log = logging.getLogger(__name__)

STREAM: Final = "group-positions"
_MOST_EPOCH: Final = 2**31 - 1
# The most snapshots to read for groups that newer ones lack: each may have 64 MB.
_MOST_READ: Final = 200
_READ_TOGETHER: Final = 4
ReportProblem = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPosition:
    """The position that a group had committed in a partition."""

    offset: Number
    leader_epoch: Annotated[LeaderEpoch, Field(le=_MOST_EPOCH)] = -1
    metadata: KafkaText = ""


_Partition = Annotated[int, BeforeValidator(partial(spelled_number, most=MOST_PARTITIONS))]
GroupTopics = Mapping[Item[BoundedText], Mapping[Item[_Partition], Item[SnapshotPosition]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The positions of all groups at a time, except groups that did not answer."""

    time_ms: Number
    duration_ms: Number = 0  # a group may have been queried so much later
    groups: Mapping[Item[KafkaText], Item[GroupTopics]]
    missing: tuple[Item[KafkaText], ...]


_SNAPSHOT: Final = FactModel(Snapshot)


def stream_of(time_ms: int) -> str:
    """Return the stream of snapshots of a time: one for each day."""
    return f"{STREAM}/{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d}"


def snapshot_fact(
    cluster_id: str, time_ms: int, duration_ms: int, groups: Mapping[str, Fact], missing: Iterable[str]
) -> Fact:
    """Return a snapshot as it is written. `groups`: of each its topics, by partition what `written_position` returns."""
    return {
        "format": FACT_FORMAT,
        "cluster_id": cluster_id,
        "time_ms": time_ms,
        "duration_ms": duration_ms,
        "groups": groups,
        "missing": [*missing],
    }


def written_position(offset: int, leader_epoch: int = -1, metadata: str = "") -> Fact:
    """Return a position as a snapshot has it."""
    told: dict[str, int | str] = {"offset": offset}
    if leader_epoch >= 0:
        told["leader_epoch"] = leader_epoch
    if metadata:
        told["metadata"] = metadata
    return told


def archived_position(
    group: str, topic: str, partition: int, life: int, held: SnapshotPosition, at_ms: int, state: State
) -> ArchivedPosition:
    """Return a position in a snapshot of a time, for a life of its topic. `state`: used if the life is known."""
    return ArchivedPosition(
        group=group,
        topic=topic,
        life=life,
        partition=partition,
        state=State.AMBIGUOUS if life == AMBIGUOUS else state,
        offset=held.offset,
        leader_epoch=held.leader_epoch,
        metadata=held.metadata,
        at_ms=at_ms,
        source=PositionSource.SNAPSHOT,
    )


def day_begins_ms(day: str) -> int | None:
    """Return the begin of a day, spelled as in a stream's name; None for another spelling."""
    try:
        found = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    except ValueError:
        return None
    return int(found.timestamp() * 1000) if str(found.date()) == day else None


def can_read_day(archive: Archive, day: str, until_ms: int) -> bool:
    """Return whether a day has a readable snapshot of a time."""
    return next(SnapshotReader(archive, until_ms, log.info).of_day(f"{STREAM}/{day}"), None) is not None


def has_snapshots(archive: Archive) -> bool:
    """Return whether any snapshot exists. Reads the first page of a listing."""
    return next(iter(archive.store.list(archive.layout.control_prefix(STREAM))), None) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """The position of a group in the newest snapshot that has it."""

    time_ms: int
    duration_ms: int
    topics: GroupTopics


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """The contents of snapshots as of a time."""

    until_ms: int = LAST_LONG  # the time
    newest_ms: int | None = None  # None: no snapshot exists
    groups: Mapping[str, GroupSnapshot] = field(default_factory=dict)
    # Groups missing in the newest, with the time of the snapshot that has them; None: no snapshot has them.
    missing: Mapping[str, int | None] = field(default_factory=dict)
    following: Mapping[str, GroupSnapshot] = field(default_factory=dict)  # by the first snapshot after the time
    missing_behind: Collection[str] = ()  # groups missing in the first snapshot after the time and in all later ones


@dataclass(slots=True)
class _Following:
    """Collected while reading backwards to a time: the first snapshot after it, and the first day that begins after it."""

    time_ms: int | None = None  # of the first snapshot
    groups: dict[str, GroupSnapshot] = field(default_factory=dict)  # of the first snapshot; missing ones of later ones
    missing: set[str] = field(default_factory=set)  # in the first snapshot and in the later ones
    day: str = ""

    def note(self, found: Snapshot) -> None:
        """Note a snapshot after the time."""
        here, missed = dict(_groups_of(found)), {*found.missing} - found.groups.keys()
        if self.time_ms is None or found.time_ms < self.time_ms:
            later = {group: one for group, one in self.groups.items() if group in missed}
            self.time_ms, self.groups, self.missing = found.time_ms, here | later, missed - later.keys()
        else:
            later = {group: one for group, one in here.items() if group in self.missing}
            self.groups |= later
            self.missing -= later.keys()


def read_snapshots(archive: Archive, until_ms: int, report_problem: ReportProblem) -> Snapshots:
    """Read the newest snapshot at or before a time, and earlier ones for groups that it lacks.

    An unreadable one is reported, and the previous one is read.
    """
    following = _Following()
    reader = SnapshotReader(archive, until_ms, report_problem, following=following)
    found = islice(reader.newest_first(), _MOST_READ)
    newest = next(found, None)
    if newest is None:
        return Snapshots(until_ms=until_ms)
    groups = dict(_groups_of(newest))
    sought = {*newest.missing} - groups.keys()
    missing: dict[str, int | None] = dict.fromkeys(sorted(sought))
    for earlier in found if sought else ():
        here = {group: one for group, one in _groups_of(earlier) if group in sought}
        groups |= here
        missing |= {group: one.time_ms for group, one in here.items()}
        sought &= {*earlier.missing} - here.keys()  # missing in both: the group did not exist then
        if not sought:
            break
    if following.day and (following.time_ms is None or following.missing):
        reader.note_first(following.day)
    return Snapshots(
        until_ms=until_ms,
        newest_ms=newest.time_ms,
        groups=groups,
        missing=missing,
        following=following.groups,
        missing_behind=following.missing,
    )


def _groups_of(snapshot: Snapshot) -> Iterator[tuple[str, GroupSnapshot]]:
    for group, topics in snapshot.groups.items():
        yield group, GroupSnapshot(time_ms=snapshot.time_ms, duration_ms=snapshot.duration_ms, topics=topics)


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """Reads snapshots backwards from a time. An unreadable one is reported, and left out.

    `naming`: names of groups or topics. A snapshot without any of these names is read without its groups, which is much faster.
    """

    archive: Archive
    until_ms: int
    report_problem: ReportProblem
    naming: Collection[str] | None = None
    following: _Following | None = None

    def newest_first(self) -> Iterator[Snapshot]:
        """Yield snapshots from the newest on. Clocks of writers may differ: among neighbours of a day, the later time comes first."""
        for stream in self._days():
            yield from self.of_day(stream)

    def newest_of_days(self) -> Iterator[Snapshot]:
        """Yield the newest snapshot of each day, from the newest on."""
        for stream in self._days():
            yield from islice(self.of_day(stream), 1)

    def note_first(self, stream: str) -> None:
        """Note the first snapshot of a day after the time, if it is the first one after it, or if that one lacks groups."""
        for number in list_numbers(self.archive, stream)[:1]:
            for found in self._readable([self._read(stream, number)]):
                if self.following is not None:
                    self.following.note(found)

    def of_day(self, stream: str) -> Iterator[Snapshot]:
        """Yield the snapshots of a day. Each is compared with the one that has the previous number."""
        waiting: Snapshot | None = None
        for found in self._readable(self._backwards(stream)):
            if found.time_ms > self.until_ms:
                if self.following is not None:
                    self.following.note(found)
            elif waiting is None:
                waiting = found
            else:
                first, waiting = sorted([waiting, found], key=lambda one: -one.time_ms)
                yield first
        if waiting is not None:
            yield waiting

    def _days(self) -> Iterator[str]:
        """Yield the streams of days, from the newest day on."""
        for stream in sorted(newest_numbers(self.archive, STREAM), reverse=True):
            begin_ms = day_begins_ms(stream.rpartition("/")[2])
            if begin_ms is None:
                self.report_problem(f"control/{stream}: is not named after a day; find out who put it")
            elif begin_ms <= self.until_ms:
                yield stream
            elif self.following is not None:
                self.following.day = stream

    def _readable(self, found: Iterable[Snapshot | NotWholeError]) -> Iterator[Snapshot]:
        for one in found:
            if isinstance(one, NotWholeError):
                self.report_problem(str(one))
            else:
                yield one

    def _backwards(self, stream: str) -> Iterator[Snapshot | NotWholeError]:
        """Read the snapshots of a day from the newest on: first two, which suffice for most callers, then several at a time."""
        numbers = list_numbers(self.archive, stream)[::-1]
        gone = len(range(numbers[0] + 1)) - len(numbers) if numbers else 0
        read = partial(self._read, stream)
        yield from map(read, numbers[:2])
        if gone:  # a far too high number would cause one request for each missing one
            yield CorruptSegmentError(
                f"control/{stream}: {gone:,} snapshots are gone: a retention sweep took them, or they are lost"
            )
        for start in range(2, len(numbers), _READ_TOGETHER):  # not all at once: each may have 64 MB
            yield from side_by_side(_READ_TOGETHER, read, numbers[start : start + _READ_TOGETHER], "snapshot")

    def _read(self, stream: str, number: int) -> Snapshot | NotWholeError:
        key = self.archive.layout.fact_key(stream, number)
        names = None if self.naming is None else [f"{json.dumps(name)}:".encode() for name in self.naming]

        def decode(content: bytes) -> Snapshot:
            if names is not None and not any(name in content for name in names) and is_as_written(content):
                return _without_groups(content)
            return _SNAPSHOT.read(decode_fact(content, key, stream), partial(_refusal, stream, number))

        try:
            return read_with(self.archive, stream, number, decode) or gone_error(key)
        except NotWholeError as error:
            return error


def _without_groups(content: bytes) -> Snapshot:
    """Read the header of a snapshot without its groups, from the lines that this program wrote."""
    lines = {name: _line(content, name) for name in ("time_ms", "duration_ms", "missing")}
    fact = {name: parse_json(text) for name, text in lines.items() if text is not None}
    return _SNAPSHOT.read({"missing": [], **fact, "groups": {}}, CorruptSegmentError)


def _line(content: bytes, name: str) -> bytes | None:
    found = re.search(rb'\n "%s": (\[.*?\n \]|\[\]|[0-9]+)' % name.encode(), content, re.DOTALL)
    return None if found is None else found[1]


def _refusal(stream: str, number: int, why: str) -> CorruptSegmentError:
    return CorruptSegmentError(
        f"control/{stream}: number {number} is no snapshot of group positions: {why}; the one before it is read"
    )
