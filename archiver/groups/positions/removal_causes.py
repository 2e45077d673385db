"""Decides whether a position was removed with its topic, so that a restore of the topic offers it; and finds the cause to display.

A removal has no noted cause. The topic's deletion may be its cause if the archive has no later sign of that life of the topic.
Signs are commits of any group, removals of other positions more than a minute later, existing positions, and records. Brokers
remove all positions of a deleted topic within that minute. Only if a later topic has the name, a position may seem to exist
where the archive of its log ends too early. If the last or only group of a topic expires or is deleted, the log looks the same.
So an offered position is reported as "removed with its topic, or as the last one in it". A restore of the topic sets such a
group to its last position, which it would otherwise lose.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from archiver.codec.frame import Column, Longs
from archiver.codec.kernels import commits as kernels
from archiver.groups.log.archived_log import OffsetsLog
from archiver.groups.log.commit_log import Flags
from archiver.groups.log.lives import AMBIGUOUS, CLOCKS_DIFFER_MS, UNDER_WAY_MS, Roots
from archiver.groups.log.position_rows import NO_ROW, PositionRows
from archiver.groups.positions.archived_position import Cause
from archiver.groups.positions.row_lives import CommitValidity

_TOGETHER_MS: Final = 60_000
_KEPT_MS: Final = (
    7 * 86_400_000
)  # brokers keep positions of groups without members for so long (offsets.retention.minutes)
_LIFE_BITS: Final = 32


class Signs(NamedTuple):
    """The last signs of a life of a topic; NO_ROW: none."""

    commit_ms: int = NO_ROW
    removal_ms: int = NO_ROW
    stands_ms: int = NO_ROW  # the time of the archive's end, if a position exists there
    may_stand_ms: int = NO_ROW  # the same, if the position exists there or its removal is missing
    alive_ms: int = NO_ROW  # according to the archived records of the topic
    is_over: int = 0  # 1: a later topic had the name


TopicLife = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSigns:
    """The signs of one partition of the offsets topic."""

    topic_lives: Sequence[TopicLife]
    numbers: Longs  # the number of each row's topic and life
    first_offset: Longs  # the offset of the first row of each topic and life
    last_commit: Longs  # the offset of its last commit
    signs: Sequence[Signs]

    @classmethod
    def of(cls, log: OffsetsLog, rows: PositionRows, lives: Longs, standing: CommitValidity) -> "LogSigns":
        pairs, numbers = np.unique((rows.topic.numbers << _LIFE_BITS) + lives + (1 << 31), return_inverse=True)
        order = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[order], np.arange(len(pairs)))

        def latest(column: Longs, chosen: Flags) -> Longs:
            kept = np.where(chosen, column, NO_ROW)[order]
            return np.maximum.reduceat(kept, starts) if len(pairs) else kept

        end_ms = np.full(len(rows), NO_ROW if log.last_ms is None else log.last_ms)
        columns = (
            latest(rows.ms, rows.is_commit),
            latest(rows.ms, ~rows.is_commit),
            latest(end_ms, standing.is_open),
            latest(end_ms, standing.may_be_open),
        )
        topics, shifted = (part.tolist() for part in np.divmod(pairs, 1 << _LIFE_BITS))
        return cls(
            topic_lives=[
                (rows.topic.texts[topic], life - (1 << 31)) for topic, life in zip(topics, shifted, strict=True)
            ],
            numbers=numbers,
            first_offset=np.minimum.reduceat(rows.offset[order], starts) if len(pairs) else starts,
            last_commit=latest(rows.offset, rows.is_commit),
            signs=[Signs(*one) for one in zip(*(column.tolist() for column in columns), strict=True)],
        )


def signs_of_all(logs: Iterable[LogSigns], roots: Roots) -> dict[TopicLife, Signs]:
    found: dict[TopicLife, Signs] = {}
    for log in logs:
        for which, signs in zip(log.topic_lives, log.signs, strict=True):
            found[which] = Signs(*map(max, signs, found.get(which, Signs())))
    for (topic, life), signs in found.items():
        these = [root for root in roots.get(topic, ()) if root.life >= life >= 0]
        for root in these[:1]:
            alive_ms = NO_ROW if root.alive_ms is None else root.alive_ms
            found[topic, life] = signs._replace(alive_ms=alive_ms, is_over=int(len(these) > 1))
    return found


def removals_of(
    log: LogSigns, all_signs: Mapping[TopicLife, Signs], row: Longs, at: Longs, ms: Longs
) -> tuple[Flags, Flags]:
    """Judge removals at offsets and times (NO_ROW: none). `row`: one row of each position.

    Returns for each position whether it was removed with its topic, and whether that is unsure: later commits may belong to this
    life, or a position in it may still exist.
    """
    perhaps = [all_signs.get((topic, AMBIGUOUS), Signs()) for topic, _ in log.topic_lives]
    known = [all_signs[which] for which in log.topic_lives]
    of = {which: number for number, which in enumerate(log.topic_lives)}
    unsure = np.array([of.get((topic, AMBIGUOUS), NO_ROW) for topic, _ in log.topic_lives], np.int64)
    number = log.numbers[row]
    was_last = _was_last(known, log.last_commit, number, at, ms)
    last_unsure = np.append(log.last_commit, NO_ROW)[unsure]
    may_stand_ms, is_over = np.array([(one.may_stand_ms, one.is_over) for one in known], np.int64).reshape(-1, 2).T
    is_gone = _is_gone(may_stand_ms[number], is_over[number], ms)
    was_last_of_all = was_last & _was_last(perhaps, last_unsure, number, at, ms) & is_gone
    is_told = np.array([life != AMBIGUOUS for _, life in log.topic_lives], bool)[number]
    return is_told & was_last_of_all, is_told & was_last & ~was_last_of_all


def _was_last(signs: Sequence[Signs], last_commit: Longs, number: Longs, at: Longs, ms: Longs) -> Flags:
    """Return whether no sign of the topic follows a removal."""
    columns = np.array(list(signs), np.int64).reshape(-1, len(Signs._fields)).T
    commit_ms, removal_ms, stands_ms, _, alive_ms, is_over = columns[:, number]
    found: Flags = (
        (at != NO_ROW)
        & (ms >= 0)
        & (last_commit[number] < at)
        & (commit_ms <= ms + UNDER_WAY_MS)
        & (removal_ms <= ms + _TOGETHER_MS)
        & _is_gone(stands_ms, is_over, ms)
        & (alive_ms <= ms + CLOCKS_DIFFER_MS)
    )
    return found


def _is_gone(stands_ms: Longs, is_over: Longs, ms: Longs) -> Flags:
    """Return whether no position existed after a removal; if a later topic has the name, positions up to the removal do not count."""
    found: Flags = (stands_ms == NO_ROW) | ((is_over == 1) & (stands_ms <= ms))
    return found


def group_removals(log: OffsetsLog) -> dict[str, list[int]]:
    """Return the removal times of groups themselves, by name."""
    rows = log.rows
    kinds = rows.fields[kernels.KIND]
    is_removal = (rows.frame.column(Column.VALUE_LENGTH) < 0) & (kinds != kernels.POSITION) & (kinds != kernels.OTHER)
    found: dict[str, list[int]] = {}
    starts, lengths = rows.fields[kernels.GROUP_START], rows.fields[kernels.GROUP_LENGTH]
    for row in np.flatnonzero(is_removal).tolist():
        name = rows.frame.body[starts[row] : starts[row] + lengths[row]].tobytes().decode(errors="surrogateescape")
        found.setdefault(name, []).append(int(rows.frame.column(Column.TIMESTAMP)[row]))
    return found


def cause_of(removed_ms: int, committed_ms: int, group_removed_ms: Sequence[int], *, with_topic: bool) -> Cause:
    """Return the cause of a removal, if it is known."""
    if with_topic:
        return Cause.TOPIC_DELETED
    if committed_ms >= 0 and removed_ms - committed_ms >= _KEPT_MS:
        return Cause.EXPIRED
    if any(abs(at_ms - removed_ms) <= _TOGETHER_MS for at_ms in group_removed_ms):
        return Cause.GROUP_DELETED
    return Cause.UNKNOWN
