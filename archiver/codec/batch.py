"""Decodes record batches from brokers to frames; drops control batches and records of aborted transactions."""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import google_crc32c
import numpy as np
import numpy.typing as npt

from archiver.codec.compression import Arena, BatchCodec, DecompressionError, ExpandsError
from archiver.codec.frame import Bytes, Column, Frame, Longs
from archiver.codec.kernels import batches as batch_kernels
from archiver.codec.message_sets import is_old, open_messages
from archiver.errors import CorruptBatchError, LargeBatchError, UnsupportedBatchError

_CODEC_BITS = 0x07
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
BATCH_MAGIC = 2
_SMALLEST_BATCH = 17  # bytes, up to and including the magic byte
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
UNKNOWN_LEADER_EPOCH = -1
MOST_DECOMPRESSED_BYTES = 256 * 1024 * 1024  # of all payloads that one call opens
# Rows of one frame: their table takes 2.6 MB, however many records a fetch has. A row may be eleven times as large as its record.
MOST_FETCHED_ROWS = 32 * 1024
_NOTHING_LEFT_OUT = np.zeros((2, 0), np.int64)
_NO_TRANSACTIONS = np.zeros((5, 0), np.int64)
LARGEST_BATCH_BYTES = 1024 * 1024 * 1024  # decompressed: the upper limit of backup.batch.bytes
# Fetched bytes that are decoded at once: with their results they stay in a core's cache, and take little memory.
STEP_BYTES = 512 * 1024
_MOST_OFFSET = 2**63 - 2  # a next offset must exist

