"""Decodes log files of Kafka 0.6 and 0.7 to frames. Used by `archiver import kafka-0.7`."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from archiver.codec.compression import LARGEST_KEPT, Arena, BatchCodec, DecompressionError
from archiver.codec.foreign.damage import DamagedInput
from archiver.codec.frame import Bytes, Column, Frame, Longs
from archiver.codec.kernels.foreign import messages_07 as kernels

_MOST_MESSAGES: Final = 32 * 1024  # of a file, that are looked at together
_MOST_TOGETHER_BYTES: Final = 4 * 1024 * 1024  # of compressed messages
_MOST_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
_MOST_ROWS: Final = 32 * 1024
_COLUMNS: Final = kernels.PROBLEM + 1

_PROBLEMS: Final = {
    kernels.CUT: "the file ends within a message",
    kernels.LENGTH_WRONG: "a message's length cannot be",
    kernels.MAGIC_UNKNOWN: "a message of another format",
    kernels.CRC_WRONG: "a message's CRC does not match its bytes",
    kernels.CODEC_UNKNOWN: "a message with an unknown compression",
    kernels.NESTED: "a compressed message inside a compressed message",
}


class LogDecoder07:
    """Reads the files of one partition, whose messages get running numbers as offsets. A damaged range takes one number."""

    def __init__(self, *, keeps_positions: bool) -> None:
        self.number = 0  # of the next message
        self.wrong_inside = (
            0  # messages in a good compressed message whose own CRC is wrong: their producer wrote them so
        )
        self.cut_sets = 0  # compressed messages that end within a message
        self.done = 0  # bytes of the present file that are no longer needed
        self._keeps = keeps_positions
        self._buffer: Bytes | None = None
        self._table = np.empty((len(Column), _MOST_ROWS), np.int64)

    def read(self, content: Bytes, position: int) -> Iterator[Frame | DamagedInput]:
        """Yield the messages of a file that begins at this position of the log. A frame is valid until the next step is asked for."""
        start = 0
        found = np.empty((_COLUMNS, _MOST_MESSAGES), np.int64)
        while start < len(content):
            self.done = start
            count, end, why = kernels.scan_messages(content, start, found)
            messages = np.ascontiguousarray(found[:, :count])
            while messages.shape[1]:
                taken, body = self._open(content, messages)
                yield from self._steps(body, np.ascontiguousarray(messages[:, :taken]), position)
                messages = np.ascontiguousarray(messages[:, taken:])
            start = end
            if why in _PROBLEMS:
                start = kernels.end_of_broken(content, end)
                yield self._damage(DamagedInput(end, start, _PROBLEMS[why]))

    def _damage(self, damage: DamagedInput) -> DamagedInput:
        self.number += 1
        return damage

    def _steps(self, body: Bytes, messages: Longs, position: int) -> Iterator[Frame | DamagedInput]:
        oddities = np.zeros(2, np.int64)
        kernels.count_messages(body, messages, oddities)
        self.wrong_inside += int(oddities[0])
        self.cut_sets += int(oddities[1])
        start = 0
        for broken in [*np.flatnonzero(messages[kernels.PROBLEM]).tolist(), messages.shape[1]]:
            yield from self._frames(body, np.ascontiguousarray(messages[:, start:broken]), position)
            if broken < messages.shape[1]:
                begin, end, why = messages[[kernels.START, kernels.END, kernels.PROBLEM], broken].tolist()
                yield self._damage(
                    DamagedInput(begin, end, _PROBLEMS.get(why, "a message that cannot be decompressed"))
                )
            start = broken + 1

    def _frames(self, body: Bytes, messages: Longs, position: int) -> Iterator[Frame]:
        state = np.zeros(2, np.int64)
        headers = np.empty(_MOST_ROWS * kernels.POSITION_BYTES if self._keeps else 0, np.uint8)
        while state[0] < messages.shape[1]:
            rows, used = kernels.index_messages(body, messages, self.number, position, self._table, headers, state)
            self.number += rows
            if rows:
                frame = Frame(body=body, header_body=headers[:used], table=self._table)
                yield frame if rows == len(frame) else frame.rows(0, rows)

    def _open(self, content: Bytes, messages: Longs) -> tuple[int, Bytes]:
        """Decompress the first messages of a table. Returns how many, and the body that their rows point into."""
        is_set = messages[kernels.CODEC] > 0
        if not is_set.any():
            return messages.shape[1], content
        plain = int(is_set.argmax())
        if plain:
            return plain, content
        sizes = messages[kernels.END] - messages[kernels.START]
        sets = int(np.append(~is_set, True).argmax())
        count = min(sets, max(1, int(np.searchsorted(np.cumsum(sizes), _MOST_TOGETHER_BYTES))))
        kept = self._buffer if self._buffer is not None and len(self._buffer) <= LARGEST_KEPT else None
        arena = Arena(int(sizes[:count].sum()), _MOST_DECOMPRESSED_BYTES, kept)
        for index in range(count):
            row = messages[:, index]
            payload = content[row[kernels.PAYLOAD_START] : row[kernels.END]]
            try:
                row[kernels.BODY_START], row[kernels.BODY_END] = arena.add(BatchCodec(int(row[kernels.CODEC])), payload)
            except DecompressionError:
                if index:  # alone it may be within the limit
                    count = index
                    break
                row[kernels.PROBLEM] = _BAD_PAYLOAD
                count = 1
                break
        self._buffer = arena.buffer
        return count, arena.body


_BAD_PAYLOAD: Final = -1  # no reason of a kernel
