"""Finds the groups that are never set on a target: the groups of backups, and the group without a name (decision 21)."""

from collections import defaultdict
from collections.abc import Collection
from typing import Final

from archiver.config.model import ArchiverConfig
from archiver.groups.positions.archived_position import ArchivedPosition
from archiver.kafka.groups.group import hint_of
from archiver.store.address import group_of

NAMELESS: Final = "the group without a name is skipped: brokers never delete a position of it, so it could not be set back; set it with Kafka's own tools"


def groups_left_out(config: ArchiverConfig, positions: Collection[ArchivedPosition]) -> frozenset[str]:
    """Return the groups that are never set: the groups of backups, by name or because all their commits are hints of backups.

    Their commits describe an archive, not a restored topic. Also the group without a name: brokers delete none of its positions.
    """
    named = group_of(config)
    # A name made from the address has the archive's mark, so no other group has the prefix.
    prefix = f"{named}-" if config.backup.group is None else None
    are_hints: dict[str, bool] = defaultdict(lambda: True)
    for one in positions:
        if one.offset >= 0:
            hint = hint_of(one.topic, one.partition, one.offset, one.metadata)
            are_hints[one.group] = are_hints[one.group] and bool(one.metadata) and hint.is_of_backup
    return frozenset(
        group
        for group, is_backup in are_hints.items()
        if is_backup or group == named or (prefix is not None and group.startswith(prefix))
    ) | {one.group for one in positions if not one.group}
