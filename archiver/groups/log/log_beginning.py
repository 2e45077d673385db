"""Reads the beginning of a partition of `__consumer_offsets` as of a time from folds, in place of objects.

1. The newest fold without a record later than the time replaces the whole log below its end.
2. If the objects above it begin later, another fold fills in: it lacks the records superseded below its own end.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.codec.frame import Column, Frame
from archiver.codec.selection import LAST_LONG
from archiver.errors import NotWholeError
from archiver.groups.log.commit_log import CommitLog
from archiver.groups.log.doubts import Below, Doubt
from archiver.groups.log.folds import Fold, Folds, Reach, fold_frames, reaches_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBeginning:
    """The records from folds; objects are read from `next` on. `log` already has all records of the folds."""

    log: CommitLog
    next: int = 0
    doubts: tuple[Doubt, ...] = ()
    others: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    whole: Fold | None = None  # the fold with all records of its time
    is_filled_in: bool = False  # by a fold that lacks superseded commits
    refused: frozenset[str] = frozenset()  # keys of folds that are damaged

    @property
    def below(self) -> Below | None:
        """The record of the `whole` fold about the log below its end."""
        return None if self.whole is None else self.whole.below


class _Piece(NamedTuple):
    """Wanted records of a fold. `is_whole`: no record of the requested time is missing."""

    fold: Fold
    first: int
    until: int
    is_whole: bool


class _DamagedFoldError(NotWholeError):
    """The error of an unreadable fold, with its key."""

    def __init__(self, key: str, error: NotWholeError) -> None:
        super().__init__(str(error))
        self.key = key


def begin_log(
    folds: Folds | None, topic: ArchivedTopic, number: int, until_ms: int = LAST_LONG, *, fills_in: bool = True
) -> LogBeginning:
    """Read the records of a partition as of a time from folds. A damaged fold is reported, and another one is used, or none."""
    if folds is None:
        return LogBeginning(log=CommitLog(until_ms))
    reaches, refused = reaches_of(topic, number), set[str]()
    if beyond := folds.beyond(reaches, number):
        folds.report_problem(
            f"{topic.topic}-{number}: the fold {beyond.key} ends at offset {beyond.facts.next}, and the archive before it: the"
            " last objects are gone, or the fold is none of ours; it is not used"
        )
    while True:
        try:
            pieces = _choose(folds, topic, reaches, number, until_ms, refused, fills_in=fills_in)
            return replace(_read(folds, pieces, until_ms), refused=frozenset(refused))
        except _DamagedFoldError as error:
            folds.report_problem(str(error))
            refused.add(error.key)


def _choose(
    folds: Folds,
    topic: ArchivedTopic,
    reaches: list[Reach],
    number: int,
    until_ms: int,
    refused: Collection[str],
    *,
    fills_in: bool,
) -> list[_Piece]:
    whole = folds.newest(reaches, number, until_ms=until_ms, refused=refused)
    pieces = [] if whole is None else [_Piece(whole, 0, whole.facts.next, is_whole=True)]
    start = 0 if whole is None else whole.facts.next
    readable = topic.partitions.get(number, EMPTY_PARTITION).from_offset(start).readable
    if not fills_in or not readable or readable[0].from_offset == start:
        return pieces
    begin = readable[0].from_offset
    other = folds.smallest(reaches, number, begin, refused) or folds.newest(
        reaches, number, above=start, refused=refused
    )
    if other is not None:
        pieces.append(_Piece(other, start, min(begin, other.facts.next), is_whole=False))
    return pieces


def _read(folds: Folds, pieces: list[_Piece], until_ms: int) -> LogBeginning:
    found = LogBeginning(log=CommitLog(until_ms))
    for piece in pieces:
        facts = piece.fold.facts
        try:
            for frame in fold_frames(folds.archive, piece.fold):
                rows = rows_within(frame, piece.first, piece.until)
                # Records that fill in may be later than the time: the fold notes only one time from which all of them count.
                is_told = piece.is_whole or facts.settled_ms is None
                found.log.add(rows, None if is_told else np.full(len(rows), facts.counts_ms))
        except NotWholeError as error:
            raise _DamagedFoldError(piece.fold.key, error) from error
        found = replace(
            found,
            next=piece.until,
            doubts=(*found.doubts, *_doubts_of(piece)),
            others=found.others + (facts.others if piece.is_whole else 0),
            first_ms=facts.first_ms if found.first_ms is None else found.first_ms,
            last_ms=facts.last_ms if piece.is_whole else found.last_ms,
            whole=piece.fold if piece.is_whole else found.whole,
            is_filled_in=not piece.is_whole,
        )
    return found


def _doubts_of(piece: _Piece) -> Iterator[Doubt]:
    for first, last, needs_later in piece.fold.facts.doubts:
        if first < piece.until and last >= piece.first:
            yield Doubt(max(first, piece.first), min(last, piece.until - 1), needs_later)
    if not piece.is_whole:
        yield Doubt(piece.first, piece.until - 1, needs_later=True)


def rows_within(frame: Frame, first: int, until: int) -> Frame:
    """Return the records between two offsets, `until` not included."""
    start, stop = np.searchsorted(frame.column(Column.OFFSET), [first, until])
    return frame if stop - start == len(frame) else frame.rows(int(start), int(stop))
