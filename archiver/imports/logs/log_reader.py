"""Reads files of batches a piece at a time: memory stays small, and a broken disk is an error, not a signal."""

import os
import struct
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import google_crc32c
import numpy as np

from archiver.codec.batch import BATCH_MAGIC, whole_batches
from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels import batches as columns
from archiver.errors import ArchiverError, CorruptBatchError

PIECE_BYTES: Final = 4 * 1024 * 1024  # are read at once, or one larger batch
_BEGIN: Final = struct.Struct(">qiib")  # base offset, length, leader epoch, magic: all formats have them here
_SMALLEST_LENGTH: Final = 14
_LAST_DELTA_AT: Final = 23
_MAGIC_AT: Final = 16


class Header(NamedTuple):
    """What the header of a batch claims."""

    end: int  # in the file
    base: int
    last: int  # offset; of a message of an old format the base


class LogReader:
    """One open file. What `read` returns is valid until its next call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise ArchiverError(f"{path}: cannot be read: {error.strerror}") from error
        self._size = os.fstat(self._file.fileno()).st_size
        self._buffer = np.empty(0, np.uint8)

    def __len__(self) -> int:
        return self._size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self, start: int, end: int) -> Bytes:
        """Return the bytes of a range, which must be inside the file."""
        size = end - start
        if size > len(self._buffer) or len(self._buffer) > max(size, PIECE_BYTES):
            self._buffer = np.empty(max(size, PIECE_BYTES), np.uint8)
        self._fill(self._buffer[:size].data, start)
        return self._buffer[:size]

    def _fill(self, target: memoryview, start: int) -> None:
        done = 0
        while done < len(target):
            try:
                count = os.preadv(self._file.fileno(), [target[done:]], start + done)
            except OSError as error:
                raise ArchiverError(
                    f"{self._path}: the bytes from {start + done:,} on cannot be read ({error.strerror}); copy the disk with a"
                    " program that goes around bad sectors, such as ddrescue, and import the copy"
                ) from error
            if not count:
                raise ArchiverError(
                    f"{self._path}: became shorter while it was read; import a copy that nothing writes"
                )
            done += count

    def header(self, start: int) -> Header | None:
        """Return the header at a position; None if no batch can begin there."""
        content = bytearray(max(0, min(columns.HEADER_SIZE, self._size - start)))
        self._fill(memoryview(content), start)
        if len(content) < _BEGIN.size:
            return None
        base, length, _, magic = _BEGIN.unpack_from(content)
        if not 0 <= magic <= BATCH_MAGIC or length < _SMALLEST_LENGTH:
            return None
        delta = int.from_bytes(content[_LAST_DELTA_AT : _LAST_DELTA_AT + 4], "big") if magic == BATCH_MAGIC else 0
        return Header(start + columns.LOG_OVERHEAD + length, base, base + delta)

    def batches(self, start: int, end: int) -> Iterator[tuple[int, Longs, Bytes]]:
        """Yield the position, the table and the bytes of the batches of a range, unchecked, up to one that is cut."""
        while start < end:
            head = self.header(start)
            is_large = (
                head is not None and head.end - start > PIECE_BYTES
            )  # perhaps no batch, and more than fits into memory
            if head is None or head.end > end or (is_large and not BatchChecksum(self, start).is_right(head.end)):
                return
            content = self.read(start, min(end, max(head.end, start + PIECE_BYTES)))
            try:
                rows, content = whole_batches(content.data, 0)
            except CorruptBatchError:
                return
            yield start, rows, content
            start += len(content)

    @cached_property
    def used(self) -> int:
        """Return the end of the bytes that are not zero: brokers may allocate files before they fill them."""
        end = self._size
        while end:
            start = max(0, end - PIECE_BYTES)
            is_used = self.read(start, end)[::-1] != 0
            if is_used.any():
                return end - int(is_used.argmax())
            end = start
        return 0


class BatchChecksum:
    """The checksum of a batch as if it ended at different places, in rising order. It does not cover the batch's length."""

    def __init__(self, source: LogReader, start: int) -> None:
        begin = source.read(start, min(start + columns.CRC_END, len(source))).tobytes().ljust(columns.CRC_END)
        self._is_old = begin[_MAGIC_AT] < BATCH_MAGIC
        noted_at, first = (12, 16) if self._is_old else (17, columns.CRC_END)
        self._noted = int.from_bytes(begin[noted_at : noted_at + 4], "big")
        self._source, self._done, self._checksum = source, start + first, 0

    def is_right(self, end: int) -> bool:
        """Return whether the bytes up to an end have the checksum in the header."""
        for position in range(self._done, end, PIECE_BYTES):
            part = self._source.read(position, min(end, position + PIECE_BYTES))
            before = self._checksum
            self._checksum = zlib.crc32(part.data, before) if self._is_old else google_crc32c.extend(before, part)
        is_behind = end > self._done
        self._done = max(self._done, end)
        return is_behind and self._checksum == self._noted
