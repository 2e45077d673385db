"""Which consumer group the backups of an archive share: their own, or the one that all archives had before (decision 21)."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from archiver.archive.handle import Archive
from archiver.archive.layout import SegmentKey
from archiver.archive.segment_facts import facts_from_metadata
from archiver.archive.topics import read_topic
from archiver.config.model import ArchiverConfig
from archiver.errors import KafkaError, NotWholeError
from archiver.groups.archived_position import ArchivedPosition
from archiver.kafka.client import KafkaClient
from archiver.kafka.group import Hint, hint_of
from archiver.kafka.group_positions import GroupPosition, positions_of
from archiver.process.workers import Workers
from archiver.store.address import group_of

log = logging.getLogger(__name__)

FORMER_GROUP: Final = "archiver"  # the default of all archives, once
_SAMPLE = 64  # commits are enough: of two archives in one group, each lacks about every other committed object


async def own_group(client: KafkaClient, archive: Archive, pool: Workers, config: ArchiverConfig, mark: str) -> str:
    """Return the former group where this archive's backups, and no others, have committed to it; else the one named by it.

    So a backup that ran before the groups were split goes on with its commits and rights. Two archives in the former group
    both leave it.
    """
    named = group_of(config)
    try:
        committed = await positions_of(client, FORMER_GROUP)
    except KafkaError as error:  # this user has no right to the former group, so never used it
        log.debug("%s", error)
        return named
    # An archive that was begun again lacks topics that are left out now: their commits do not speak for another archive.
    included = config.topics.select({topic for topic, _ in committed})
    counted = {which: found for which, found in committed.items() if which[0] in included}
    ours, others = await pool.call(count_commits, archive, mark, counted)
    if ours and others:
        log.warning(
            "group %s has commits of this archive, and some that name objects which it does not have: as if another one had"
            " used the group, too, and each had only a share of the partitions. This archive goes on as group %s, and"
            " archives what Kafka still has of the others",
            FORMER_GROUP,
            named,
        )
    return FORMER_GROUP if ours and not others else named


def count_commits(archive: Archive, mark: str, committed: Mapping[tuple[str, int], GroupPosition]) -> tuple[int, int]:
    """Count, in a sample of commits, those of this archive and those of another one.

    Commits of earlier versions do not name their archive: they name an object, which this archive has, or has not.
    """
    hints = [hint_of(*which, found.offset, found.metadata) for which, found in sorted(committed.items())]
    told = [hint.archive == mark for hint in hints if hint.archive]
    untold = [hint for hint in hints if not hint.archive and hint.base is not None]
    step = max(1, len(untold) // _SAMPLE)
    found = [*told, *(_has(archive, hint) for hint in untold[::step])]
    return found.count(True), found.count(False)


NAMELESS: Final = "the group without a name is skipped: brokers never delete a position of it, so it could not be set back; set it with Kafka's own tools"


def groups_left_out(config: ArchiverConfig, positions: Sequence[ArchivedPosition]) -> frozenset[str]:
    """Return which of these groups are never set: the archiver's own, and the one without a name, of which brokers delete no position."""
    return archivers_groups(config, positions) | {one.group for one in positions if not one.group}


def archivers_groups(config: ArchiverConfig, positions: Iterable[ArchivedPosition]) -> frozenset[str]:
    """Return which of these groups are backups' own: by name, or because all that was committed are hints of backups.

    What they committed says where an archive ends, and nothing of a restored topic.
    """
    named = group_of(config)
    prefix = (
        f"{named}-" if config.backup.group is None else None
    )  # such a name has the archive's mark: nobody else's begins so
    are_hints: dict[str, bool] = defaultdict(lambda: True)
    for one in positions:
        if one.offset >= 0:
            are_hints[one.group] = are_hints[one.group] and bool(one.metadata) and _is_hint(one)
    return frozenset(
        group
        for group, is_backup in are_hints.items()
        if is_backup or group in {named, FORMER_GROUP} or (prefix is not None and group.startswith(prefix))
    )


def _is_hint(position: ArchivedPosition) -> bool:
    hint = hint_of(position.topic, position.partition, position.offset, position.metadata)
    return hint.base is not None or bool(hint.archive)


def _has(archive: Archive, hint: Hint) -> bool | None:
    """Tell whether an object stands at a base, and ends where the commit says, or before; None where its facts do not tell."""
    try:
        fact = read_topic(archive, hint.topic)
        for life in reversed(() if fact is None else fact.lives):
            where = SegmentKey(topic=hint.topic, life=life.life, partition=hint.partition, base=hint.base or 0)
            key = archive.layout.segment_key(where)
            info = archive.store.head(key) if life.holds(hint.partition) else None
            facts = None if info is None else facts_from_metadata(info.metadata, key)
            if facts is not None and facts.next <= hint.offset:
                return True
    except NotWholeError as error:
        log.debug("%s", error)
        return None
    return False
