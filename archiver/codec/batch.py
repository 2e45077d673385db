"""Record batches v2 <-> Frame."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
import numpy.typing as npt

from archiver.codec import batch_kernels as k
from archiver.codec.compression import Arena, BatchCodec, DecompressionError, compress_payload
from archiver.errors import CorruptBatchError, UnsupportedBatchError
from archiver.frame import Bytes, Column, Frame, Longs

_CODEC_BITS = 0x07
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_MAGIC = 2
_SMALLEST_BATCH = 17  # up to and with the magic byte
_HEADER = struct.Struct(">qiibIhiqqqhii")
_UNKNOWN_EPOCH = -1
MOST_DECOMPRESSED_BYTES = 256 * 1024 * 1024

_PROBLEMS = {
    k.RECORD_CUT: "a record field runs past its record",
    k.RECORD_LENGTH: "a record's length cannot be",
    k.HEADER_BROKEN: "a record's headers do not fill it exactly",
    k.OFFSET_ORDER: "offsets do not rise, or leave the batch",
    k.PAYLOAD_REST: "bytes are left behind the last record",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedBatches:
    """The records of fetched batches, and where to go on."""

    frame: Frame
    next_offset: int
    leader_epoch: int
    source_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """One finished batch; `next_row` is the first row that it does not hold."""

    content: bytes
    records: int
    next_row: int


def whole_batches(data: bytes | memoryview, position: int) -> tuple[Longs, Bytes]:
    """Describe the whole batches of a fetch, without trusting them. Returns (batch table, bytes).

    Raises CorruptBatchError when not even one is whole: a broker always sends at least one.
    """
    source = np.frombuffer(data, np.uint8)
    source.flags.writeable = False
    table = np.empty((k.BATCH_COLUMNS, min(len(source) // _SMALLEST_BATCH, 4096) + 1), np.int64)
    count, end = k.scan_batches(source, table)
    while count == table.shape[1]:
        table = np.empty((k.BATCH_COLUMNS, 4 * table.shape[1]), np.int64)
        count, end = k.scan_batches(source, table)
    if len(source) and not count:
        raise CorruptBatchError(f"offset {position}: {len(source)} bytes that do not begin with a whole record batch")
    return np.ascontiguousarray(table[:, :count]), source[:end]


def position_after(batches: Longs, position: int) -> int:
    """Return where to go on after these batches; never before `position`."""
    last = batches[k.LAST_OFFSET, -1] if batches.shape[1] else position - 1
    return max(int(last) + 1, position)


def decode_batches(
    data: bytes | memoryview,
    position: int,
    aborted: Sequence[tuple[int, int]] = (),
    most_bytes: int = MOST_DECOMPRESSED_BYTES,
) -> DecodedBatches:
    """Decode what a broker sent for a fetch at `position`; `aborted` is its list of (producer id, first offset).

    Nothing is skipped but control batches, aborted records, records below the position, and a last batch that is cut.
    Raises CorruptBatchError, naming the offset.
    """
    batches, source = whole_batches(data, position)
    _check(batches, source)
    wanted = np.ascontiguousarray(batches[:, _with_records(batches, aborted)])
    body = _inflate(wanted, source, most_bytes)
    table = np.empty((len(Column), int(wanted[k.COUNT].sum())), np.int64)
    rows, problem, batch = k.index_records(body, wanted, position, table)
    if problem != k.OK:
        raise CorruptBatchError(
            f"offset {wanted[k.BASE_OFFSET, batch]}: {_PROBLEMS[problem]}", good_bytes=int(wanted[k.START, batch])
        )
    frame = Frame(body=body, header_body=body, table=table)
    return DecodedBatches(
        frame=frame if rows == len(frame) else frame.rows(0, rows),
        next_offset=position_after(batches, position),
        leader_epoch=int(batches[k.LEADER_EPOCH, -1]) if batches.shape[1] else _UNKNOWN_EPOCH,
        source_bytes=len(source),
    )


def _check(batches: Longs, source: Bytes) -> None:
    previous_last = -1
    for start, size, base, magic, crc, last in zip(
        *(batches[column].tolist() for column in (k.START, k.SIZE, k.BASE_OFFSET, k.MAGIC, k.CRC, k.LAST_OFFSET)),
        strict=True,
    ):
        if magic != _MAGIC:
            raise _unknown_magic(magic, base, start)
        actual = google_crc32c.value(source[start + k.CRC_END : start + size])
        if actual != crc:
            raise CorruptBatchError(
                f"offset {base}: the batch's CRC is {crc:08x}, its bytes have {actual:08x}", good_bytes=start
            )
        if base < 0 or last < base or base <= previous_last:
            raise CorruptBatchError(
                f"offset {base}: a batch of {base}..{last} behind one that ends at {previous_last}", good_bytes=start
            )
        previous_last = last


def _unknown_magic(magic: int, base: int, start: int) -> CorruptBatchError:
    if magic in {0, 1}:
        reason = f"message set v{magic} (written by Kafka before 0.11); this version reads record batches v2 only"
    else:
        reason = f"record batch of magic {magic}, which is not known"
    return UnsupportedBatchError(f"offset {base}: {reason}", good_bytes=start)


def _with_records(batches: Longs, aborted: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Tell which batches hold records of the archive: not control, not aborted, not emptied by compaction."""
    control: npt.NDArray[np.bool_] = (batches[k.ATTRIBUTES] & _CONTROL_BIT) != 0
    kept: npt.NDArray[np.bool_] = ~control & (batches[k.COUNT] > 0)
    if not aborted:
        return kept
    waiting = sorted(aborted, key=lambda entry: entry[1])
    open_aborted: set[int] = set()
    for index in range(batches.shape[1]):
        while waiting and waiting[0][1] <= batches[k.LAST_OFFSET, index]:
            open_aborted.add(waiting.pop(0)[0])
        producer_id = int(batches[k.PRODUCER_ID, index])
        if producer_id not in open_aborted:
            continue
        if control[index]:  # the marker that ends the transaction
            open_aborted.discard(producer_id)
        elif batches[k.ATTRIBUTES, index] & _TRANSACTIONAL_BIT:
            kept[index] = False
    return kept


