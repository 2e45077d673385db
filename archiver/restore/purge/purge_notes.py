"""Lists the losses of each purge beforehand: the topic's records, and the offsets that consumer groups committed for it."""

from collections.abc import Mapping, Sequence

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.groups.group import hint_of
from archiver.kafka.groups.group_positions import GroupPosition, positions_each, sees_all_groups
from archiver.process.output.text import spell_count, spell_some
from archiver.restore.purge.purge_checks import Offsets

_NAMED = 3  # groups of a topic; more are counted


async def purge_notes(client: KafkaClient, offsets: Offsets, replicas: Mapping[str, int]) -> tuple[str, ...]:
    """Return the losses of purged topics, and the replica counts of the new ones (0: unknown)."""
    if not replicas:
        return ()
    groups, untold = await _groups_with_positions(client)
    notes = []
    for name, count in sorted(replicas.items()):
        records = sum(one.high_watermark - one.log_start for one in offsets[name].values())
        had = f"with all its records, at most {records:,}," if records else "without a record,"
        its_replicas = f", with {spell_count(count, 'replica')}" if count else ""
        notes.append(
            f"target topic {name} goes, {had} and is created again{its_replicas};"
            f" {_groups(sorted(groups.get(name, ())), untold)}"
        )
    return tuple(notes)


def _groups(names: Sequence[str], untold: str) -> str:
    if not names and untold:
        return f"whether consumer groups have committed offsets for it, which go with it, is not known: {untold}"
    if not names:
        return "no consumer group has committed offsets for it"
    committed = spell_count(len(names), "consumer group has", "consumer groups have")
    others = f"; of others that is not known: {untold}" if untold else ""
    return f"with it go the offsets that {committed} committed for it: {spell_some(names, _NAMED)}{others}"


async def _groups_with_positions(client: KafkaClient) -> tuple[dict[str, set[str]], str]:
    """Return the groups with committed offsets, by topic, and why groups may be missing; empty: all are known."""
    try:
        found, refused = await positions_each(client)
        is_whole = await sees_all_groups(client)
    except (KafkaError, KafkaTemporaryError) as error:  # the purge does not need these notes
        return {}, str(error)
    groups: dict[str, set[str]] = {}
    for group, positions in found.items():
        for (topic, _), position in positions.items():
            if not _is_of_backup(position):
                groups.setdefault(topic, set()).add(group)
    if refused:
        return groups, str(next(iter(refused.values())))
    return groups, "" if is_whole else "this user may not describe all groups; grant Describe on the groups"


def _is_of_backup(position: GroupPosition) -> bool:
    """Return whether a backup has committed this position: its archive has that position, too."""
    return hint_of("", 0, position.offset, position.metadata).is_of_backup
