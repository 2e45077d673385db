"""Where groups stand, with what there is of each topic: what `archiver groups show` tells.

1. `__consumer_offsets` is read, where it was archived, and the newest snapshot of positions.
2. Where both have a position, the later word holds.
3. Each position is compared with the end of the archive.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from archiver.archive.catalog import find_topic, join_lives
from archiver.archive.handle import Archive
from archiver.archive.inventory import Inventory, read_inventory
from archiver.archive.topics import TopicFact, list_newest_topic_facts, read_topic_facts
from archiver.config.model import IndexUse
from archiver.errors import NotWholeError, UsageError
from archiver.groups.archived_log import ArchivedLog, read_log
from archiver.groups.archived_position import ArchivedPosition, Source, State
from archiver.groups.episodes import NO_ROW
from archiver.groups.folds import Folds
from archiver.groups.lives import AMBIGUOUS, NOT_ARCHIVED, Root, roots_of
from archiver.groups.positions import PositionsAsOf
from archiver.groups.snapshots import Snapshot, read_snapshot
from archiver.process.workers import side_by_side

OFFSETS_TOPIC: Final = "__consumer_offsets"
_READS_AT_ONCE: Final = 2
ReportProblem = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionFilter:
    """Which positions are wanted."""

    as_of_ms: int
    groups: re.Pattern[str]
    topics: re.Pattern[str]

    def wants(self, position: ArchivedPosition) -> bool:
        return bool(self.groups.fullmatch(position.group) and self.topics.fullmatch(position.topic))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPosition:
    """A position, where it is known from, and how many offsets of its partition the archive has behind it."""

    position: ArchivedPosition
    source: str
    lag: int | None  # None: the archive does not have the partition, or the position is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGroups:
    """All wanted positions, by group, topic and partition; and up to when they are known."""

    positions: Sequence[ShownPosition]
    logs: Sequence[ArchivedLog]
    snapshot_ms: int | None


def show_groups(archive: Archive, wanted: PositionFilter, use: IndexUse, report_problem: ReportProblem) -> ShownGroups:
    """Read where groups stood. Raises UsageError when nothing of that was archived."""
    logs = list(_read_logs(archive, wanted.as_of_ms, use, report_problem))
    snapshot = read_snapshot(archive, wanted.as_of_ms)
    if not logs and snapshot is None:
        raise UsageError(
            "nothing of consumer groups is archived up to then: neither __consumer_offsets nor a snapshot of positions"
            " (backup.groups)"
        )
    snapshot_ms = -1 if snapshot is None else snapshot.time_ms
    facts = _topic_facts(archive, report_problem)
    roots = {name: roots_of(fact) for name, fact in facts.items()}
    by_log = {_place(one): one for one in PositionsAsOf(logs, roots) if wanted.wants(one)}
    by_snapshot = {_place(one): one for one in _positions_of(snapshot, roots) if wanted.wants(one)}
    held = {
        **{place: (one, one.source) for place, one in by_log.items()},
        **{
            place: (one, Source.SNAPSHOT)
            for place, one in by_snapshot.items()
            if _holds(one, snapshot_ms, by_log.get(place))
        },
    }
    ends = _Ends(archive, facts, {place[1] for place in held}, use)
    return ShownGroups(
        positions=[
            ShownPosition(position=one, source=source, lag=ends.lag(one))
            for _, (one, source) in sorted(held.items(), key=lambda item: item[0])
        ],
        logs=logs,
        snapshot_ms=None if snapshot is None else snapshot.time_ms,
    )


Place = tuple[str, str, int, int]  # group, topic, partition, life


def _place(one: ArchivedPosition) -> Place:
    return one.group, one.topic, one.partition, one.life


def _read_logs(archive: Archive, as_of_ms: int, use: IndexUse, report_problem: ReportProblem) -> Iterator[ArchivedLog]:
    if OFFSETS_TOPIC not in list_newest_topic_facts(archive):
        return
    topic = find_topic(archive, OFFSETS_TOPIC, use=use, report_problem=report_problem)
    folds = Folds.of(archive, report_problem)
    numbers = sorted({*topic.partitions, *topic.damaged, *folds.partitions})
    yield from side_by_side(
        _READS_AT_ONCE,
        lambda number: read_log(archive.store, topic, number, as_of_ms, report_problem, folds),
        numbers,
        "offsets",
    )


def _topic_facts(archive: Archive, report_problem: ReportProblem) -> dict[str, TopicFact]:
    found = {}
    for name, fact in read_topic_facts(archive, list_newest_topic_facts(archive)).items():
        if isinstance(fact, NotWholeError):
            report_problem(str(fact))
        elif fact is not None:
            found[name] = fact
    return found


def _holds(snapshot: ArchivedPosition, at_ms: int, by_log: ArchivedPosition | None) -> bool:
    """Tell whether a snapshot's word holds over the log's: a commit that came before it, and is in no log, was not archived there."""
    if by_log is None or by_log.state is State.UNKNOWN:
        return True
    return by_log.removed_ms == NO_ROW and by_log.commit_ms < at_ms and by_log.offset != snapshot.offset


def _positions_of(snapshot: Snapshot | None, roots: Mapping[str, Sequence[Root]]) -> Iterator[ArchivedPosition]:
    for group, topics in (snapshot.groups if snapshot is not None else {}).items():
        for topic, partitions in topics.items():
            life = _life_at(roots.get(topic, ()), snapshot.time_ms if snapshot is not None else 0)
            for partition, held in partitions.items():
                yield ArchivedPosition(
                    group=group,
                    topic=topic,
                    life=life,
                    partition=partition,
                    state=State.AMBIGUOUS if life == AMBIGUOUS else State.SET,
                    offset=held.offset,
                    leader_epoch=held.leader_epoch,
                    metadata=held.metadata,
                    commit_ms=-1,
                    at_offset=NO_ROW,
                    removed_ms=NO_ROW,
                    at_ms=snapshot.time_ms if snapshot is not None else 0,
                    source=Source.SNAPSHOT,
                )


def _life_at(roots: Sequence[Root], time_ms: int) -> int:
    """Return which topic had a name when a snapshot was taken."""
    if len(roots) < 2:
        return roots[0].life if roots else NOT_ARCHIVED
    if any(root.seen_ms is None for root in roots):
        return AMBIGUOUS
    return max((root.life for root in roots if (root.seen_ms or 0) <= time_ms), default=AMBIGUOUS)


class _Ends:
    """Where the archive of partitions ends, in each life of a topic."""

    def __init__(self, archive: Archive, facts: Mapping[str, TopicFact], topics: Iterable[str], use: IndexUse) -> None:
        self._facts = facts
        names = facts.keys() & topics
        self._inventory: Inventory | None = read_inventory(archive, names.__contains__, use=use) if names else None
        self._ends: dict[tuple[str, int], dict[int, int]] = {}

    def lag(self, position: ArchivedPosition) -> int | None:
        if position.life < 0 or position.offset < 0:
            return None
        ends = self._of(position.topic, position.life)
        return max(0, ends[position.partition] - position.offset) if position.partition in ends else None

    def _of(self, topic: str, root: int) -> Mapping[int, int]:
        if (topic, root) not in self._ends:
            fact = self._facts[topic]
            life = max(life.life for life in fact.lives if fact.root(life.life) == root)
            inventories = {} if self._inventory is None else join_lives(self._inventory, topic, life, fact)[0]
            self._ends[topic, root] = {number: one.end for number, one in inventories.items()}
        return self._ends[topic, root]
