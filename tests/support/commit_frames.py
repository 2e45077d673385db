"""Records of `__consumer_offsets` as Kafka writes them, put together by hand, and frames of them."""

import struct
from collections.abc import Sequence

import numpy as np

from archiver.codec.frame import Column, Frame

Row = tuple[bytes | None, bytes | None, int]  # key, value, timestamp


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def position_key(group: str, topic: str, partition: int, kind: int = 1) -> bytes:
    return struct.pack(">h", kind) + text(group) + text(topic) + struct.pack(">i", partition)


def commit_value(offset: int, metadata: str = "", epoch: int = -1) -> bytes:
    return struct.pack(">hqi", 3, offset, epoch) + text(metadata) + struct.pack(">q", 1000 + offset)


def frame_of(rows: Sequence[Row], first_offset: int) -> Frame:
    """Every third offset has a row."""
    return frame_at([(first_offset + 3 * place, *row) for place, row in enumerate(rows)])


def frame_at(rows: Sequence[tuple[int, bytes | None, bytes | None, int]]) -> Frame:
    body, table = bytearray(), np.zeros((len(Column), len(rows)), np.int64)
    for place, (offset, key, value, timestamp) in enumerate(rows):
        table[Column.OFFSET, place], table[Column.TIMESTAMP, place] = offset, timestamp
        for content, start, length in (
            (key, Column.KEY_START, Column.KEY_LENGTH),
            (value, Column.VALUE_START, Column.VALUE_LENGTH),
        ):
            table[start, place], table[length, place] = len(body), -1 if content is None else len(content)
            body += content or b""
    return Frame(body=np.frombuffer(bytes(body), np.uint8), header_body=np.empty(0, np.uint8), table=table)
