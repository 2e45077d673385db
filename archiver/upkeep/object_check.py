"""Checks one object of records: its blocks or its records against its facts, as `verify` and sweeps do."""

from collections.abc import Sequence
from enum import StrEnum

from archiver.archive.layout import SegmentKey
from archiver.archive.segment import SegmentBody
from archiver.codec.avro import encode_header, says_the_same
from archiver.codec.tally import Tally
from archiver.errors import CorruptSegmentError
from archiver.upkeep.covered_ranges import Covered, CoveredRanges


class Level(StrEnum):
    """How much of the archive is read. Each level also checks what the ones before check."""

    LISTING = "listing"  # object names and metadata: every offset is covered, or its absence is explained
    COUNTS = "counts"  # all blocks of all objects, but no record: the blocks count as many records as the facts
    RECORDS = (
        "records"  # every record: it can be decoded, offsets rise, and the sums and digests are those of the facts
    )


def check_object(body: SegmentBody, key: SegmentKey, level: Level, covered: Sequence[Covered] = ()) -> None:
    """Check an object of the archive, and at level `records` that it has the records of those that it covers.

    Unlike a copy of its bytes, it must have its facts as metadata.
    """
    if body.is_of_ours and not body.has_metadata:
        raise CorruptSegmentError(f"{body.key}: has no archiver-* metadata; copy it again, with its metadata")
    check_content(body, key, level, covered)


def check_content(body: SegmentBody, key: SegmentKey, level: Level, covered: Sequence[Covered] = ()) -> None:
    """Compare an object with its facts. Raises NotWholeError, which names the object.

    An object of v1.0 has no facts: it must only be readable.
    """
    if level is Level.COUNTS:
        body.check_blocks()
    else:
        _check_records(body, key, covered)


def _check_records(body: SegmentBody, key: SegmentKey, covered: Sequence[Covered]) -> None:
    name, facts, header = body.key, body.facts, body.header
    # No SHA-256 covers the header, and readers ignore some of its bytes: compare all of it.
    if facts is not None and not says_the_same(
        bytes(body.content[: header.size]), encode_header(header.codec, header.sync, facts.to_header())
    ):
        raise CorruptSegmentError(f"{name}: its header is not as it was written")
    tally, ranges = Tally(), CoveredRanges(covered)
    for frame in body.frames(key.topic, key.partition):
        tally.add(frame)
        ranges.add(frame)
    differing = [] if facts is None else [fact for fact, one in tally.facts().items() if getattr(facts, fact) != one]
    if differing:
        raise CorruptSegmentError(f"{name}: its records do not add up to its facts: {', '.join(differing)}")
    if told := ranges.difference():
        raise CorruptSegmentError(f"{name}: {told}")
