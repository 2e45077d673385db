"""Decodes fetched record batches for the partition writer, and finds their faults."""

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.block_budget import DecodingBudget
from archiver.codec.avro import MOST_BLOCK_BYTES
from archiver.codec.batch import DecodedBatches, Scratch, decode_batches, first_batch_bytes, whole_batches
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.kernels.batches import BASE_OFFSET, LEADER_EPOCH
from archiver.errors import CorruptBatchError, LargeBatchError

log = logging.getLogger(__name__)

_AVRO_OF_HEADERS = 6  # growth of headers in Avro: five times for keys that are not UTF-8, and framing

Aborted = tuple[tuple[int, int], ...]  # producer id and first offset of aborted transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """The records of one fetch at `position`."""

    position: int
    records: memoryview
    aborted: Aborted = ()
    follows: bool = False  # this is the rest of a fetch: none of its batches may begin below the position
    stable_end: int | None = None  # the last stable offset of the answer; None if it had none
    charged_bytes: int = 0  # bytes of its first batches that a segment has counted already


def fault_of(
    records: memoryview, position: int, aborted: Aborted, most_bytes: int, decoding: DecodingBudget
) -> CorruptBatchError | None:
    """Decode the first batch of a fetch at `position`, to find its fault. None: it has none."""
    with decoding.lend(most_bytes) as scratch:
        try:
            decode_for_archive(records[: first_batch_bytes(records)], position, aborted, most_bytes, scratch)
        except CorruptBatchError as error:
            return without_frames(error)
    return None


def decode_for_archive(
    batches: memoryview, position: int, aborted: Aborted, most_bytes: int, scratch: Scratch
) -> DecodedBatches:
    decoded = decode_batches(batches, position, aborted, most_bytes, scratch)
    for frame in decoded.frames():
        if len(frame.body) * _AVRO_OF_HEADERS <= MOST_BLOCK_BYTES:
            break
        if too_large_rows(frame).any():
            raise LargeBatchError(f"offset {position}: a record with headers that no reader of the archive would open")
    return decoded


def too_large_rows(frame: Frame) -> npt.NDArray[np.bool_]:
    """Return which records no reader of the archive would open."""
    sizes = frame.table[[Column.KEY_LENGTH, Column.VALUE_LENGTH]].clip(0).sum(axis=0)
    return np.asarray(sizes + _AVRO_OF_HEADERS * frame.column(Column.HEADER_LENGTH) > MOST_BLOCK_BYTES)


def report_oddities(source: PartitionSource, position: int, decoded: DecodedBatches) -> None:
    """Log what producers wrote wrong in the formats before Kafka 0.11: it is archived as it is."""
    if decoded.wrong_inside or decoded.cut_sets:
        log.warning(
            "%s: offsets %d to %d: %d messages have a wrong checksum inside a compressed one, and %d compressed ones end early;"
            " their producers wrote them so, and they are archived as they are",
            source,
            position,
            decoded.next_offset - 1,
            decoded.wrong_inside,
            decoded.cut_sets,
        )


def without_frames(error: CorruptBatchError) -> CorruptBatchError:
    """Return the error without its traceback: the traceback keeps frames alive, and with them decompressed data, 256 MiB of a bomb."""
    return type(error)(str(error))


def epoch_of(batches: Longs) -> int:
    """Return the leader epoch of the last batch of a table; -1 without a batch."""
    return int(batches[LEADER_EPOCH, -1]) if batches.shape[1] else -1


def epoch_before(content: memoryview, offset: int) -> int:
    batches, _ = whole_batches(content, offset)
    return epoch_of(batches[:, batches[BASE_OFFSET] < offset])
