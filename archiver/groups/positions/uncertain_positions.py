"""Finds positions that are uncertain as of a time: unknown where records may be missing, ambiguous in open transactions.

If the log has no row of a position in one life of its topic, but may lack rows, the position is unknown, never none:

1. A position that is committed or removed only later may have been committed before.
2. A position that was removed in one life of its topic may have been committed in a later life.
3. A position that was committed in one life may have been committed in earlier lives.

Positions without any record cannot be detected.

A commit in a transaction counts from its marker on; before, the position is ambiguous.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from archiver.codec.frame import Longs
from archiver.codec.kernels import commits as kernels
from archiver.codec.selection import LAST_LONG
from archiver.groups.log.lives import AMBIGUOUS, Root, Roots, life_at
from archiver.groups.log.position_rows import NO_ROW
from archiver.groups.positions.archived_position import UNKNOWN_MS, ArchivedPosition, Cause, State
from archiver.groups.positions.log_as_of import LogAsOf, known_from_ms


def missed_positions(told: LogAsOf, roots: Roots) -> Iterator[ArchivedPosition]:
    """Yield unknown positions without an episode up to the time."""
    rows, until_ms = told.rows, told.log.rows.until_ms
    is_first = np.append(True, np.diff(rows.key) != 0)[: len(rows)]
    firsts = np.flatnonzero(is_first)
    has_episode = np.isin(rows.key[firsts], told.episodes.key)
    without = firsts[~has_episode]
    reach = told.log.doubts.reach(np.full(len(without), told.log.cut), np.ones(len(without), bool))
    without, reach = without[reach >= 0], reach[reach >= 0]
    times = known_from_ms(told, rows.key[without], reach, told.lives[without])
    for row, from_ms in zip(without.tolist(), times.tolist(), strict=True):
        several = roots.get(rows.topic.at(row), ())
        life = _life_then(several, until_ms) if len(several) > 1 else int(told.lives[row])
        yield _unknown(told, row, life, from_ms if life == told.lives[row] else UNKNOWN_MS)
    yield from _in_other_lives(told, roots, firsts[has_episode])


def _in_other_lives(told: LogAsOf, roots: Roots, firsts: Longs) -> Iterator[ArchivedPosition]:
    rows, several = told.rows, [len(roots.get(topic, ())) > 1 for topic in told.rows.topic.texts]
    firsts = firsts[np.array(several, bool)[rows.topic.numbers[firsts]]]
    last = _last_until(told, firsts)
    has_later = np.ones(len(firsts), bool)
    is_before = told.log.doubts.reach(rows.offset[firsts], has_later) >= 0
    after = told.log.doubts.reach(np.full(len(firsts), told.log.cut), has_later)
    is_later = (after > rows.offset[last]) & ~rows.is_commit[last]
    chosen = np.flatnonzero(is_before | is_later)
    known = _lives_told(told) if len(chosen) else {}
    for number, row in zip(chosen.tolist(), firsts[chosen].tolist(), strict=True):
        these, told_lives = roots[rows.topic.at(row)], known[int(rows.key[row])]
        lives = {root.life for root in these if root.life < min(told_lives)} if is_before[number] else set()
        then = _life_then(these, told.log.rows.until_ms) if is_later[number] else None
        if then is not None and (then > max(told_lives) or then == AMBIGUOUS):
            lives.add(then)
        for life in sorted(lives - told_lives):
            yield _unknown(told, row, life, UNKNOWN_MS)


def _life_then(roots: Sequence[Root], until_ms: int) -> int:
    """Return the life of the topic that had the name at the requested time."""
    return roots[-1].life if until_ms == LAST_LONG else life_at(roots, until_ms, until_ms)


def _lives_told(told: LogAsOf) -> dict[int, set[int]]:
    """Return the lives with episodes of each position."""
    some, found = told.episodes, dict[int, set[int]]()
    for rows in (some.row, np.where(some.first == NO_ROW, some.row, some.first)):
        for key, life in zip(some.key.tolist(), told.life_of(rows).tolist(), strict=True):
            found.setdefault(key, set()).add(life)
    return found


def _last_until(told: LogAsOf, firsts: Longs) -> Longs:
    """Return the last row of each position that is not later than the time."""
    rows = told.rows
    earlier = np.flatnonzero(~rows.is_later)
    found: Longs = earlier[np.searchsorted(rows.key[earlier], rows.key[firsts], side="right") - 1]
    return found


def _unknown(told: LogAsOf, row: int, life: int, from_ms: int) -> ArchivedPosition:
    rows = told.rows
    (group,) = rows.texts(np.array([row]), kernels.GROUP_START, kernels.GROUP_LENGTH).texts
    partition = int(rows.rows.fields[kernels.PARTITION][rows.place[row]])
    return ArchivedPosition(group, rows.topic.at(row), life, partition, State.UNKNOWN, known_from_ms=from_ms)


_Place = tuple[str, str, int, int]  # group, topic, life, partition


def with_pending(told: LogAsOf, positions: Iterable[ArchivedPosition]) -> Iterator[ArchivedPosition]:
    """Yield the positions of a log, also positions with only pending commits. After a pending commit a position is ambiguous."""
    pending = _pending_rows(told)
    seen = set[_Place]()
    for one in positions:
        if not pending:
            yield one
            continue
        place = one.group, one.topic, one.life, one.partition
        seen.add(place)
        unsure = one.group, one.topic, AMBIGUOUS, one.partition
        yield _between(told, one, [*pending.get(place, ()), *pending.get(unsure, ())])
    for place, rows in pending.items():
        if place not in seen:
            yield _between(told, ArchivedPosition(*place, State.SET), rows)


def _pending_rows(told: LogAsOf) -> dict[_Place, list[int]]:
    rows = told.rows
    chosen = np.flatnonzero(rows.is_pending)
    groups = rows.texts(chosen, kernels.GROUP_START, kernels.GROUP_LENGTH)
    numbers = (rows.told(kernels.PARTITION)[chosen].tolist(), told.lives[chosen].tolist())
    found: dict[_Place, list[int]] = {}
    for at, (row, partition, life) in enumerate(zip(chosen.tolist(), *numbers, strict=True)):
        found.setdefault((groups.at(at), rows.topic.at(row), life, partition), []).append(row)
    return found


def _between(told: LogAsOf, one: ArchivedPosition, rows: Sequence[int]) -> ArchivedPosition:
    """Return a position with its other possible offset. The order of the log decides, so commits before the last known row are superseded."""
    has_stood = one.state in {State.SET, State.TOPIC_DELETED}
    behind = [row for row in rows if told.rows.offset[row] > (one.at_offset if has_stood else one.removed_at)]
    if not behind or one.state in {State.UNKNOWN, State.AMBIGUOUS}:
        is_stale = any(told.rows.offset[row] > one.at_offset for row in rows)  # removed at another offset
        return one._replace(is_stale=True) if is_stale and one.state is State.REMOVED else one
    stood = one if has_stood else one._replace(offset=-1, removed_ms=-1, cause=Cause.NONE)
    offsets, is_readable = told.rows.told(kernels.OFFSET)[behind], told.rows.told(kernels.IS_READABLE)[behind] == 1
    other = int(offsets.argmin()) if offsets.min() < stood.offset else len(behind) - 1
    return stood._replace(
        state=State.AMBIGUOUS,
        other_offset=int(offsets[other]) if is_readable.all() else -1,
        other_ms=int(told.rows.told(kernels.COMMIT_MS)[behind[other]]),
    )
