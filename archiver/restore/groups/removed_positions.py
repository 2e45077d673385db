"""Decides which positions a restore sets of those that were removed before the requested time.

A removal names no cause. If the topic is known to exist later, a user removed the position, or it expired: it is not set.
Otherwise it may have been deleted with its topic: then it is set, and reported. `--groups-removed` overrides this. If the topic
was deleted before the newest snapshot, its last positions are searched in earlier ones.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import TopicFact, read_newest_topic_facts
from archiver.config.model import IndexUse
from archiver.config.quantities import spell_time
from archiver.groups.log.lives import AMBIGUOUS
from archiver.groups.positions.archived_position import ArchivedPosition, Cause, PositionSource, State
from archiver.groups.positions.lost_positions import find_lost_positions
from archiver.groups.positions.removal_causes import TopicLife
from archiver.groups.positions.shown import PositionFilter, read_all_groups, read_roots
from archiver.groups.positions.snapshots import has_snapshots
from archiver.kafka.brokers.client import KafkaClient
from archiver.process.output.text import spell_count, spell_name, spell_some

_MOST_NAMED: Final = 10


class Removed(StrEnum):
    """The removed positions to set. AUTO: those that may have been removed with their topic."""

    AUTO = "auto"
    SET = "set"
    LEAVE = "leave"


async def judge_removed(
    archive: Archive, client: KafkaClient, asked: Removed, positions: Sequence[ArchivedPosition]
) -> Sequence[ArchivedPosition]:
    """Decide which removed positions count as valid. A topic that the cluster still has, by its id, has not ended."""
    if not any(one.was_removed for one in positions):
        return positions
    living = await _living(archive, client, {_life(one) for one in positions if one.state is State.TOPIC_DELETED})
    return [_judged(one, living, asked) if one.was_removed else one for one in positions]


def _life(one: ArchivedPosition) -> TopicLife:
    return one.topic, one.life


async def _living(archive: Archive, client: KafkaClient, lives: Collection[TopicLife]) -> set[TopicLife]:
    names = {topic for topic, _ in lives}
    if not names:
        return set()
    found, _ = await client.describe_each(names)
    facts = _facts_of(archive, names)
    ids = {(name, life.life): life.topic_id for name, fact in facts.items() for life in fact.lives}
    return {one for one in lives if ids.get(one) and one[0] in found and found[one[0]].topic_id == ids[one]}


def _judged(one: ArchivedPosition, living: Collection[TopicLife], asked: Removed) -> ArchivedPosition:
    if one.state is State.TOPIC_DELETED and _life(one) in living:
        one = one._replace(state=State.REMOVED, cause=Cause.UNKNOWN)
    if one.state is State.TOPIC_DELETED and asked is Removed.LEAVE:
        return one._replace(state=State.REMOVED)
    if one.state is State.REMOVED and asked is Removed.SET and one.is_removed_value_known:
        return one._replace(state=State.SET)
    return one


def removal_warnings(left: Iterable[ArchivedPosition], set_there: Iterable[ArchivedPosition]) -> list[str]:
    """Name removed positions in restored topics: unset ones, and set ones."""
    told = []
    if names := _names(left):
        told.append(
            f"removed before then, and not set: {names}. If they are to be where the groups stood last, give --groups-removed set"
        )
    if names := _names(set_there):
        told.append(
            f"removed before then, with the topic or as the last ones in it, and set all the same: {names}. --groups-removed leave"
            " leaves them, and `archiver groups rollback` takes back what was set"
        )
    return told


def _names(positions: Iterable[ArchivedPosition]) -> str:
    found = [
        f"{spell_name(one.group)} in {one.topic}-{one.partition} ({one.offset if one.is_certain or one.is_removed_value_known else '?'})"
        for one in positions
    ]
    return f"{spell_count(len(found), 'position')}: {spell_some(found, _MOST_NAMED)}" if found else ""


Lives = Collection[tuple[str, int]]  # a topic, and a life of it
Positions = Sequence[ArchivedPosition]


def with_lost_positions(
    archive: Archive,
    asked: PositionFilter,
    use: IndexUse,
    positions: Positions,
    restored: Lives,
    report_problem: Callable[[str], None],
) -> Positions:
    """Add the last positions in restored lives without a present position."""
    facts = _facts_of(archive, {topic for topic, _ in restored if asked.topics.fullmatch(topic)})
    lives = {(topic, facts[topic].root(life)) for topic, life in restored if topic in facts}
    silent = _without_word(lives, positions)
    if not silent or not has_snapshots(archive):
        return positions
    silent = _without_word(silent, read_all_groups(archive, asked, {topic for topic, _ in silent}, use))
    roots = read_roots(archive, {topic: facts[topic] for topic, _ in silent}, use)
    lost, out_of_reach = find_lost_positions(archive, silent, roots, asked.as_of_ms, report_problem)
    for topic, at_ms in sorted(out_of_reach.items()):
        report_problem(
            f"groups stood in {topic} at {spell_time(at_ms)}, and stand there no more as of then; so many snapshots of positions were"
            " taken since that not all were looked through. Find the time when the topic was deleted, and give one before it:"
            " `archiver groups apply --as-of TIME`"
        )
    found = {_place(one): one for one in filter(asked.wants, lost)}
    return [*(one for one in positions if _is_word(one) or _place(one) not in found), *found.values()]


def _place(one: ArchivedPosition) -> tuple[str, str, int, int]:
    return one.group, one.topic, one.partition, one.life


def _without_word(lives: Iterable[tuple[str, int]], positions: Iterable[ArchivedPosition]) -> set[tuple[str, int]]:
    """Leave out lives with a position, or a possible one."""
    told = {(one.topic, one.life) for one in positions if _is_word(one)}
    return {one for one in lives if one not in told and (one[0], AMBIGUOUS) not in told}


def _is_word(one: ArchivedPosition) -> bool:
    """Return whether a position counts. One that a snapshot lacks does not: earlier snapshots may show its last value."""
    return not (one.state is State.REMOVED and one.source is PositionSource.SNAPSHOT)


def _facts_of(archive: Archive, topics: Collection[str]) -> dict[str, TopicFact]:
    """Read the notes of topics. Unreadable ones were reported already."""
    found = read_newest_topic_facts(archive, topics.__contains__)
    return {name: fact for name, fact in found.items() if isinstance(fact, TopicFact)}
