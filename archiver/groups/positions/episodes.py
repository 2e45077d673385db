"""Divides the log of each position into episodes: from its first commit until its removal, with the last commit as its value.

A position that was removed and committed again has several episodes. A removal without an earlier commit in the log is also
an episode: its committed offset is unknown.
"""

from dataclasses import dataclass

import numpy as np

from archiver.codec.frame import Longs
from archiver.codec.kernels import commits as kernels
from archiver.groups.log.commit_log import Flags
from archiver.groups.log.position_rows import NO_ROW, PositionRows, SharedTexts, is_utf8


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """The episodes of one partition of `__consumer_offsets`, in the order of the log: columns, one entry per episode.

    Without a commit, `first`, `at_offset` and the committed values are NO_ROW.
    """

    row: Longs  # the row of the last commit; without one, of the removal. Rows are those of PositionRows
    first: Longs  # the row of the first commit that the log still has
    key: Longs  # the same number for all episodes of a position
    group: SharedTexts
    topic: SharedTexts
    partition: Longs
    offset: Longs  # the committed offset
    leader_epoch: Longs
    metadata: SharedTexts
    commit_ms: Longs
    at_offset: Longs  # the offset of the record that committed it
    at_ms: Longs
    removed_at: Longs  # the offset of the record that removed it; NO_ROW: not removed
    removed_ms: Longs
    is_readable: Flags  # the committed values are known

    def __len__(self) -> int:
        return len(self.key)


def episodes_of(rows: PositionRows, *, later: bool = False) -> Episodes:
    """Return the episodes up to the requested time, or the episodes after it."""
    last, first, removal = _bounds(rows, np.flatnonzero(rows.is_later == later))
    has_commit = last != NO_ROW
    row = np.where(has_commit, last, removal)
    # A removal has none. Kafka neither writes nor accepts text that is not UTF-8.
    metadata = rows.texts(row, kernels.METADATA_START, kernels.METADATA_LENGTH)
    is_text = np.array([is_utf8(text) for text in metadata.texts], bool)[metadata.numbers]

    def told(field: int) -> Longs:
        return np.where(has_commit, rows.told(field)[row], NO_ROW)

    return Episodes(
        row=row,
        first=first,
        key=rows.key[row],
        group=rows.texts(row, kernels.GROUP_START, kernels.GROUP_LENGTH),
        topic=rows.texts(row, kernels.TOPIC_START, kernels.TOPIC_LENGTH),
        partition=rows.told(kernels.PARTITION)[row],
        offset=told(kernels.OFFSET),
        leader_epoch=told(kernels.LEADER_EPOCH),
        metadata=metadata,
        commit_ms=told(kernels.COMMIT_MS),
        at_offset=_at(rows.offset, last),
        at_ms=_at(rows.ms, last),
        removed_at=_at(rows.offset, removal),
        removed_ms=_at(rows.ms, removal),
        is_readable=~has_commit | (is_text & (rows.told(kernels.IS_READABLE)[row] == 1)),
    )


def _bounds(rows: PositionRows, chosen: Longs) -> tuple[Longs, Longs, Longs]:
    """Return for each episode the rows of its last and first commit, and of its removal."""
    count, is_commit = len(chosen), rows.is_commit[chosen]
    follows = np.zeros(count + 1, bool)  # whether a row has the same position as the previous row
    follows[1:-1] = rows.key[chosen][1:] == rows.key[chosen][:-1]
    before_is_commit = follows[:-1] & np.append(False, is_commit[:-1])[:count]
    next_is_commit = follows[1:] & np.append(is_commit[1:], False)[:count]
    begins = np.maximum.accumulate(np.where(is_commit & ~before_is_commit, np.arange(count), 0))
    told = np.flatnonzero((is_commit & ~next_is_commit) | (~is_commit & ~follows[:-1]))
    has_commit, padded = is_commit[told], np.append(chosen, NO_ROW)
    is_removed = has_commit & follows[1:][told]
    last = np.where(has_commit, chosen[told], NO_ROW)
    first = np.where(has_commit, chosen[begins[told]], NO_ROW)
    removal = np.where(has_commit, np.where(is_removed, padded[told + 1], NO_ROW), chosen[told])
    order = np.argsort(rows.place[np.where(has_commit, last, removal)], kind="stable")
    return last[order], first[order], removal[order]


def _at(column: Longs, rows: Longs) -> Longs:
    """Return a column's values at some rows; NO_ROW without a row."""
    found: Longs = np.append(column, NO_ROW)[rows]
    return found
