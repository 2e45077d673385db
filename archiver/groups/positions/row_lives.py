"""Finds the life of each row of a commit log: by the committed topic id, otherwise by the times when positions in the topic existed.

A position exists from a commit until the next row of its key, if no record can be missing between them. While positions of a
topic overlap in one partition of `__consumer_offsets`, the topic was not deleted: this is a span. Between two spans, before the
first one and after the last one, it may have been deleted any number of times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from archiver.codec.frame import Longs
from archiver.codec.selection import LAST_LONG
from archiver.groups.log.archived_log import OffsetsLog
from archiver.groups.log.commit_log import Flags
from archiver.groups.log.lives import AMBIGUOUS, NO_ROOT, NOT_ARCHIVED, PositionSpan, Root, Roots, lives_of
from archiver.groups.log.position_rows import NO_ROW, PositionRows

_BY_TIME: Final = -3  # no topic id decides


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitValidity:
    """The offset and the time up to which each commit was certainly valid, by the next row."""

    until_offset: Longs
    until_ms: Longs
    is_open: Flags  # still valid at the end of the archive
    may_be_open: Flags  # the same, or its removal is missing


def standing_of(log: OffsetsLog, rows: PositionRows) -> CommitValidity:
    has_next = rows.following != NO_ROW
    until = np.where(has_next, rows.offset[rows.following], log.next) if len(rows) else np.empty(0, np.int64)
    is_sure = log.missing_from(rows.offset, until, has_next) <= rows.offset
    end_ms = NO_ROW if log.last_ms is None else log.last_ms
    next_ms = np.where(has_next, rows.ms[rows.following], end_ms) if len(rows) else until
    return CommitValidity(
        until_offset=np.where(is_sure, np.where(has_next, until, LAST_LONG), rows.offset),
        until_ms=np.where(is_sure, next_ms, rows.ms),
        is_open=rows.is_commit & ~has_next & is_sure,
        may_be_open=rows.is_commit & ~has_next,
    )


def lives_of_rows(rows: PositionRows, standing: CommitValidity, roots: Roots, *, is_filled_in: bool = False) -> Longs:
    """Return the life of each row, NOT_ARCHIVED, or AMBIGUOUS. A removal has the life of the removed commit.

    If a fold replaces missing objects, superseded commits are missing: then only topic ids decide.
    """
    lives = _by_topic_id(rows, roots)
    if is_filled_in:
        lives[lives == _BY_TIME] = AMBIGUOUS
    unsure = np.unique(rows.topic.numbers[lives == _BY_TIME])
    if len(unsure):
        order = np.argsort(rows.topic.numbers, kind="stable")
        bounds = np.searchsorted(rows.topic.numbers[order], [unsure, unsure + 1])
        for topic, start, end in zip(unsure.tolist(), *bounds.tolist(), strict=True):
            mine = order[start:end]
            lives[mine] = _by_time(rows, standing, roots[rows.topic.texts[topic]], mine, lives[mine])
    removed = np.flatnonzero(rows.is_commit & (rows.following != NO_ROW))
    removed = removed[~rows.is_commit[rows.following[removed]]]
    lives[rows.following[removed]] = lives[removed]
    return lives


def _by_topic_id(rows: PositionRows, roots: Roots) -> Longs:
    count = len(rows.topic_id.texts)
    pairs, inverse = np.unique(rows.topic.numbers * count + rows.topic_id.numbers, return_inverse=True)
    verdicts = [
        _verdict(roots.get(rows.topic.texts[topic], ()), rows.topic_id.texts[topic_id])
        for topic, topic_id in zip(*(part.tolist() for part in np.divmod(pairs, max(1, count))), strict=True)
    ]
    found: Longs = np.array(verdicts, np.int64)[inverse]
    return found


def _verdict(roots: Sequence[Root], topic_id: str) -> int:
    named = [root.life for root in roots if root.topic_id == topic_id]
    if topic_id and named:
        return named[-1]
    if not roots or (topic_id and all(root.topic_id for root in roots)):
        return NOT_ARCHIVED
    return roots[0].life if len(roots) == 1 else _BY_TIME


def _by_time(
    rows: PositionRows, standing: CommitValidity, roots: Sequence[Root], mine: Longs, verdicts: Longs
) -> Longs:
    """Return the lives of the rows of one topic."""
    commits = mine[rows.is_commit[mine]]
    commits = commits[np.argsort(rows.offset[commits], kind="stable")]
    told = dict(zip(mine.tolist(), verdicts.tolist(), strict=True))
    starts, ends = rows.offset[commits], np.maximum.accumulate(standing.until_offset[commits])
    begins = np.append(True, starts[1:] > ends[:-1]) if len(starts) else np.empty(0, bool)
    groups = np.split(commits, np.flatnonzero(begins)[1:]) if len(starts) else []
    lives = lives_of(roots, list(_stretches(rows, standing, roots, groups, told)))
    of_commit = np.repeat(lives, [len(group) for group in groups]).astype(np.int64)
    # A removal without a commit belongs to the span around it.
    before = np.searchsorted(starts, rows.offset[mine], side="right") - 1
    found = np.append(of_commit, AMBIGUOUS)[before]
    found[(before >= 0) & (np.append(ends, 0)[before] < rows.offset[mine])] = AMBIGUOUS
    by_id = {root.life for root in roots if root.topic_id}
    has_id = np.array([bool(one) for one in rows.topic_id.texts], bool)[rows.topic_id.numbers[mine]]
    found[has_id & np.isin(found, list(by_id))] = AMBIGUOUS  # its topic id names another topic
    return np.where(verdicts == _BY_TIME, found, verdicts)


def _stretches(
    rows: PositionRows, standing: CommitValidity, roots: Sequence[Root], groups: Sequence[Longs], told: dict[int, int]
) -> Iterator[PositionSpan]:
    numbers = {root.life: number for number, root in enumerate(roots)}
    for group in groups:
        named = {told[row] for row in group.tolist()} - {_BY_TIME}
        last = group[np.argmax(standing.until_offset[group])]
        yield PositionSpan(
            _time(rows.ms[group[0]]),
            _time(standing.until_ms[last]),
            (numbers.get(named.pop(), NO_ROOT) if len(named) == 1 else NO_ROOT) if named else None,
        )


def _time(at_ms: np.int64) -> int | None:
    return None if at_ms < 0 else int(at_ms)
