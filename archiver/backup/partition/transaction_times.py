"""Measures how long transactional commits in `__consumer_offsets` waited for their markers. A commit counts from its marker on.

Used by archiver.backup.partition.partition_writer, which notes it in the facts of each segment (docs/format.md §4, `transactions`).
"""

from bisect import insort
from collections.abc import Callable
from typing import Final, NamedTuple

from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.segments.segment_facts import MOST_TRANSACTIONS, TransactionRange
from archiver.codec.frame import Longs
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC

_CLOCKS_DIFFER_MS: Final = 60_000  # this machine's and those of brokers


class _Batch(NamedTuple):
    """Records of a transaction without its marker so far."""

    first: int
    last: int
    at_ms: int


class TransactionTimes:
    """Collects transactional batches and their markers, in log order. Ignores other topics."""

    def __init__(self, topic: str, clock_ms: Callable[[], int] = machine_now_ms) -> None:
        self._is_wanted = topic == OFFSETS_TOPIC
        self._clock_ms = clock_ms
        self._open: dict[int, list[_Batch]] = {}  # by producer id
        self._ranges: list[TransactionRange] = []
        self._next = 0  # batches below were noted: after a put, the rest of a fetch is decoded again

    def note(self, batches: Longs) -> None:
        """Take the transactional batches of a fetch (DecodedBatches.transactional)."""
        for first, last, producer_id, at_ms, is_marker in batches.T.tolist() if self._is_wanted else ():
            if first < self._next:
                continue
            self._next = last + 1
            if not is_marker:
                self._open.setdefault(producer_id, []).append(_Batch(first, last, at_ms))
                continue
            for batch in self._open.pop(producer_id, ()):
                self._add(batch, at_ms)

    def take(self, base: int, end: int) -> tuple[TransactionRange, ...]:
        """Return the ranges of a segment, and forget them. An unread marker is from before now: brokers serve no open transaction."""
        now_ms = self._clock_ms() + _CLOCKS_DIFFER_MS
        for producer_id, batches in list(self._open.items()):
            self._open[producer_id] = [one for one in batches if one.last >= end]
            for batch in batches:
                if batch.first < end:
                    self._add(batch, now_ms)
        found = [one for one in self._ranges if one.first_offset < end and one.last_offset >= base]
        self._ranges = [one for one in self._ranges if one.last_offset >= end]
        return tuple(
            one._replace(first_offset=max(one.first_offset, base), last_offset=min(one.last_offset, end - 1))
            for one in found
        )

    def _add(self, batch: _Batch, marker_ms: int) -> None:
        some = self._ranges
        insort(some, TransactionRange(batch.first, batch.last, max(0, marker_ms - batch.at_ms)))
        if len(some) > MOST_TRANSACTIONS:
            at = min(
                range(len(some) - 1), key=lambda at: _cost(some[at], some[at + 1])
            )  # neighbours alone: it is a hot path
            some[at : at + 2] = [_joined(some[at], some[at + 1])]


def _joined(one: TransactionRange, other: TransactionRange) -> TransactionRange:
    return TransactionRange(
        min(one.first_offset, other.first_offset),
        max(one.last_offset, other.last_offset),
        max(one.within_ms, other.within_ms),
    )


def _cost(one: TransactionRange, other: TransactionRange) -> int:
    """Return the added time of doubt if two ranges are joined: fast commits join, slow ones stay alone."""
    return _weight(_joined(one, other)) - _weight(one) - _weight(other)


def _weight(one: TransactionRange) -> int:
    return (one.last_offset - one.first_offset + 1) * (one.within_ms + 1)
