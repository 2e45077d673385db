"""Reads one finished segment back into frames, and compares it with its facts."""

import hashlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from archiver.archive.segment_facts import SegmentFacts, facts_from_header
from archiver.codec.avro import (
    ContainerHeader,
    decode_blocks,
    decode_header,
)
from archiver.codec.frame import Column, Frame
from archiver.codec.kernels.rows import offsets_rise
from archiver.errors import CorruptSegmentError
from archiver.process.text import spell_count


def read_segment(
    content: bytes | memoryview,
    facts: SegmentFacts | None,
    *,
    topic: str,
    partition: int,
    key: str,
    from_offset: int = 0,
    until_offset: int | None = None,
    check: Callable[[SegmentFacts | None], None] = lambda _: None,
) -> Iterator[Frame]:
    """Read an object back, checked against its facts; without empty frames; only records from one offset on and below another.

    `facts` are those of the object's metadata; None when it has none: a v1.0 object, which has none at all, or a copy
    that lost them, which still has those of its header. Raises CorruptSegmentError, before the first frame when the
    bytes are not those that were written.
    """
    view = memoryview(content)
    header, facts = check_header(view, facts, key)
    check(facts)
    if facts is not None:
        check_bytes(view, header, facts, key)
    counted = 0
    previous = facts.first - 1 if facts is not None else -1
    for frame in decode_blocks(view, header, topic=topic, partition=partition, key=key):
        if not len(frame):
            continue
        previous = _check_offsets(frame, previous, key)
        counted += len(frame)
        start = _first_at(frame, from_offset)
        stop = len(frame) if until_offset is None else _first_at(frame, until_offset)
        if start < stop:
            yield frame if stop - start == len(frame) else frame.rows(start, stop)
    if facts is not None:
        check_record_count(counted, previous, facts, key)


def check_header(
    content: memoryview, facts: SegmentFacts | None, key: str
) -> tuple[ContainerHeader, SegmentFacts | None]:
    """Read the Avro header, which must have the facts of the object's metadata; if that has none, they are the facts."""
    header = decode_header(content, key)
    if facts is None:
        return header, facts_from_header(header.metadata, key)
    _compare_header(facts, header.metadata, key)
    return header, facts


def check_bytes(content: memoryview, header: ContainerHeader, facts: SegmentFacts, key: str) -> None:
    """Compare everything behind the header with its SHA-256."""
    actual = hashlib.sha256(content[header.size :]).hexdigest()
    if actual != facts.sha256:
        raise CorruptSegmentError(
            f"{key}: its bytes are not those that were written (SHA-256 {actual[:12]}…, not {facts.sha256[:12]}…)"
        )


def check_record_count(counted: int, last_offset: int, facts: SegmentFacts, key: str) -> None:
    """Compare what a body held with the facts: an object cut at a block boundary reads as a shorter valid file."""
    if (counted, last_offset) != (facts.records, facts.last):
        raise CorruptSegmentError(
            f"{key}: {spell_count(counted, 'record')} up to offset {last_offset}, not {facts.records} up to {facts.last}:"
            " the object was cut"
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
