"""Commits in transactions that may not have counted yet as of the time: where a group stood is ambiguous until their marker came."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from archiver.codec.kernels import commits as kernels
from archiver.groups.archived_position import ArchivedPosition, Cause, State
from archiver.groups.lives import AMBIGUOUS
from archiver.groups.told_log import ToldLog

_Place = tuple[str, str, int, int]  # group, topic, partition, life


def with_pending(told: ToldLog, positions: Iterable[ArchivedPosition]) -> Iterator[ArchivedPosition]:
    """Yield the positions of a log, also those with only pending commits. After a pending commit a position is ambiguous."""
    pending = _pending_rows(told)
    seen = set[_Place]()
    for one in positions:
        if pending:
            place = _place(one)
            seen.add(place)
            yield _between(told, one, [*pending.get(place, ()), *pending.get((*place[:3], AMBIGUOUS), ())])
        else:
            yield one
    for place, rows in pending.items():
        if place not in seen:
            yield _between(told, ArchivedPosition.without_commit(*place, State.SET), rows)


def _place(one: ArchivedPosition) -> _Place:
    return one.group, one.topic, one.partition, one.life


def _pending_rows(told: ToldLog) -> dict[_Place, list[int]]:
    rows = told.rows
    chosen = np.flatnonzero(rows.is_pending)
    groups = rows.texts(chosen, kernels.GROUP_START, kernels.GROUP_LENGTH)
    numbers = (rows.told(kernels.PARTITION)[chosen].tolist(), told.lives[chosen].tolist())
    found: dict[_Place, list[int]] = {}
    for at, (row, partition, life) in enumerate(zip(chosen.tolist(), *numbers, strict=True)):
        found.setdefault((groups.at(at), rows.topic.at(row), partition, life), []).append(row)
    return found


def _between(told: ToldLog, one: ArchivedPosition, rows: Sequence[int]) -> ArchivedPosition:
    """Say where else a group may have stood. Kafka goes by the order of the log, so commits before the last known word are over."""
    has_stood = one.state in {State.SET, State.TOPIC_DELETED}
    behind = [row for row in rows if told.rows.offset[row] > (one.at_offset if has_stood else one.removed_at)]
    if not behind or one.state in {State.UNKNOWN, State.AMBIGUOUS}:
        is_stale = any(told.rows.offset[row] > one.at_offset for row in rows)  # it stood elsewhere when it was removed
        return one._replace(is_stale=True) if is_stale and one.state is State.REMOVED else one
    stood = one if has_stood else one._replace(offset=-1, removed_ms=-1, cause=Cause.NONE)
    offsets, is_readable = told.rows.told(kernels.OFFSET)[behind], told.rows.told(kernels.IS_READABLE)[behind] == 1
    other = int(offsets.argmin()) if offsets.min() < stood.offset else len(behind) - 1
    return stood._replace(
        state=State.AMBIGUOUS,
        other_offset=int(offsets[other]) if is_readable.all() else -1,
        other_ms=int(told.rows.told(kernels.COMMIT_MS)[behind[other]]),
    )
