"""Prepares one partition of `__consumer_offsets` as of a time: its rows, the lives of their topics, and the episodes up to that time."""

from dataclasses import dataclass

import numpy as np

from archiver.codec.frame import Column, Longs
from archiver.codec.kernels import commits as kernels
from archiver.groups.log.archived_log import OffsetsLog
from archiver.groups.log.lives import AMBIGUOUS, CLOCKS_DIFFER_MS, Roots
from archiver.groups.log.position_rows import NO_ROW, PositionRows
from archiver.groups.positions.archived_position import UNKNOWN_MS
from archiver.groups.positions.episodes import Episodes, episodes_of
from archiver.groups.positions.removal_causes import LogSigns
from archiver.groups.positions.row_lives import lives_of_rows, standing_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAsOf:
    """The contents of a partition."""

    log: OffsetsLog
    rows: PositionRows
    lives: Longs  # of each row
    signs: LogSigns
    episodes: Episodes

    @classmethod
    def of(cls, log: OffsetsLog, roots: Roots) -> "LogAsOf":
        rows = PositionRows.of(log.rows)
        standing = standing_of(log, rows)
        lives = lives_of_rows(rows, standing, roots, is_filled_in=log.is_filled_in)
        signs = LogSigns.of(log, rows, lives, standing)
        return cls(log=log, rows=rows, lives=lives, signs=signs, episodes=episodes_of(rows))

    def life_of(self, rows: Longs) -> Longs:
        found: Longs = np.append(self.lives, NO_ROW)[rows]
        return found


def known_from_ms(told: LogAsOf, keys: Longs, reach: Longs, lives: Longs) -> Longs:
    """Return the time of the first commit of each key that is later than the requested time and behind an offset.

    UNKNOWN_MS: none, or in another life. A removal is no evidence: the topic's deletion may be its cause.
    """
    rows, count = told.rows, len(told.log.rows) + 1
    offsets = told.log.rows.frame.column(Column.OFFSET)
    # As of the time of a commit, records up to the first certainly later one may be missing.
    times = np.maximum.accumulate(told.log.rows.frame.column(Column.TIMESTAMP))
    surely_later = np.maximum(np.searchsorted(times, rows.ms + CLOCKS_DIFFER_MS, side="right"), rows.place + 1)
    until = np.append(offsets, max(told.log.next, told.log.cut))[surely_later]
    is_clear = told.log.doubts.reach(until, np.ones(len(rows), bool)) <= rows.offset
    later = np.flatnonzero(
        rows.is_later & ~rows.is_late & rows.is_commit & is_clear & (rows.told(kernels.IS_READABLE) == 1)
    )
    if not len(later):
        return np.full(len(keys), UNKNOWN_MS)
    behind = np.searchsorted(offsets, reach, side="right")
    at = np.searchsorted(rows.key[later] * count + rows.place[later], keys * count + behind)
    row = later[np.minimum(at, len(later) - 1)]
    is_found = (at < len(later)) & (rows.key[row] == keys) & (told.lives[row] == lives) & (lives != AMBIGUOUS)
    return np.where(is_found, rows.ms[row], UNKNOWN_MS)
