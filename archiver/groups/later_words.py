"""Which ambiguous positions are not where a group stood last in the restored life: those that are older than a word of that life.

Restoring and its dry run both leave them aside.
"""

from collections.abc import Sequence

from archiver.groups.archived_position import ArchivedPosition, Source
from archiver.groups.translation import Reason
from archiver.kafka.cluster import TopicPartition


def settle_ambiguous(found: Sequence[tuple[ArchivedPosition, Reason | None]]) -> list[Reason | None]:
    """Return why each position of one group is not set, in their order; None: it is. What is ambiguous may be of another life then."""
    known: dict[
        TopicPartition, int
    ] = {}  # by partition: the last word of the restored life; of several, of the one that ended first
    for position, reason in found:
        if reason is None or reason is Reason.REMOVED:
            place, row = _place(position), _last_row(position)
            known[place] = min(row, known.get(place, row))
    return [Reason.ANOTHER_LIFE if _is_older(position, reason, known) else reason for position, reason in found]


def _is_older(position: ArchivedPosition, reason: Reason | None, known: dict[TopicPartition, int]) -> bool:
    if reason is not Reason.AMBIGUOUS or position.source is Source.SNAPSHOT:
        return False
    return _last_row(position) < known.get(_place(position), -1)


def _place(position: ArchivedPosition) -> TopicPartition:
    return position.topic, position.partition


def _last_row(position: ArchivedPosition) -> int:
    """Return where `__consumer_offsets` has the last word of a position; -1 for a snapshot, which has no row there."""
    return max(position.at_offset, position.removed_at)
