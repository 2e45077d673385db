"""Writes one segment: collects rows of a partition until it is full, and makes one object of them. Backups and compacted copies use it."""

import hashlib
import io
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from archiver import __version__
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.block_budget import BlockBudget
from archiver.archive.segments.segment_facts import Hole, HoleCause, SegmentFacts, TransactionRange, format_for
from archiver.archive.segments.spool import Spool, in_spool
from archiver.codec.avro import (
    BLOCK_BYTES,
    SYNC_BYTES,
    BlockEncoder,
    encode_header,
)
from archiver.codec.compression import BlockCodec
from archiver.codec.frame import Column, Frame
from archiver.codec.tally import Tally
from archiver.errors import TemporaryError

# Object metadata may take 2 KB: holes must leave room for the other facts.
MOST_HOLES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLimits:
    """The limits of a full segment. 0: no limit."""

    uncompressed_bytes: int
    records: int = 0
    codec: BlockCodec = BlockCodec.ZSTANDARD
    level: int = 1


@dataclass(slots=True, kw_only=True)
class FinishedSegment:
    """A segment that is ready to be put: its facts, its header, and the file with its blocks."""

    source: PartitionSource
    facts: SegmentFacts
    header: bytes
    spool: Spool
    blocks: Path
    size: int

    def open_body(self) -> "SegmentBody":
        """Open the whole object for reading; the caller closes it."""
        with in_spool(self.blocks):
            return SegmentBody(self.header, self.blocks)

    def discard(self) -> None:
        """Delete the local file: the object will be made again. A reader with the file open can still read it."""
        self.blocks.unlink(missing_ok=True)

    def recycle(self) -> None:
        """Return the local file for overwriting: the object is durable, and no put reads the file any more."""
        self.spool.give_back(self.blocks)


