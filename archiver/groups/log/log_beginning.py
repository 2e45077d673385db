"""Reads the beginning of a partition of `__consumer_offsets` as of a time from folds, in place of objects.

1. The newest fold without a record later than the time replaces the whole log below its end.
2. If the objects above it begin later, another fold fills in: it lacks the records superseded below its own end.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.codec.frame import Column, Frame
from archiver.codec.selection import LAST_LONG
from archiver.errors import NotWholeError
from archiver.groups.log.commit_log import CommitLog
from archiver.groups.log.doubts import Below, Doubt, doubts_of
from archiver.groups.log.folds import Fold, Folds, Reach, fold_frames, reaches_of

_DELETE_RETENTION_MS: Final = 86_400_000  # Kafka's default, where the topic has no own setting


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

    @property
    def below(self) -> Below | None:
        """The record of the `whole` fold about the log below its end."""
        return None if self.whole is None else self.whole.below

    def all_doubts(self, topic: ArchivedTopic, number: int) -> list[Doubt]:
        """List the doubts of the whole log: of the folds below `next`, and of the objects above. The age of objects below counts."""
        whole = topic.partitions.get(number, EMPTY_PARTITION)
        found = doubts_of(whole, delete_retention_ms(topic), first_seen_ms(topic), self.below)
        above = [one._replace(first=max(one.first, self.next)) for one in found if one.last >= self.next]
        return [*self.doubts, *above]


class _Piece(NamedTuple):
    """Wanted records of a fold. `is_whole`: no record of the requested time is missing."""

    fold: Fold
    first: int
    until: int
    is_whole: bool


def begin_log(
    folds: Folds, topic: ArchivedTopic, number: int, until_ms: int = LAST_LONG, *, fills_in: bool = True
) -> LogBeginning:
    """Read the records of a partition as of a time from folds. A damaged fold is reported, and another one is used, or none."""
    reaches = reaches_of(topic, number)
    if beyond := folds.beyond(reaches, number):
        folds.report_problem(
            f"{topic.topic}-{number}: the fold {beyond.key} ends at offset {beyond.facts.next}, and the archive before it: the"
            " last objects are gone, or the fold is none of ours; it is not used"
        )
    found: LogBeginning | None = None
    while found is None:
        found = _read(folds, _choose(folds, topic, reaches, number, until_ms, fills_in=fills_in), until_ms)
    return found


def _choose(
    folds: Folds, topic: ArchivedTopic, reaches: list[Reach], number: int, until_ms: int, *, fills_in: bool
) -> list[_Piece]:
    whole = folds.newest(reaches, number, until_ms=until_ms)
    pieces = [] if whole is None else [_Piece(whole, 0, whole.facts.next, is_whole=True)]
    start = 0 if whole is None else whole.facts.next
    readable = topic.partitions.get(number, EMPTY_PARTITION).from_offset(start).readable
    if not fills_in or not readable or readable[0].from_offset == start:
        return pieces
    begin = readable[0].from_offset
    other = folds.smallest(reaches, number, begin) or folds.newest(reaches, number, above=start)
    if other is not None:
        pieces.append(_Piece(other, start, min(begin, other.facts.next), is_whole=False))
    return pieces


def _read(folds: Folds, pieces: list[_Piece], until_ms: int) -> LogBeginning | None:
    """Read the records; None: a fold is damaged, and is now left out."""
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
            folds.drop(piece.fold, error)
            return None
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


def delete_retention_ms(topic: ArchivedTopic) -> int:
    configs: Mapping[str, str] = {} if topic.fact is None else topic.fact.configs
    told = configs.get("delete.retention.ms", "")
    return int(told) if told.isdecimal() else _DELETE_RETENTION_MS


def first_seen_ms(topic: ArchivedTopic) -> int | None:
    """Return when a backup first saw this topic, and so had read nothing of it before. None: not noted."""
    if topic.fact is None or topic.life >= len(topic.fact.lives):
        return None
    return topic.fact.lives[topic.fact.root(topic.life)].seen_ms
