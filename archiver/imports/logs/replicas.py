"""Chooses a replica of a partition, and fills its unreadable offsets from the others where they prove to be the same log."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from archiver.codec.kernels import batches as columns
from archiver.imports.logs.log_directory import Epoch, PartitionFolder
from archiver.imports.logs.log_reader import LogReader
from archiver.imports.logs.log_scan import DamagedBytes, Fill, Piece, ScannedLog, rescan


class _Place(NamedTuple):
    """Where a batch is: in which piece, at which bytes of its file, and what they are."""

    piece: int
    start: int
    end: int
    content: bytes


def choose_replica(logs: Sequence[ScannedLog]) -> ScannedLog:
    """Return the replica of the highest leader epoch; of several the longest: its records were acknowledged last.

    Others fill what is unreadable in it.
    """

    def worth(log: ScannedLog) -> tuple[int, int, int, int]:
        damaged = sum(one.until_offset - one.from_offset for one in log.damages)
        return log.leader_epoch, log.next, -damaged, -log.first

    best = max(logs, key=worth)
    return _filled(best, [log for log in logs if log is not best])


def _filled(log: ScannedLog, others: Sequence[ScannedLog]) -> ScannedLog:
    spans: list[Piece | DamagedBytes] = []
    fills: list[Fill] = []
    left = list(log.damages)
    for index, piece in enumerate(log.pieces):
        begin = log.pieces[index - 1].next if index else log.first
        inside = [damage for damage in left if damage.until_offset <= piece.first]
        left = left[len(inside) :]
        if inside or log.is_missing(begin, piece.first):
            found = ((other, _filling(log, other, begin, piece.first)) for other in others)
            other, filling = next(((other, some) for other, some in found if some), (None, ()))
            spans += filling if other is not None else inside
            fills += [Fill(begin, piece.first, other.folder)] if other is not None else []
        spans.append(piece)
    if not fills:
        return log
    whole = rescan(log.folder, [*spans, *left])
    whole.fills, whole.cut_bytes = fills, log.cut_bytes
    return whole


def _filling(log: ScannedLog, other: ScannedLog, begin: int, end: int) -> Sequence[Piece]:
    """Return the batches of another replica between two offsets; none unless epochs and both neighbouring batches are the same.

    Messages of old formats have no epochs: nothing shows that they are the same.
    """
    if begin <= max(log.old_next, other.old_next, log.first) or begin == end:
        return ()
    epochs = _epochs(log.folder, begin, end)
    if not epochs or epochs != _epochs(other.folder, begin, end):
        return ()
    first, last = _place_of(other, begin - 1), _place_of(other, end)
    if first is None or last is None or not _is_same(log, begin - 1, first) or not _is_same(log, end, last):
        return ()
    pieces = other.pieces[first.piece : last.piece + 1]
    is_whole = not any(other.is_missing(one.next, following.first) for one, following in pairwise(pieces))
    if not is_whole or any(damage.until_offset >= begin and damage.from_offset <= end for damage in other.damages):
        return ()
    pieces[0] = pieces[0]._replace(start=first.end)
    pieces[-1] = pieces[-1]._replace(end=last.start)
    return [piece for piece in pieces if piece.start < piece.end]


def _epochs(folder: PartitionFolder, begin: int, end: int) -> Sequence[Epoch]:
    """Return the leader epochs of two offsets and of those between them. An earlier epoch's start does not count: retention moves it."""
    known = [epoch for epoch in folder.epochs if epoch.start <= end]
    before = [epoch for epoch in known if epoch.start < begin]
    return [epoch._replace(start=0) for epoch in before[-1:]] + known[len(before) :] if before else ()


def _is_same(log: ScannedLog, offset: int, place: _Place) -> bool:
    mine = _place_of(log, offset)
    return mine is not None and mine.content == place.content


def _place_of(log: ScannedLog, offset: int) -> _Place | None:
    """Find the batch with an offset."""
    return next(_places(log, offset), None)


def _places(log: ScannedLog, offset: int) -> Iterator[_Place]:
    for number, piece in enumerate(log.pieces):
        if not piece.first <= offset < piece.next:
            continue
        with LogReader(piece.file.path) as source:
            for position, rows, content in source.batches(piece.start, piece.end):
                index = int(np.searchsorted(rows[columns.LAST_OFFSET], offset))
                if index < rows.shape[1] and rows[columns.BASE_OFFSET, index] <= offset:
                    start, size = rows[[columns.START, columns.SIZE], index].tolist()
                    end = start + size
                    yield _Place(number, position + start, position + end, content[start:end].tobytes())
