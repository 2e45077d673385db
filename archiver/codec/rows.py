"""Converts a frame to records as plain Python values, one at a time: for display, not for bulk work."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from archiver.codec.frame import Bytes, Column, Frame, Longs
from archiver.codec.kernels.rows import flatten_headers
from archiver.codec.kernels.varint import read_long


class PlainRecord(NamedTuple):
    """One record. Header keys are bytes: Kafka does not promise UTF-8."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def plain_records_of(frame: Frame) -> Iterator[PlainRecord]:
    """Yield the records of a frame. Raises ValueError if one points outside its buffers."""
    parts = _header_parts(frame).T.tolist()
    headers = iter(parts)
    for offset, timestamp, kind, key, key_size, value, value_size, _, _, count in frame.table.T.tolist():
        found = [next(headers) for _ in range(count)]
        yield PlainRecord(
            offset,
            timestamp,
            kind,
            _bytes(frame.body, key, key_size),
            _bytes(frame.body, value, value_size),
            [
                (_bytes(frame.header_body, start, size) or b"", _bytes(frame.header_body, begin, length))
                for start, size, begin, length in found
            ],
        )


class LongRecord(NamedTuple):
    """One record that may be large: views of its frame, and headers that are read one after the other."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: memoryview | None
    value: memoryview | None
    headers: "LongHeaders"


class LongHeaders:
    """The headers of a large record, parsed each time they are iterated over."""

    def __init__(self, source: memoryview, start: int, length: int, count: int) -> None:
        if not 0 <= start <= len(source) - length or length < 0 or count < 0:
            raise ValueError("headers of the frame point outside their buffer")
        self._source = source[: start + length]
        self._start = start
        self._count = count

    def __iter__(self) -> Iterator[tuple[memoryview, memoryview | None]]:
        position = self._start
        for _ in range(self._count):
            length, start = read_long(self._source, position)
            key = self._cut(start, length)
            length, start = read_long(self._source, start + len(key))
            value = None if length < 0 and start >= 0 else self._cut(start, length)
            yield key, value
            position = start + max(length, 0)

    def _cut(self, start: int, length: int) -> memoryview:
        if start < 0 or not 0 <= length <= len(self._source) - start:
            raise ValueError("headers of the frame point outside their buffer")
        return self._source[start : start + length]


def long_record_of(frame: Frame) -> LongRecord:
    """Return the only record of a frame. Raises ValueError when it points outside its buffers."""
    (offset, timestamp, kind, key, key_size, value, value_size, *headers) = frame.table[:, 0].tolist()
    return LongRecord(
        offset,
        timestamp,
        kind,
        _view(frame.body, key, key_size),
        _view(frame.body, value, value_size),
        LongHeaders(frame.header_body.data, *headers),
    )


def _view(source: Bytes, start: int, length: int) -> memoryview | None:
    if length < 0:
        return None
    if not 0 <= start <= len(source) - length:
        raise ValueError("a row of the frame points outside its buffer")
    return source[start : start + length].data


def _bytes(source: Bytes, start: int, length: int) -> bytes | None:
    view = _view(source, start, length)
    return None if view is None else view.tobytes()


def _header_parts(frame: Frame) -> Longs:
    counts = frame.column(Column.HEADER_COUNT)
    # A header takes at least two bytes: refuse a false count before memory is allocated by it.
    if (counts < 0).any() or (counts > len(frame.header_body) // 2).any():
        raise ValueError("the frame counts more headers than its buffer can hold")
    parts = np.empty((4, int(counts.sum())), np.int64)
    if not flatten_headers(frame.header_body, frame.table, parts):
        raise ValueError("headers of the frame point outside their buffer")
    return parts
