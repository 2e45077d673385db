"""Which consumer group the backups of an archive share: their own, or the one that all archives had before (decision 21)."""

import logging
from collections.abc import Mapping
from typing import Final

from archiver.control import read_topic
from archiver.errors import KafkaError, NotWholeError
from archiver.facts import facts_from_metadata
from archiver.kafka.client import KafkaClient
from archiver.kafka.group import base_in
from archiver.kafka.group_positions import GroupPosition, positions_of
from archiver.layout import Layout, SegmentKey
from archiver.store import ObjectStore
from archiver.workers import Workers

log = logging.getLogger(__name__)

FORMER_GROUP: Final = "archiver"  # the default of all archives, once
_SAMPLE = 64  # of two archives in one group each lacks about every other object that was committed


async def own_group(client: KafkaClient, store: ObjectStore, layout: Layout, pool: Workers, named: str) -> str:
    """Return the former group where this archive's backups, and no others, have committed to it; else the one named by it.

    So what has run before goes on with its commits and its rights. Two archives in the former group both leave it.
    """
    try:
        committed = await positions_of(client, FORMER_GROUP)
    except KafkaError as error:  # this user has nothing to do with it
        log.debug("%s", error)
        return named
    ours, others = await pool.call(count_commits, store, layout, committed)
    if ours and others:
        log.warning(
            "group %s has commits of this archive and of another one: each had only a share of the partitions. This archive"
            " goes on as group %s, and archives what Kafka still has of the others",
            FORMER_GROUP,
            named,
        )
    return FORMER_GROUP if ours and not others else named


def count_commits(
    store: ObjectStore, layout: Layout, committed: Mapping[tuple[str, int], GroupPosition]
) -> tuple[int, int]:
    """Tell how many commits, of some, name an object that this archive has, and how many one that it has not."""
    bases = [
        (topic, number, base, position.offset)
        for (topic, number), position in sorted(committed.items())
        if (base := base_in(position.metadata)) is not None
    ]
    step = max(1, len(bases) // _SAMPLE)
    found = [_has(store, layout, *one) for one in bases[::step]]
    return found.count(True), found.count(False)


def _has(store: ObjectStore, layout: Layout, topic: str, partition: int, base: int, offset: int) -> bool | None:
    """Tell whether an object stands at a base, and ends where the commit says, or before; None where its facts do not tell."""
    try:
        fact = read_topic(store, layout, topic)
        for life in reversed(() if fact is None else fact.lives):
            key = layout.segment_key(SegmentKey(topic=topic, life=life.life, partition=partition, base=base))
            info = store.head(key) if life.holds(partition) else None
            facts = None if info is None else facts_from_metadata(info.metadata, key)
            if facts is not None and facts.next <= offset:
                return True
    except NotWholeError as error:
        log.debug("%s", error)
        return None
    return False