class SegmentBody(io.RawIOBase):
    """Header and blocks as one seekable stream, without a copy of the blocks in memory."""

    def __init__(self, header: bytes, blocks: Path) -> None:
        super().__init__()
        self._header = header
        self._file = blocks.open("rb")
        self._size = len(header) + os.fstat(self._file.fileno()).st_size
        self._position = 0

    def __len__(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        part = self._header[self._position : self._position + wanted]
        if len(part) < wanted:
            self._file.seek(self._position + len(part) - len(self._header))
            part += self._file.read(wanted - len(part))
        self._position += len(part)
        return part

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        part = self.read(len(view))
        view[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass(slots=True)
class Coverage:
    """The offsets of a segment, with or without a record. It may begin before the segment has its first record."""

    base: int
    next: int
    leader_epoch: int = -1
    source_bytes: int = 0
    left_out: int = 0  # markers and aborted records
    stable_end: int | None = 0  # None: an answer had no last stable offset
    holes: list[Hole] = field(default_factory=list)

    def cover(
        self,
        next_offset: int,
        *,
        leader_epoch: int,
        source_bytes: int,
        left_out: int = 0,
        stable_end: int | None = None,
    ) -> None:
        """Extend the coverage to where the fetch ended: past markers, aborted records and compacted offsets.

        `left_out`: the number of markers and aborted records. All other offsets without a record were not served.
        `stable_end`: the last stable offset of the answer; None if it had none.
        """
        self.next = max(self.next, next_offset)
        self.leader_epoch = leader_epoch if leader_epoch >= 0 else self.leader_epoch
        self.source_bytes += source_bytes
        self.left_out += left_out
        self.stable_end = None if self.stable_end is None or stable_end is None else max(self.stable_end, stable_end)

    def note_hole(self, hole: Hole, *, has_records: bool = True) -> None:
        """Record offsets that could not be read. Without a record, holes join from MOST_HOLES on: metadata holds no more.

        Joined holes of several causes count as unreadable.
        """
        last = self.holes[-1] if self.holes else None
        is_next = last is not None and last.last_offset + 1 == hole.first_offset  # no record between them
        is_bounded = not has_records and len(self.holes) >= MOST_HOLES
        if last is not None and (is_bounded or (is_next and last.cause is hole.cause)):
            if not is_next:
                self.left_out = 0  # omitted offsets in between are now in the hole, and must not count twice
            cause = hole.cause if hole.cause is last.cause else HoleCause.UNREADABLE
            self.holes[-1] = replace(last, last_offset=hole.last_offset, cause=cause)
        else:
            self.holes.append(hole)
        self.next = max(self.next, hole.last_offset + 1)

    def unserved(self, records: int) -> int:
        """Count the offsets that no batch served: neither records, nor left out, nor in a hole."""
        in_holes = sum(hole.last_offset - hole.first_offset + 1 for hole in self.holes)
        return self.next - self.base - records - self.left_out - in_holes


class OpenSegment:
    """Rows of one partition that are being written to one object.

    Compressed blocks are appended to a local file, which is worthless after a crash: Kafka still has the records. The file is
    opened for each append, so that thousands of open segments do not need thousands of file handles.
    """

    def __init__(
        self,
        source: PartitionSource,
        base: int,
        limits: SegmentLimits,
        spool: Spool,
        blocks: BlockBudget | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        self.source = source
        self._limits = limits
        self._sync = os.urandom(SYNC_BYTES)
        self._blocks = BlockEncoder(
            topic=source.topic,
            partition=source.partition,
            codec=limits.codec,
            level=limits.level,
            sync=self._sync,
            overflow=spool.overflow,
        )
        self._spool = spool
        # The name leaves out the topic: a topic's name may be as long as the limit of file names.
        self._file = spool.new_file(f"{source.partition}-{base}")
        self._budget = blocks or BlockBudget()
        self._budget.enter()
        self._holds_room = True
        self._file_bytes = 0
        self._uncompressed = 0
        self._sha256 = hashlib.sha256()
        self._tally = Tally()
        self._coverage = coverage or Coverage(base=base, next=base)
        self.cover, self.note_hole = self._coverage.cover, self._coverage.note_hole

    @property
    def records(self) -> int:
        return self._tally.records

    @property
    def next(self) -> int:
        """The offset at which the next segment begins."""
        return self._coverage.next

    @property
    def spooled_bytes(self) -> int:
        return self._file_bytes

    @property
    def is_full(self) -> bool:
        limits = self._limits
        return (
            (
                limits.uncompressed_bytes > 0
                and self._uncompressed + self._blocks.pending_bytes >= limits.uncompressed_bytes
            )
            or (limits.records > 0 and self.records >= limits.records)
            or (self.records > 0 and len(self._coverage.holes) >= MOST_HOLES)  # holes alone make no segment
        )

    def append(self, frame: Frame, start: int) -> int:
        """Append rows from `start` on, up to and with the row that fills the segment. Returns the first row not appended."""
        row = start
        if row < len(frame) and frame.table[Column.OFFSET, row] < self.next:
            raise ValueError(f"{self.source}: offset {frame.table[Column.OFFSET, row]} is below {self.next}")
        while row < len(frame) and not self.is_full:
            stop = len(frame)
            if self._limits.records:
                stop = min(stop, row + self._limits.records - self.records)
            block_bytes = self._budget.block_bytes
            after = self._blocks.append(frame, row, stop, min(block_bytes, self._left_bytes()))
            if after > row:
                self._tally.add(frame, row, after)
                self._coverage.next = self._tally.last + 1
                row = after
            if self._blocks.is_full or self._blocks.pending_bytes >= block_bytes:
                self._flush_block()
        return row

    def _left_bytes(self) -> int:
        """Return how large the current block may grow near the segment's limit."""
        limit = self._limits.uncompressed_bytes
        return limit - self._uncompressed if limit else BLOCK_BYTES

    def _flush_block(self) -> None:
        self._uncompressed += self._blocks.pending_bytes
        with (
            in_spool(self._file),
            self._file.open("r+b") as file,
        ):  # buffered, because a raw write may write only a part, without an error
            if file.seek(0, io.SEEK_END) < self._file_bytes:
                raise self._touched()
            file.seek(self._file_bytes)
            for piece in self._blocks.flush():
                self._sha256.update(piece)
                self._file_bytes += file.write(piece)

    def finish(self, transactions: tuple[TransactionRange, ...] = ()) -> FinishedSegment:
        """Write pending rows and compute the facts. The segment must have a record; it cannot be used afterwards.

        `transactions`: for records of `__consumer_offsets`, how long they may have waited for their commit marker.
        """
        if not self.records:
            raise ValueError(f"{self.source}: there is no segment without a record")
        self._flush_block()
        self._leave_room()
        with in_spool(self._file):
            if self._file.stat().st_size < self._file_bytes:
                raise self._touched()
            os.truncate(self._file, self._file_bytes)
        facts = replace(self._facts(), transactions=transactions or None)
        header = encode_header(self._limits.codec, self._sync, facts.to_header())
        return FinishedSegment(
            source=self.source,
            facts=facts,
            header=header,
            spool=self._spool,
            blocks=self._file,
            size=len(header) + self._file_bytes,
        )

    def _touched(self) -> TemporaryError:
        return TemporaryError(f"{self._file}: is not what was written to it; Kafka still has the records")

    def _facts(self) -> SegmentFacts:
        coverage = self._coverage
        return SegmentFacts(
            format=format_for(coverage.holes),
            writer=__version__,
            cluster_id=self.source.cluster_id,
            topic_id=self.source.topic_id,
            leader_epoch=coverage.leader_epoch,
            base=coverage.base,
            next=coverage.next,
            source_bytes=coverage.source_bytes,
            holes=tuple(coverage.holes),
            unserved=coverage.unserved(self.records),
            stable_end=coverage.stable_end,
            sha256=self._sha256.hexdigest(),
            **self._tally.facts(),
        )

    def discard(self) -> None:
        """Drop all records, and delete the local file; Kafka still has the records."""
        self._leave_room()
        self._file.unlink(missing_ok=True)

    def _leave_room(self) -> None:
        if self._holds_room:
            self._holds_room = False
            self._budget.leave()
