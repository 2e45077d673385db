"""Collects the positions of groups with the state of each topic: the data of `archiver groups show`, of restores and of Spark tables.

1. All archived lives of `__consumer_offsets` up to the time are read, and the newest snapshots of positions.
2. For each position the later source holds (archiver.groups.positions.joined_positions).
3. Each position is compared with the end of the archive.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from archiver.archive.copies.copied_topic import BY_ROLES, find_copied_topics
from archiver.archive.format.handle import Archive
from archiver.archive.index.inventory import Inventory, PartitionInventory, read_inventory
from archiver.archive.notes.topics import TopicFact, list_newest_topic_facts, read_newest_topic_facts
from archiver.archive.reading.catalog import join_lives
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.codec.selection import LAST_LONG, NO_TIMESTAMP
from archiver.config.model import IndexUse
from archiver.config.quantities import spell_time
from archiver.errors import NotWholeError, UsageError
from archiver.groups.log.archived_log import OffsetsLog
from archiver.groups.log.archived_until import ArchivedUntil, lagging_problem, lags_of
from archiver.groups.log.lives import Root, roots_of
from archiver.groups.log.position_rows import PositionRows
from archiver.groups.positions.archived_position import ArchivedPosition, State
from archiver.groups.positions.joined_positions import join_positions
from archiver.groups.positions.offsets_lives import OffsetsLife, earlier_positions, read_offsets_lives
from archiver.groups.positions.snapshots import read_snapshots
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.output.text import spell_count

_MOST_NAMED: Final = 10  # partitions, in one line
# Records are archived at most so long after they were produced; clocks of producers and of stores also differ.
_ARCHIVED_WITHIN_MS: Final = 3_600_000
_ANY: Final = re.compile(".*", re.DOTALL)
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
    """A position, and the number of archived offsets behind it in its partition."""

    position: ArchivedPosition
    lag: int | None  # None: the archive lacks the partition, or the position has no offset
    beyond: int | None = None  # offsets beyond the end of the archive


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGroups:
    """All wanted positions, by group, topic and partition; and the logs and the snapshot time that they come from."""

    positions: Sequence[ShownPosition]
    logs: Sequence[OffsetsLog]
    snapshot_ms: int | None
    # Groups missing in the newest snapshot, with the time of the snapshot that has them; None: no snapshot has them.
    missing: Mapping[str, int | None] = field(default_factory=dict)


def show_groups(archive: Archive, wanted: PositionFilter, use: IndexUse, report_problem: ReportProblem) -> ShownGroups:
    """Read the positions of groups. Raises UsageError if nothing about them was archived."""
    problems: list[str] = []

    def report(problem: str) -> None:
        problems.append(problem)
        report_problem(problem)

    facts = _topic_facts(archive, report)
    lives = _read_lives(archive, facts, wanted.as_of_ms, use, report)
    logs = [log for life in lives for log in life.logs]
    snapshots = read_snapshots(archive, wanted.as_of_ms, report)
    if not logs and snapshots.newest_ms is None and not problems:
        raise UsageError(
            "nothing of consumer groups is archived up to then: neither __consumer_offsets nor a snapshot of positions"
            " (backup.groups)"
        )
    by_snapshot = {topic for told in snapshots.groups.values() for topic in told.topics}
    named = by_snapshot.union(*(set(PositionRows.of(log.rows).topic.texts) for log in logs))
    topics = _Topics(archive, facts, filter(wanted.topics.fullmatch, named), use)
    roots = topics.roots()
    ends = _ends_of(lives[-1:], wanted.as_of_ms)
    newest_ms = snapshots.newest_ms
    untold = [one for one in ends.lags.values() if newest_ms is None or newest_ms <= one.until_ms]
    if untold:
        report(lagging_problem(untold))
    by_log = (one for life in lives[-1:] for one in life.positions(roots) if wanted.wants(one))
    joined = list(join_positions(by_log, snapshots, ends, roots))
    earlier = earlier_positions(lives[:-1], roots, joined)
    found = [one for one in (*joined, *earlier) if wanted.wants(one)]
    if earlier:
        found.sort(key=lambda one: (one.group, one.topic, one.partition, one.life))
    oldest_ms = min((log.first_ms for log in logs if log.first_ms is not None), default=wanted.as_of_ms)
    if not (found or problems) and newest_ms is None and oldest_ms > wanted.as_of_ms:
        raise UsageError(  # without records of that time, positions are unknown rather than absent
            "nothing of consumer groups is archived up to then: the oldest record of __consumer_offsets in the archive is of"
            f" {spell_time(oldest_ms)}"
        )
    return ShownGroups(
        positions=[topics.shown(one) for one in found],
        logs=logs,
        snapshot_ms=newest_ms,
        missing={group: at_ms for group, at_ms in snapshots.missing.items() if wanted.groups.fullmatch(group)},
    )


def read_all_groups(
    archive: Archive, wanted: PositionFilter, topics: Iterable[str], use: IndexUse
) -> list[ArchivedPosition]:
    """Read positions of all groups in some topics. Read errors were reported with the wanted groups."""
    named = re.compile("|".join(map(re.escape, sorted(topics))))
    asked = replace(wanted, groups=_ANY, topics=named)
    return [one.position for one in show_groups(archive, asked, use, lambda _: None).positions]


def _ends_of(held: Sequence[OffsetsLife], as_of_ms: int) -> ArchivedUntil:
    """Return the times up to which the partitions of the current life are archived, and the partitions that lag behind a time."""
    facts = [life.topic.fact for life in held if life.topic.fact is not None]
    last_ms = {log.partition: log.last_ms for life in held for log in life.logs}
    lags = [one for life in held for one in lags_of(life.topic.fact, life.topic.life, life.topic.partitions, last_ms)]
    return ArchivedUntil(
        partitions=facts[0].partitions if facts else None,
        last_ms={number: -1 if at_ms is None else at_ms for number, at_ms in last_ms.items()},
        lags={one.partition: one for one in lags if as_of_ms > one.until_ms},
    )


def _read_lives(
    archive: Archive, facts: Mapping[str, TopicFact], as_of_ms: int, use: IndexUse, report_problem: ReportProblem
) -> Sequence[OffsetsLife]:
    if OFFSETS_TOPIC not in list_newest_topic_facts(archive):
        return ()
    lives = read_offsets_lives(archive, facts.values(), as_of_ms, use, report_problem)
    if told := _before_kept([log for life in lives for log in life.logs], as_of_ms):
        report_problem(told)
    return lives


def _before_kept(logs: Iterable[OffsetsLog], as_of_ms: int) -> str:
    """Report a time before the oldest one that sweeps have kept; empty: it is not before it."""
    lacking = {log.partition: log.kept_from_ms for log in logs if log.kept_from_ms is not None}
    if not lacking:
        return ""
    then = "now" if as_of_ms == LAST_LONG else f"as of {spell_time(as_of_ms)}"
    taken = (
        f"retention sweeps took records of {spell_count(len(lacking), 'partition')} of {OFFSETS_TOPIC}"
        f" ({', '.join(map(str, sorted(lacking)[:_MOST_NAMED]))}{', ...' if len(lacking) > _MOST_NAMED else ''})"
    )
    least_ms = max(lacking.values())
    known = (
        "no fold that can be read stands for some of them: bring those under control/group-folds/ back from the bucket's versions"
        if least_ms == LAST_LONG
        else f"the earliest time as of which all is known is {spell_time(least_ms)}"
    )
    return f"where groups stood {then} is known only in part: {taken}; {known}"


def _topic_facts(archive: Archive, report_problem: ReportProblem) -> dict[str, TopicFact]:
    found = {}
    for name, fact in read_newest_topic_facts(archive).items():
        if isinstance(fact, NotWholeError):
            report_problem(str(fact))
        else:
            found[name] = fact
    return found


def read_roots(archive: Archive, facts: Mapping[str, TopicFact], use: IndexUse) -> dict[str, list[Root]]:
    """Return the lives of topics, and a time when each certainly existed, by its archived records."""
    return _Topics(archive, facts, facts, use).roots()


class _Topics:
    """The archived topics with positions: their lives, and the end of the archive in each life."""

    def __init__(self, archive: Archive, facts: Mapping[str, TopicFact], named: Iterable[str], use: IndexUse) -> None:
        names = facts.keys() & named
        self._facts = {name: facts[name] for name in names}
        self._inventory: Inventory | None = read_inventory(archive, names.__contains__, use=use) if names else None
        copied = find_copied_topics(archive, self._inventory, names.__contains__)[0] if self._inventory else []
        self._copied = {one.topic: one for one in copied}
        self._ends: dict[tuple[str, int], dict[int, int]] = {}

    def roots(self) -> dict[str, list[Root]]:
        return {name: roots_of(fact, self._alive_ms(name, fact)) for name, fact in self._facts.items()}

    def shown(self, position: ArchivedPosition) -> ShownPosition:
        end = None
        if position.life >= 0 and position.state in {State.SET, State.TOPIC_DELETED}:
            end = self._of(position.topic, position.life).get(position.partition)
        return ShownPosition(
            position=position,
            lag=None if end is None else max(0, end - position.offset),
            beyond=None if end is None or position.offset <= end else position.offset - end,
        )

    def _alive_ms(self, name: str, fact: TopicFact) -> dict[int, int]:
        """Return a time when each topic certainly existed: an hour before its newest archived record."""
        found: dict[int, int] = {}
        for life in fact.lives:
            root, partitions = fact.root(life.life), self._partitions(name, life.life)
            for newest in (one.readable[-1].segment for one in partitions if one.readable):
                if (
                    newest.put_at is None
                    or not isinstance(newest.facts, SegmentFacts)
                    or newest.facts.max_timestamp == NO_TIMESTAMP
                ):
                    continue
                # A copy of the object may have been put at any later time, and a producer's clock may be ahead.
                at_ms = min(newest.facts.max_timestamp, int(newest.put_at.timestamp() * 1000)) - _ARCHIVED_WITHIN_MS
                found[root] = max(at_ms, found.get(root, at_ms))
        return found

    def _partitions(self, name: str, life: int) -> Iterable[PartitionInventory]:
        """Return the objects of a life under `topics/`, and its objects read from copies."""
        history = {} if self._inventory is None else self._inventory.partitions.get((name, life), {})
        copied = self._copied[name].copies_in(life) if name in self._copied else {}
        return [*history.values(), *(one.inventory for one in copied.values())]

    def _of(self, topic: str, root: int) -> Mapping[int, int]:
        if (topic, root) not in self._ends:
            fact = self._facts[topic]
            life = max(life.life for life in fact.lives if fact.root(life.life) == root)
            inventories = {} if self._inventory is None else join_lives(self._inventory, topic, life, fact)[0]
            if topic in self._copied:
                inventories = dict(self._copied[topic].read(life, BY_ROLES).partitions)
            self._ends[topic, root] = {number: one.end for number, one in inventories.items()}
        return self._ends[topic, root]
