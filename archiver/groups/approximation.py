"""Where groups go on in a partition into which several sources were dealt: at the lowest record that they had not read of any source.

A source's records keep their order there, between those of the others. So what a group had read of one source is a number of
records, and batch headers tell at which offset that many end. Behind the lowest of these offsets lie records that the group had
read already: it reads them again, and misses none.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from archiver.codec.frame import Longs


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtLog:
    """Which source each batch of a partition is of. Batches follow each other without a gap, and have a record for each offset."""

    start: int  # of the first batch; without batches, the end
    end: int  # behind the last record that was dealt there
    ends: Longs  # the offset behind each batch
    sources: Longs  # of each batch, by its place among the sources

    def counts(self, sources: int) -> Longs:
        """Return how many records the log has of each source."""
        sizes = np.diff(self.ends, prepend=self.start)
        found = np.zeros(sources, np.int64)
        np.add.at(found, self.sources, sizes)
        return found


class DealtPosition(NamedTuple):
    """Where a group goes on in a partition into which several sources were dealt."""

    offset: int
    read_again: int  # records from there on that the group had read
    deleted: int  # records that the group had not read, and that brokers have deleted


@dataclass(frozen=True, slots=True)
class Approximation:
    """Where each group goes on in one partition, as columns."""

    offsets: Longs
    read_again: Longs
    deleted: Longs

    def position(self, group: int) -> DealtPosition:
        """Return the position of the group at this place."""
        return DealtPosition(*(int(column[group]) for column in (self.offsets, self.read_again, self.deleted)))


def approximate(log: DealtLog, log_start: int, dealt: Longs, read: Longs) -> Approximation:
    """Find where each group goes on.

    `dealt`: how many records each source has dealt to this partition; what the log lacks of them lay before its start.
    `read[group, source]`: how many of these the group had read, the first ones.
    """
    shares = _shares(log, dealt)
    groups = len(read)
    columns = [(share, read[:, place]) for place, share in enumerate(shares) if share.records]
    if any((numbers < 0).any() or (numbers > share.records).any() for share, numbers in columns):
        raise ValueError("a group cannot have read more of a source than was dealt")
    offsets = np.full(groups, log.end, np.int64)
    deleted, read_again = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    for share, numbers in columns:
        gone = share.before(np.array([log_start]))[0]
        offsets = np.minimum(offsets, share.offsets_of(np.maximum(numbers, gone)))
        deleted += np.maximum(gone - numbers, 0)
    offsets = np.maximum(offsets, log_start)
    for share, numbers in columns:
        read_again += np.maximum(numbers - share.before(offsets), 0)
    return Approximation(offsets, read_again, deleted)


class _Share(NamedTuple):
    """The records of one source in a log, numbered from 0 in the order in which they were dealt there."""

    bases: Longs  # of its batches
    sizes: Longs
    firsts: Longs  # the number of each batch's first record
    records: int  # those that are gone included
    end: int  # of the log

    def offsets_of(self, numbers: Longs) -> Longs:
        """Return where these records lie; the end of the log for a number behind the last one."""
        if not len(self.bases):
            return np.full(len(numbers), self.end, np.int64)
        places = np.searchsorted(self.firsts, numbers, side="right") - 1
        found = self.bases[places] + numbers - self.firsts[places]
        return np.where(numbers < self.records, found, self.end)

    def before(self, offsets: Longs) -> Longs:
        """Return how many records lie below these offsets."""
        if not len(self.bases):
            return np.full(len(offsets), self.records, np.int64)
        places = np.maximum(np.searchsorted(self.bases, offsets, side="right") - 1, 0)
        within = np.clip(offsets - self.bases[places], 0, self.sizes[places])
        found: Longs = self.firsts[places] + within
        return found


def _shares(log: DealtLog, dealt: Longs) -> list[_Share]:
    sizes = np.diff(log.ends, prepend=log.start)
    order = np.argsort(log.sources, kind="stable")
    edges = np.searchsorted(log.sources[order], np.arange(len(dealt) + 1))
    return [
        _share(order[first:after], log, sizes, records)
        for first, after, records in zip(edges, edges[1:], dealt.tolist(), strict=False)
    ]


def _share(places: Longs, log: DealtLog, all_sizes: Longs, records: int) -> _Share:
    sizes = all_sizes[places]
    bases, lasts = log.ends[places] - sizes, np.cumsum(sizes)
    found = int(lasts[-1]) if len(lasts) else 0
    if found > records:
        raise ValueError("a log cannot have more of a source than was dealt")
    return _Share(bases, sizes, lasts - sizes + records - found, records, log.end)
