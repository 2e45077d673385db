"""Decides which positions a restore sets of those that were removed before the requested time.

A removal names no cause. If the topic is known to exist later, a user removed the position, or it expired: it is not set.
Otherwise it may have been deleted with its topic: then it is set, and reported. `--groups-removed` overrides this.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import TopicFact, read_newest_topic_facts
from archiver.groups.positions.archived_position import ArchivedPosition, Cause, State
from archiver.groups.positions.removal_causes import TopicLife
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
    facts = read_newest_topic_facts(archive, names.__contains__)
    ids = {
        (name, life.life): life.topic_id
        for name, fact in facts.items()
        if isinstance(fact, TopicFact)
        for life in fact.lives
    }
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
