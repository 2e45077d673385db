"""Encodes one record as AvroKafkaRecord v2.0 in pieces, so that a large key, value or header is not copied whole."""

from collections.abc import Generator, Iterator
from typing import Final

import numpy as np

from archiver.codec.frame import Bytes, Frame
from archiver.codec.kernels.avro_encode import (
    AS_BOTH,
    AS_LIST,
    HEADER_BYTES,
    HEADER_NULL,
    LIST,
    NO_LIST,
    NULL,
    PRESENT,
    key_size,
    spell_headers,
    spell_key,
    survey_headers,
)
from archiver.codec.kernels.headers import READABLE_TIMES
from archiver.codec.kernels.varint import BROKEN, encode_long, read_long

_PIECE_BYTES: Final = 256 * 1024
_IS_UTF8: Final = -1  # in place of the size of a key's reading aid, which a UTF-8 key does not need
_NONE: Final = -1  # length of a null
_END: Final = encode_long(0)  # of a map or a list
Piece = bytes | memoryview


def record_pieces(frame: Frame, row: int, prefix: Bytes) -> Iterator[Piece]:
    """Spell a row as encode_rows does, led by `prefix` (topic and partition, encoded). A piece is valid until the next one is asked for.

    encode_rows has checked that key and value are inside their buffer. Raises ValueError for headers that do not.
    """
    offset, timestamp, kind, key, key_length, value, value_length, start, length, count = frame.table[:, row].tolist()
    yield prefix.tobytes() + encode_long(offset) + encode_long(timestamp)
    yield from _nullable(frame.body, key, key_length, PRESENT, NULL)
    yield from _nullable(frame.body, value, value_length, PRESENT, NULL)
    yield from _headers(frame.header_body, start, length, count)
    yield encode_long(kind)


def _nullable(source: Bytes, start: int, length: int, present: int, null: int) -> Iterator[Piece]:
    if length < 0:
        yield encode_long(null)
    else:
        yield encode_long(present)
        yield from _blob(source, start, length)


def _blob(source: Bytes, start: int, length: int) -> Iterator[Piece]:
    yield encode_long(length)
    for at, size in _cut(start, length, _PIECE_BYTES):
        yield source[at : at + size].data


def _cut(start: int, length: int, most: int) -> Iterator[tuple[int, int]]:
    for at in range(start, start + length, most):
        yield at, min(most, start + length - at)


def _headers(source: Bytes, start: int, length: int, count: int) -> Iterator[Piece]:
    if not count:
        yield encode_long(NULL) + encode_long(NO_LIST)
        return
    spelling = survey_headers(source, start, length, count)
    if spelling == BROKEN:
        raise ValueError("headers of the row leave their buffer, or do not fill it exactly")
    if spelling == AS_LIST:
        yield encode_long(NULL)
    else:
        yield encode_long(PRESENT)
        yield from _members(source, start, start + length, count, is_list=False)
    if spelling in {AS_LIST, AS_BOTH}:
        yield encode_long(LIST)
        yield from _members(source, start, start + length, count, is_list=True)
    else:
        yield encode_long(NO_LIST)


def _members(source: Bytes, position: int, end: int, count: int, *, is_list: bool) -> Iterator[Piece]:
    yield encode_long(count)
    target = np.empty(_PIECE_BYTES, np.uint8)
    left = count
    while left:
        taken, position, used = spell_headers(source, position, end, left, is_list, target)
        left -= taken
        if taken:
            yield target[:used].data
        else:  # a header that is larger than a piece
            position = yield from _large_member(source, position, is_list=is_list)
            left -= 1
    yield _END


def _large_member(source: Bytes, position: int, *, is_list: bool) -> Generator[Piece, None, int]:
    """Yield one header, whose bounds `survey_headers` has checked. Returns the position behind it."""
    key_length, key = read_long(source.data, position)
    length, value = read_long(source.data, key + key_length)
    readable = key_size(source, key, key_length) if is_list else _IS_UTF8
    if readable == _IS_UTF8:
        yield from _blob(source, key, key_length)
    else:
        yield encode_long(readable)
        yield from _readable(source, key, key_length)
    if is_list:
        yield from _nullable(source, value, length, HEADER_BYTES, HEADER_NULL)
        yield from _nullable(source, key, _NONE if readable == _IS_UTF8 else key_length, HEADER_BYTES, HEADER_NULL)
    else:
        yield from _blob(source, value, length)
    return value + max(length, 0)


def _readable(source: Bytes, start: int, length: int) -> Iterator[Piece]:
    target = np.empty(_PIECE_BYTES, np.uint8)
    for at, size in _cut(start, length, _PIECE_BYTES // READABLE_TIMES):
        yield target[: spell_key(source, at, size, target)].data
