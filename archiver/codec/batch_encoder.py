"""Encodes frames as record batches v2 of one idempotent producer. Used by restores."""

import struct
from dataclasses import dataclass

import google_crc32c
import numpy as np

from archiver.codec.batch import BATCH_HEADER, BATCH_MAGIC, UNKNOWN_LEADER_EPOCH
from archiver.codec.compression import BatchCodec, PayloadCompressor
from archiver.codec.frame import Frame
from archiver.codec.kernels import batches as batch_kernels

_CRC = struct.Struct(">I")
SEQUENCES = 2**31  # a producer's sequence numbers, which then begin at 0 again
# Records are compressed in pieces of this size, which stay in a core's cache; a few large records may make a piece larger.
# With the record that fills it, a piece is still one block of lz4's frame (256 KiB), and not a block and a few bytes.
PIECE_BYTES = 240 * 1024
_LEAST_PIECE_BYTES = 64 * 1024  # no smaller piece is packed to bring a batch nearer to its size


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """One finished batch."""

    content: memoryview
    records: int


class BatchEncoder:
    """Collects rows, of several small frames if need be, into batches of one idempotent producer.

    A batch has about `batch_bytes` of records at most, and is no larger than `most_bytes` when it is sent; but it has at
    least one record. `sequence` is the sequence number of the first row.
    """

    def __init__(
        self,
        *,
        codec: BatchCodec,
        batch_bytes: int,
        most_bytes: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int = 0,
    ) -> None:
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._most_bytes = most_bytes
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._sequence = sequence
        self._state = np.zeros(batch_kernels.BATCH_STATE_SIZE, np.int64)
        self._kept_bytes = min(batch_bytes, most_bytes)
        self._buffer = np.empty(min(self._kept_bytes, PIECE_BYTES + _LEAST_PIECE_BYTES), np.uint8)
        self._payload = PayloadCompressor(
            codec, lead=batch_kernels.HEADER_SIZE, expected=self._kept_bytes + PIECE_BYTES
        )
        self._packed_bytes = 0  # uncompressed, in the payload so far

    @property
    def rows(self) -> int:
        """The number of rows that wait for `flush`."""
        return int(self._state[0])

    @property
    def is_full(self) -> bool:
        """Whether the waiting rows leave no room for more."""
        return bool(self.rows > 0 and self._room() <= self._state[1])

    def append(self, frame: Frame, start: int) -> int:
        """Take rows from `start` on, at least one. Returns the first row without room."""
        row = start
        while True:
            row, room, why = batch_kernels.encode_records(
                frame.body,
                frame.header_body,
                frame.table,
                row,
                len(frame),
                PIECE_BYTES,
                self._room(),
                self._buffer,
                self._state,
            )
            if why == batch_kernels.ROW_OUTSIDE:
                raise ValueError(f"row {row} is not in the frame, or points outside its buffers")
            if why == batch_kernels.NEEDS_ROOM:
                self._buffer = np.concatenate((self._buffer, np.empty(room, np.uint8)))
            elif why == batch_kernels.PIECE_FULL or (
                why == batch_kernels.BATCH_FULL and self._state[1] >= _LEAST_PIECE_BYTES
            ):
                self._pack()  # its compressed size shows how much room is left
            else:
                return int(row)

    def _room(self) -> int:
        """Return how many bytes of records the batch may still take, unpacked ones included; 0 where a piece is not worth it."""
        room = min(self._batch_bytes - self._packed_bytes, self._payload.room_within(self._most_bytes))
        return room if room >= _LEAST_PIECE_BYTES or not self._packed_bytes else 0

    def _pack(self) -> None:
        used = int(self._state[1])
        self._payload.add(self._buffer[:used])
        self._packed_bytes += used
        self._state[1] = 0

    def flush(self) -> EncodedBatch:
        """Make one CreateTime batch of the rows that were taken: at least one."""
        if self._state[1]:
            self._pack()
        count, _, first_timestamp, largest_timestamp = self._state.tolist()
        content = self._payload.finish()
        BATCH_HEADER.pack_into(
            content.data,
            0,
            0,
            len(content) - batch_kernels.LOG_OVERHEAD,
            UNKNOWN_LEADER_EPOCH,
            BATCH_MAGIC,
            0,
            int(self._codec),
            count - 1,
            first_timestamp,
            largest_timestamp,
            self._producer_id,
            self._producer_epoch,
            self._sequence % SEQUENCES,
            count,
        )
        _CRC.pack_into(
            content.data, batch_kernels.CRC_END - _CRC.size, google_crc32c.value(content[batch_kernels.CRC_END :])
        )
        self._sequence += count
        self._state[:] = 0
        self._packed_bytes = 0
        if len(self._buffer) > self._kept_bytes:  # a large record must not cost memory until the end
            self._buffer = np.empty(self._kept_bytes, np.uint8)
        return EncodedBatch(content=content.data.toreadonly(), records=count)
