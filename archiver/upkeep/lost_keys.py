"""Finds deletions that a copy of a compacted topic missed: its keys that Kafka no longer has. Used by the comparison."""

from typing import Final, NamedTuple

import numpy as np

from archiver.codec.frame import NULL_LENGTH, Column, Frame, Longs
from archiver.codec.kernels.rows import hash_keys

_NONE: Final = np.empty(0, np.int64)
_LEAST_MERGED: Final = 1_000_000  # keys that are collected before they are merged


class LostKeys(NamedTuple):
    """How many keys Kafka no longer has, and the lowest offset of their last values in the copy."""

    keys: int
    first_offset: int


class KeyComparison:
    """Takes Kafka's records, and those that only the copy has, in order. A key is kept as its hash.

    Records that Kafka no longer has were compacted away: for a later record of the key, or a tombstone, which the copy has, too,
    unless it missed that.
    """

    def __init__(self) -> None:
        self._there = _NONE  # hashes of the keys that Kafka has
        self._new: list[Longs] = []
        self._lost = np.empty(
            (2, 0), np.int64
        )  # hash and offset of the last record of each key; -1 - offset: a tombstone
        self._more: list[Longs] = []

    def take(self, frame: Frame) -> None:
        """Take records that Kafka has."""
        self._new.append(_hashes(frame)[frame.column(Column.KEY_LENGTH) != NULL_LENGTH])
        if _size(self._new) >= max(_LEAST_MERGED, len(self._there)):
            self._merge()

    def take_absent(self, frame: Frame) -> None:
        """Take records of the copy that Kafka does not have."""
        offsets, hashes = frame.column(Column.OFFSET), _hashes(frame)
        is_tombstone = frame.column(Column.VALUE_LENGTH) == NULL_LENGTH
        told = np.stack([hashes, np.where(is_tombstone, -1 - offsets, offsets)])
        self._more.append(told[:, frame.column(Column.KEY_LENGTH) != NULL_LENGTH])
        if sum(one.shape[1] for one in self._more) >= max(_LEAST_MERGED, self._lost.shape[1]):
            self._merge()

    def lost(self) -> LostKeys | None:
        """Return the keys that Kafka has no record of, although their last record in the copy is a value."""
        self._merge()
        hashes, offsets = self._lost
        gone = offsets[(offsets >= 0) & ~np.isin(hashes, self._there, assume_unique=True)]
        return LostKeys(len(gone), int(gone.min())) if len(gone) else None

    def _merge(self) -> None:
        self._there = np.unique(np.concatenate([self._there, *self._new]))
        told = np.concatenate([self._lost, *self._more], axis=1)
        told = told[:, np.argsort(told[0], kind="stable")]
        is_last = np.append(told[0, 1:] != told[0, :-1], True)[: told.shape[1]]
        self._lost = np.ascontiguousarray(told[:, is_last])
        self._new, self._more = [], []


def _hashes(frame: Frame) -> Longs:
    hashes = np.empty(len(frame), np.int64)
    if not hash_keys(frame.body, frame.table, hashes):
        raise ValueError("a key of the frame lies outside its buffer")
    return hashes


def _size(arrays: list[Longs]) -> int:
    return sum(map(len, arrays))