_PROBLEMS = {
    batch_kernels.RECORD_CUT: "a record field runs past its record",
    batch_kernels.RECORD_LENGTH: "a record's length cannot be",
    batch_kernels.HEADER_BROKEN: "a record's headers do not fill it exactly",
    batch_kernels.OFFSET_ORDER: "offsets do not rise, or leave the batch",
    batch_kernels.PAYLOAD_REST: "bytes are left behind the last record",
    batch_kernels.BATCH_OUTSIDE: "its payload or its count leaves what is there",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedBatches:
    """The records of fetched batches, and the next position.

    `frames` yields the records in order, in frames of at most MOST_FETCHED_ROWS. A frame is valid until the next one is asked for.
    `source_bytes`: how many bytes of the fetch were decoded. `aborted`: the list with which to decode the rest.
    `writers`: (last offset, producer id) of each batch, in order. `left_out`: (last offset, records at or above the position) of
    each batch of markers or aborted records: they were read, but are not archived. `transactional`: (first offset,
    last offset, producer id, timestamp, 1 for a marker) of each batch of a transaction, but for aborted records.
    `wrong_inside`, `cut_sets`: of message sets, see codec.message_sets.
    """

    frames: Callable[[], Iterator[Frame]]
    records: int
    next_offset: int
    leader_epoch: int
    source_bytes: int
    aborted: tuple[tuple[int, int], ...]
    writers: Longs
    left_out: Longs = field(default_factory=lambda: _NOTHING_LEFT_OUT)
    transactional: Longs = field(default_factory=lambda: _NO_TRANSACTIONS)
    wrong_inside: int = 0
    cut_sets: int = 0

    def left_out_within(self, first: int, end: int) -> int:
        """Count markers and aborted records at or above `first` and below `end`; neither bound may be inside their batches."""
        lasts, records = self.left_out
        start, stop = lasts.searchsorted((first, end)) if len(lasts) else (0, 0)
        return int(records[start:stop].sum())

    @property
    def frame(self) -> Frame:
        """All records in one frame, at most MOST_FETCHED_ROWS."""
        (frame,) = self.frames()
        return frame


def first_batch_bytes(batches: memoryview) -> int:
    """Return the size of the first batch from its header."""
    return batch_kernels.LOG_OVERHEAD + int.from_bytes(batches[8 : batch_kernels.LOG_OVERHEAD], "big")


def first_batch_offset(batches: memoryview) -> int:
    """Return the base offset of the first batch from its header."""
    return int.from_bytes(batches[:8], "big", signed=True)


def first_step(batches: memoryview) -> memoryview:
    """Return the batches to decode at once: about STEP_BYTES, the last one perhaps cut; at least the first one."""
    return batches[: max(STEP_BYTES, first_batch_bytes(batches))]


def first_timestamp_ms(batches: memoryview) -> int | None:
    """Return the approximate write time of the first record from its batch header; None without a header or a time."""
    if len(batches) < batch_kernels.HEADER_SIZE:
        return None
    _, _, _, magic, _, attributes, _, base_ms, max_ms, *_ = BATCH_HEADER.unpack_from(batches)
    timestamp_ms: int = max_ms if attributes & batch_kernels.LOG_APPEND_TIME_BIT else base_ms
    return timestamp_ms if magic == BATCH_MAGIC and timestamp_ms >= 0 else None


def whole_batches(data: bytes | memoryview, position: int) -> tuple[Longs, Bytes]:
    """Describe the whole batches of a fetch, without trusting them. Returns (batch table, bytes).

    Raises CorruptBatchError if none is whole: a broker always sends at least one.
    """
    source = np.frombuffer(data, np.uint8)
    source.flags.writeable = False
    table = np.empty((batch_kernels.BATCH_COLUMNS, min(len(source) // _SMALLEST_BATCH, 4096) + 1), np.int64)
    count, end = batch_kernels.scan_batches(source, table)
    while count == table.shape[1]:
        table = np.empty((batch_kernels.BATCH_COLUMNS, 4 * table.shape[1]), np.int64)
        count, end = batch_kernels.scan_batches(source, table)
    if len(source) and not count:
        raise CorruptBatchError(f"offset {position}: {len(source)} bytes that do not begin with a whole record batch")
    return np.ascontiguousarray(table[:, :count]), source[:end]


def position_after(batches: Longs, position: int) -> int:
    """Return the offset behind these unchecked batches: a valid offset, and not before `position`."""
    last = batches[batch_kernels.LAST_OFFSET, -1] if batches.shape[1] else position - 1
    return max(min(int(last), _MOST_OFFSET) + 1, position)


def in_place(batches: Longs, position: int, end: int) -> slice:
    """Return the batches of a fetch at `position` up to the first with invalid offsets; `end` is the log's end.

    No checksum covers the base offset of a batch. A batch with a false one may come first: brokers, which take it for one of
    higher offsets, send it again to a reader that continues behind. It is left out if the batch of `position` follows it.
    """
    bases, lasts = batches[batch_kernels.BASE_OFFSET], batches[batch_kernels.LAST_OFFSET]
    cannot = lasts >= end
    cannot[:-1] |= bases[1:] <= lasts[:-1]
    first = 0
    if len(lasts) and lasts.max() < position:
        cannot[:] = True
    elif len(lasts) and cannot[0] and bases[0] != position:
        later = bases[1:] <= position if lasts[0] >= end else bases[1:] == position
        first = 1 + int(later.argmax()) if later.any() else 0
    return slice(first, first + int(np.append(cannot[first:], True).argmax()))


def refuse_other_formats(batches: Longs) -> None:
    """Raise UnsupportedBatchError for the first batch that is not v2: the table's columns mean nothing for it."""
    others = np.flatnonzero(batches[batch_kernels.MAGIC] != BATCH_MAGIC)
    if len(others):
        magic, base, start = batches[
            [batch_kernels.MAGIC, batch_kernels.BASE_OFFSET, batch_kernels.START], others[0]
        ].tolist()
        raise _unknown_magic(magic, base, start)


class Scratch:
    """Memory that calls of decode_batches share: each call overwrites what the one before returned.

    New memory for each fetch costs a page fault for every 4 KiB, and memory that several threads free is not reused soon.
    """

    def __init__(self) -> None:
        self.body: Bytes | None = None
        self._table = np.empty(0, np.int64)

    def table(self, rows: int) -> Longs:
        size = len(Column) * rows
        if size > len(self._table):
            self._table = np.empty(0, np.int64)  # free the old table first
            self._table = np.empty(min(size + size // 4, max(size, len(Column) * MOST_FETCHED_ROWS)), np.int64)
        return self._table[:size].reshape(len(Column), rows)

    def trim(self, most_bytes: int) -> None:
        """Free buffers that are larger than this."""
        if self.body is not None and self.body.nbytes > most_bytes:
            self.body = None
        if self._table.nbytes > most_bytes:
            self._table = np.empty(0, np.int64)


def decode_batches(
    data: bytes | memoryview,
    position: int,
    aborted: Sequence[tuple[int, int]] = (),
    most_bytes: int = MOST_DECOMPRESSED_BYTES,
    scratch: Scratch | None = None,
) -> DecodedBatches:
    """Decode a broker's answer to a fetch at `position`; `aborted` is its list of (producer id, first offset).

    Skipped are only control batches, aborted records, records below the position, and a last batch that is cut.
    With `scratch` the records are valid until its next use. Ends early: before a batch whose payload is broken, or takes more
    than `most_bytes` of memory together with those before it, and at MOST_FETCHED_ROWS records.
    Raises CorruptBatchError, naming the offset; also when the first batch is broken or too large.
    """
    scratch = scratch or Scratch()
    batches, source = whole_batches(data, position)
    if is_old(batches):
        return _decode_messages(batches, source, position, aborted, most_bytes, scratch)
    batches, source = _first(_before_old(batches), batches, source)
    batches, source = _first(_fitting_rows(batches), batches, source)
    _check(batches, source)
    kept = _with_records(batches, aborted)
    wanted = np.ascontiguousarray(batches[:, kept])
    body, fitting = _inflate(wanted, source, most_bytes, scratch)
    if fitting < wanted.shape[1]:
        batches, source = _first(
            int((batches[batch_kernels.START] < wanted[batch_kernels.START, fitting]).sum()), batches, source
        )
        wanted = np.ascontiguousarray(wanted[:, :fitting])
    index = _RecordIndex(body, wanted, position, scratch)
    return DecodedBatches(
        frames=index.frames,
        records=index.records,
        next_offset=position_after(batches, position),
        leader_epoch=int(batches[batch_kernels.LEADER_EPOCH, -1]) if batches.shape[1] else UNKNOWN_LEADER_EPOCH,
        source_bytes=len(source),
        aborted=tuple(entry for entry in aborted if not _has_ended(batches, *entry)),
        writers=batches[[batch_kernels.LAST_OFFSET, batch_kernels.PRODUCER_ID]],
        left_out=_left_out(batches, kept[: batches.shape[1]], position),
        transactional=_transactional(batches, kept[: batches.shape[1]]),
    )


def _decode_messages(
    batches: Longs,
    source: Bytes,
    position: int,
    aborted: Sequence[tuple[int, int]],
    most_bytes: int,
    scratch: Scratch,
) -> DecodedBatches:
    """Decode the message sets v0 and v1 that a fetch begins with."""
    used, scratch.body = scratch.body, None
    sets, scratch.body = open_messages(batches, source, position, most_bytes, used)
    table = scratch.table(min(sets.records, MOST_FETCHED_ROWS))
    frames = list(sets.frames(position, table)) if sets.records <= MOST_FETCHED_ROWS else None
    return DecodedBatches(
        frames=lambda: sets.frames(position, table) if frames is None else iter(frames),
        records=sets.records,
        next_offset=position_after(sets.messages, position),
        leader_epoch=UNKNOWN_LEADER_EPOCH,
        source_bytes=sets.source_bytes,
        aborted=tuple(aborted),
        writers=sets.messages[[batch_kernels.LAST_OFFSET, batch_kernels.PRODUCER_ID]],
        wrong_inside=sets.wrong_inside,
        cut_sets=sets.cut_sets,
    )


def _before_old(batches: Longs) -> int:
    """Return how many batches come before the first message of an old format."""
    is_message = batches[batch_kernels.MAGIC] < BATCH_MAGIC
    return int(is_message.argmax()) if is_message.any() else batches.shape[1]


def _fitting_rows(batches: Longs) -> int:
    """Return how many batches have records for one frame, by their headers; at least one."""
    return max(
        1, int(np.searchsorted(np.cumsum(np.maximum(batches[batch_kernels.COUNT], 0)), MOST_FETCHED_ROWS, side="right"))
    )


def _first(count: int, batches: Longs, source: Bytes) -> tuple[Longs, Bytes]:
    if count >= batches.shape[1]:
        return batches, source
    return np.ascontiguousarray(batches[:, :count]), source[: batches[batch_kernels.START, count]]


class _RecordIndex:
    """Indexes the records of decompressed batches, a table of some of them at a time. At first all are indexed once, as a check."""

    def __init__(self, body: Bytes, batches: Longs, position: int, scratch: Scratch) -> None:
        rows = int(batches[batch_kernels.COUNT].sum())
        self._body = body
        self._batches = batches
        self._position = position
        self._table = scratch.table(min(rows, MOST_FETCHED_ROWS))
        self._all = list(self._index_frames()) if rows <= MOST_FETCHED_ROWS else None
        self.records = sum(len(frame) for frame in self._all or self._index_frames())

    def frames(self) -> Iterator[Frame]:
        return self._index_frames() if self._all is None else iter(self._all)

    def _index_frames(self) -> Iterator[Frame]:
        state = np.zeros(batch_kernels.INDEX_STATE_SIZE, np.int64)
        while True:
            rows, problem, batch = batch_kernels.index_records(
                self._body, self._batches, self._position, self._table, state
            )
            if problem != batch_kernels.OK:
                base, good_bytes = self._batches[[batch_kernels.BASE_OFFSET, batch_kernels.START], batch].tolist()
                raise CorruptBatchError(f"offset {base}: {_PROBLEMS[problem]}", good_bytes=good_bytes)
            frame = Frame(body=self._body, header_body=self._body, table=self._table)
            yield frame if rows == len(frame) else frame.rows(0, rows)
            if state[0] >= self._batches.shape[1]:
                return


def _check(batches: Longs, source: Bytes) -> None:
    previous_last = -1
    for start, size, base, magic, crc, last in zip(
        *(
            batches[column].tolist()
            for column in (
                batch_kernels.START,
                batch_kernels.SIZE,
                batch_kernels.BASE_OFFSET,
                batch_kernels.MAGIC,
                batch_kernels.CRC,
                batch_kernels.LAST_OFFSET,
            )
        ),
        strict=True,
    ):
        if magic != BATCH_MAGIC:
            raise _unknown_magic(magic, base, start)
        actual = google_crc32c.value(source[start + batch_kernels.CRC_END : start + size])
        if actual != crc:
            raise CorruptBatchError(
                f"offset {base}: the batch's CRC is {crc:08x}, its bytes have {actual:08x}", good_bytes=start
            )
        if not previous_last < base <= last <= _MOST_OFFSET:
            raise CorruptBatchError(
                f"offset {base}: a batch of {base}..{last} behind one that ends at {previous_last}", good_bytes=start
            )
        previous_last = last


def _unknown_magic(magic: int, base: int, start: int) -> CorruptBatchError:
    known = f"message set v{magic}, which has no producer id"
    reason = known if magic in {0, 1} else f"record batch of magic {magic}, which is not known"
    return UnsupportedBatchError(f"offset {base}: {reason}", good_bytes=start)


def _with_records(batches: Longs, aborted: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Mark the batches with records for the archive: not control, aborted or emptied by compaction.

    The kernel refuses a batch that has a payload and a count of 0 or less.
    """
    control: npt.NDArray[np.bool_] = (batches[batch_kernels.ATTRIBUTES] & _CONTROL_BIT) != 0
    emptied = (batches[batch_kernels.COUNT] == 0) & (batches[batch_kernels.SIZE] == batch_kernels.HEADER_SIZE)
    kept: npt.NDArray[np.bool_] = ~control & ~emptied
    if not aborted:
        return kept
    waiting = sorted(aborted, key=lambda entry: entry[1])
    open_aborted: set[int] = set()
    for index in range(batches.shape[1]):
        while waiting and waiting[0][1] <= batches[batch_kernels.LAST_OFFSET, index]:
            open_aborted.add(waiting.pop(0)[0])
        producer_id = int(batches[batch_kernels.PRODUCER_ID, index])
        if producer_id not in open_aborted:
            continue
        if control[index]:  # a marker that ends a transaction
            open_aborted.discard(producer_id)
        elif batches[batch_kernels.ATTRIBUTES, index] & _TRANSACTIONAL_BIT:
            kept[index] = False
    return kept


def _left_out(batches: Longs, kept: npt.NDArray[np.bool_], position: int) -> Longs:
    """Return (last offset, records at or above the position) of the batches whose records are not the archive's.

    Records are counted from the headers, not read. The count of a batch that begins below the position excludes
    as many as fit below it.
    """
    if kept.all():
        return _NOTHING_LEFT_OUT
    base, last, count = batches[[batch_kernels.BASE_OFFSET, batch_kernels.LAST_OFFSET, batch_kernels.COUNT]][:, ~kept]
    first = np.maximum(base, position)
    records = np.minimum(count - (first - base), last - first + 1)
    return np.stack([last, np.maximum(records, 0)])


def _transactional(batches: Longs, kept: npt.NDArray[np.bool_]) -> Longs:
    """Return the batches of transactions, but for those of aborted records."""
    attributes = batches[batch_kernels.ATTRIBUTES]
    is_control = (attributes & _CONTROL_BIT) != 0
    chosen = (attributes & _TRANSACTIONAL_BIT != 0) & (kept | is_control)
    if not chosen.any():
        return _NO_TRANSACTIONS
    columns = (
        batch_kernels.BASE_OFFSET,
        batch_kernels.LAST_OFFSET,
        batch_kernels.PRODUCER_ID,
        batch_kernels.BASE_TIMESTAMP,
    )
    return np.concatenate([batches[list(columns)], is_control[np.newaxis].astype(np.int64)])[:, chosen]


def _has_ended(batches: Longs, producer_id: int, first_offset: int) -> bool:
    """Return whether the batches contain a marker of the transaction: after it the producer's records count again."""
    control = (batches[batch_kernels.ATTRIBUTES] & _CONTROL_BIT) != 0
    return bool(
        (
            control
            & (batches[batch_kernels.PRODUCER_ID] == producer_id)
            & (batches[batch_kernels.LAST_OFFSET] >= first_offset)
        ).any()
    )


def _inflate(batches: Longs, source: Bytes, most_bytes: int, scratch: Scratch) -> tuple[Bytes, int]:
    """Decompress the payloads into one body, and fill the payload columns of the table. Returns (body, batches that fit)."""
    starts = batches[batch_kernels.START] + batch_kernels.HEADER_SIZE
    ends = batches[batch_kernels.START] + batches[batch_kernels.SIZE]
    codecs = batches[batch_kernels.ATTRIBUTES] & _CODEC_BITS
    body, fitting = source, batches.shape[1]
    if codecs.any():
        # Only compressed payloads can take more memory than was fetched.
        arena = Arena(int((ends - starts).sum()), most_bytes, scratch.body)
        scratch.body = None  # so that the arena frees its buffer when it grows
        fitting = _inflate_each(arena, batches, source)
        starts, ends = batches[batch_kernels.PAYLOAD_START], batches[batch_kernels.PAYLOAD_END]
        body, scratch.body = arena.body, arena.buffer
    batches[batch_kernels.PAYLOAD_START] = starts
    batches[batch_kernels.PAYLOAD_END] = ends
    counts, room = batches[batch_kernels.COUNT, :fitting], (ends - starts)[:fitting]
    impossible = (counts < 0) | (counts > room // batch_kernels.SMALLEST_RECORD)
    if impossible.any():
        first = int(impossible.argmax())
        raise CorruptBatchError(
            f"offset {batches[batch_kernels.BASE_OFFSET, first]}: {counts[first]} records cannot lie in {room[first]} bytes",
            good_bytes=int(batches[batch_kernels.START, first]),
        )
    return body, fitting


def _inflate_each(arena: Arena, batches: Longs, source: Bytes) -> int:
    """Return how many batches fit the arena."""
    columns = (batch_kernels.START, batch_kernels.SIZE, batch_kernels.ATTRIBUTES, batch_kernels.BASE_OFFSET)
    for index, (start, size, attributes, base) in enumerate(zip(*batches[list(columns)].tolist(), strict=True)):
        codec = attributes & _CODEC_BITS
        if codec > max(BatchCodec):
            raise UnsupportedBatchError(f"offset {base}: compression {codec} is not known", good_bytes=start)
        payload = source[start + batch_kernels.HEADER_SIZE : start + size]
        try:
            batches[batch_kernels.PAYLOAD_START, index], batches[batch_kernels.PAYLOAD_END, index] = arena.add(
                BatchCodec(codec), payload
            )
        except DecompressionError as error:
            if index:  # the batches before a broken one are good
                return index
            problem = LargeBatchError if isinstance(error, ExpandsError) else CorruptBatchError
            raise problem(f"offset {base}: {BatchCodec(codec).name} payload: {error}", good_bytes=start) from error
    return int(batches.shape[1])
