"""Frame -> plain Python values, a row at a time: for people, not for bulk."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from archiver.codec.row_kernels import flatten_headers
from archiver.frame import Bytes, Column, Frame, Longs


class Row(NamedTuple):
    """One record. Header keys are bytes: Kafka does not promise UTF-8."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def frame_rows(frame: Frame) -> Iterator[Row]:
    """Yield the records of a frame. ValueError when one points outside its buffers."""
    parts = _header_parts(frame).T.tolist()
    headers = iter(parts)
    for offset, timestamp, kind, key, key_size, value, value_size, _, _, count in frame.table.T.tolist():
        found = [next(headers) for _ in range(count)]
        yield Row(
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


def _bytes(source: Bytes, start: int, length: int) -> bytes | None:
    if length < 0:
        return None
    if not 0 <= start <= len(source) - length:
        raise ValueError("a row of the frame points outside its buffer")
    return source[start : start + length].tobytes()


def _header_parts(frame: Frame) -> Longs:
    counts = frame.column(Column.HEADER_COUNT)
    # A header takes two bytes at least: a count that lies must not choose how much is allocated.
    if (counts < 0).any() or (counts > len(frame.header_body) // 2).any():
        raise ValueError("the frame counts more headers than its buffer can hold")
    parts = np.empty((4, int(counts.sum())), np.int64)
    if not flatten_headers(frame.header_body, frame.table, parts):
        raise ValueError("headers of the frame point outside their buffer")
    return parts
