"""Opens one wholly fetched segment: its header, blocks and records, compared with its facts. Readers and `verify` use it."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from archiver.archive.segments.segment_facts import SegmentFacts, facts_from_header, facts_from_metadata
from archiver.codec.avro import RECORD_SCHEMAS, ContainerHeader, decode_blocks, decode_header, split_blocks
from archiver.codec.frame import Column, Frame
from archiver.codec.kernels.rows import offsets_rise
from archiver.errors import CorruptSegmentError
from archiver.process.output.text import spell_count


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSegment:
    """A whole object in memory. The facts of its metadata and of its header agree."""

    key: str
    content: memoryview
    header: ContainerHeader
    facts: SegmentFacts | None  # None: an object of v1.0
    has_metadata: bool  # its metadata also has the facts; a copy of the bytes alone has them only in its header

    @property
    def is_of_ours(self) -> bool:
        """Return whether this program or an earlier version has written the object; objects of v1.0 have no facts."""
        return RECORD_SCHEMAS[self.header.schema].second_version or self.facts is not None

    def check_bytes(self) -> None:
        """Compare all bytes behind the header with the SHA-256 of the facts, if it has facts."""
        if self.facts is None:
            return
        actual = hashlib.sha256(self.content[self.header.size :]).hexdigest()
        if actual != self.facts.sha256:
            raise CorruptSegmentError(
                f"{self.key}: its bytes are not those that were written (SHA-256 {actual[:12]}…, not"
                f" {self.facts.sha256[:12]}…)"
            )

    def check_records(self, counted: int, last_offset: int) -> None:
        """Compare the read records with the facts: an object cut at a block boundary is a shorter valid file."""
        if self.facts is not None and (counted, last_offset) != (self.facts.records, self.facts.last):
            raise CorruptSegmentError(
                f"{self.key}: {spell_count(counted, 'record')} up to offset {last_offset}, not {self.facts.records} up to"
                f" {self.facts.last}: the object was cut"
            )

    def check_blocks(self) -> None:
        """Count the records of all blocks, without decoding them, and compare the sum with the facts."""
        self.check_block_counts(sum(block.count for block in split_blocks(self.content, self.header, self.key)))

    def check_block_counts(self, counted: int) -> None:
        """Compare the sum of the blocks' record counts with the facts."""
        if self.facts is not None and counted != self.facts.records:
            raise CorruptSegmentError(
                f"{self.key}: {spell_count(counted, 'record')} in its blocks, {self.facts.records} in its facts"
            )

    def frames(
        self, topic: str, partition: int, from_offset: int = 0, until_offset: int | None = None
    ) -> Iterator[Frame]:
        """Read the records from one offset on and below another, without empty frames; compare all records with the facts.

        Raises CorruptSegmentError; before the first frame if the bytes differ from the written ones.
        """
        self.check_bytes()
        counted = 0
        previous = self.facts.first - 1 if self.facts is not None else -1
        for frame in decode_blocks(self.content, self.header, topic=topic, partition=partition, key=self.key):
            if not len(frame):
                continue
            previous = _check_offsets(frame, previous, self.key)
            counted += len(frame)
            start = _first_at(frame, from_offset)
            stop = len(frame) if until_offset is None else _first_at(frame, until_offset)
            if start < stop:
                yield frame if stop - start == len(frame) else frame.rows(start, stop)
        self.check_records(counted, previous)


def open_segment(content: bytes | memoryview, metadata: Mapping[str, str], key: str) -> LoadedSegment:
    """Read the Avro header of an object, and compare its facts with those of the object's metadata.

    An object of v1.0, or a copy that lost its metadata, has no facts there: the header's facts, if any, are used.
    Raises NotWholeError.
    """
    view = memoryview(content)
    facts = facts_from_metadata(metadata, key)
    header = decode_header(view, key)
    if facts is not None:
        _compare_header(facts, header.metadata, key)
    return LoadedSegment(
        key=key,
        content=view,
        header=header,
        facts=facts_from_header(header.metadata, key) if facts is None else facts,
        has_metadata=facts is not None,
    )


def _compare_header(facts: SegmentFacts, metadata: Mapping[str, str], key: str) -> None:
    inside = facts_from_header(metadata, key)
    if inside is None:
        raise CorruptSegmentError(f"{key}: the object's metadata has facts, its Avro header has none")
    if differing := facts.differing(inside):
        raise CorruptSegmentError(f"{key}: object metadata and Avro header differ in {', '.join(differing)}")


def _check_offsets(frame: Frame, previous: int, key: str) -> int:
    if not offsets_rise(frame.table, previous):
        raise CorruptSegmentError(f"{key}: offsets do not rise after {previous}")
    return int(frame.table[Column.OFFSET, -1])


def _first_at(frame: Frame, offset: int) -> int:
    return int(np.searchsorted(frame.column(Column.OFFSET), offset))