def _inflate(batches: Longs, source: Bytes, most_bytes: int) -> Bytes:
    """Lay all payloads into one body, fill the batches' payload columns, and check the counts against them."""
    starts = batches[k.START] + k.HEADER_SIZE
    ends = batches[k.START] + batches[k.SIZE]
    codecs = batches[k.ATTRIBUTES] & _CODEC_BITS
    body = source
    if codecs.any():
        arena = Arena(int((ends - starts).sum()), most_bytes)
        for index, (start, end, codec) in enumerate(zip(starts.tolist(), ends.tolist(), codecs.tolist(), strict=True)):
            starts[index], ends[index] = _add(arena, codec, source[start:end], batches[:, index])
        body = arena.body
    batches[k.PAYLOAD_START] = starts
    batches[k.PAYLOAD_END] = ends
    too_many = batches[k.COUNT] > (ends - starts) // k.SMALLEST_RECORD
    if too_many.any():
        batch = batches[:, int(too_many.argmax())]
        room = batch[k.PAYLOAD_END] - batch[k.PAYLOAD_START]
        raise CorruptBatchError(
            f"offset {batch[k.BASE_OFFSET]}: {batch[k.COUNT]} records cannot lie in {room} bytes",
            good_bytes=int(batch[k.START]),
        )
    return body


def _add(arena: Arena, codec: int, payload: Bytes, batch: Longs) -> tuple[int, int]:
    base, start = int(batch[k.BASE_OFFSET]), int(batch[k.START])
    if codec > max(BatchCodec):
        raise UnsupportedBatchError(f"offset {base}: compression {codec} is not known", good_bytes=start)
    try:
        return arena.add(BatchCodec(codec), payload)
    except DecompressionError as error:
        raise CorruptBatchError(
            f"offset {base}: {BatchCodec(codec).name} payload: {error}", good_bytes=start
        ) from error


class BatchEncoder:
    """Writes rows of frames as batches of one idempotent producer; keeps its buffer between batches."""

    def __init__(self, *, codec: BatchCodec, level: int, batch_bytes: int) -> None:
        self._codec = codec
        self._level = level
        self._batch_bytes = batch_bytes
        self._buffer = np.empty(batch_bytes + 1024, np.uint8)

    def encode(self, frame: Frame, start: int, *, producer_id: int, producer_epoch: int, sequence: int) -> EncodedBatch:
        """Encode rows from `start` on as one CreateTime batch of about `batch_bytes` uncompressed bytes, at least one row."""
        while True:
            stop, used, largest, why = k.encode_records(
                frame.body, frame.header_body, frame.table, start, len(frame), self._batch_bytes, self._buffer
            )
            if why == k.ROW_OUTSIDE:
                raise ValueError(f"row {stop} of the frame points outside its buffers")
            if why != k.NEEDS_ROOM:
                break
            self._buffer = np.empty(2 * used, np.uint8)
        payload = compress_payload(self._codec, self._buffer[:used], self._level)
        count = stop - start
        head = _HEADER.pack(
            0,
            k.HEADER_SIZE - k.LOG_OVERHEAD + len(payload),
            _UNKNOWN_EPOCH,
            _MAGIC,
            0,
            int(self._codec),
            count - 1,
            int(frame.column(Column.TIMESTAMP)[start]),
            int(largest),
            producer_id,
            producer_epoch,
            sequence,
            count,
        )
        content = bytearray(head + payload)
        struct.pack_into(">I", content, k.CRC_END - 4, google_crc32c.value(bytes(content[k.CRC_END :])))
        return EncodedBatch(content=bytes(content), records=count, next_row=int(stop))
