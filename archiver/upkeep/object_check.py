"""Compares objects with their facts, by blocks or by records: single objects, or all of a task of `verify`.

Sweeps and proofs of a purge check single objects by it, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from archiver.archive.format.layout import CopyKey, SegmentKey
from archiver.archive.reading.reader import fetch_parts, found_or_gone
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.parts import ObjectPart
from archiver.archive.segments.segment import LoadedSegment, open_segment
from archiver.codec.avro import encode_header, says_the_same
from archiver.codec.tally import Tally
from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError, SweptError
from archiver.store.shared import patient_store_of
from archiver.upkeep.covered_ranges import Covered, CoveredRanges


class Level(StrEnum):
    """How much of the archive is read. Each level also checks what the ones before check."""

    LISTING = "listing"  # object names and metadata: every offset is covered, or its absence is explained
    COUNTS = "counts"  # all blocks of all objects, but no record: the blocks count as many records as the facts
    RECORDS = (
        "records"  # every record: it can be decoded, offsets rise, and the sums and digests are those of the facts
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings of one task: the number of examined objects or records, and problems; `error`: why some are unexamined."""

    examined: int = 0
    problems: tuple[str, ...] = ()
    outdated: CopyKey | None = None  # a copy with keys that Kafka no longer has
    error: str = ""
    exit_code: int = 0


def check_object(body: LoadedSegment, key: SegmentKey, level: Level, covered: Sequence[Covered] = ()) -> None:
    """Check an object of the archive, and at level `records` that it has the records of the objects that it covers.

    Unlike a copy of its bytes, it must have its facts as metadata.
    """
    if body.is_of_ours and not body.has_metadata:
        raise CorruptSegmentError(f"{body.key}: has no archiver-* metadata; copy it again, with its metadata")
    check_content(body, key, level, covered)


def check_content(body: LoadedSegment, key: SegmentKey, level: Level, covered: Sequence[Covered] = ()) -> None:
    """Compare an object with its facts. Raises NotWholeError, which names the object.

    An object of v1.0 has no facts: it must only be readable.
    """
    if level is Level.COUNTS:
        body.check_blocks()
    else:
        _check_records(body, key, covered)


def _check_records(body: LoadedSegment, key: SegmentKey, covered: Sequence[Covered]) -> None:
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


_TASK_BYTES: Final = 256 * 1024 * 1024  # bytes of objects in a task: some seconds of work, so that progress shows


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTask:
    """The objects that one task reads."""

    storage: StorageConfig
    level: Level
    segments: tuple[Segment, ...]
    covered: Mapping[str, Sequence[Covered]] = field(
        default_factory=dict
    )  # the covered objects, by the key of the covering one


def check_tasks(
    storage: StorageConfig,
    segments: Sequence[Segment],
    level: Level,
    covered: Mapping[str, Sequence[Covered]] | None = None,
) -> Iterator[CheckTask]:
    """Share objects among tasks. `covered`: covered objects, by the key of the covering one."""

    def task(chosen: Sequence[Segment]) -> CheckTask:
        some = (
            {one.object_key: covered[one.object_key] for one in chosen if one.object_key in covered} if covered else {}
        )
        return CheckTask(storage=storage, level=level, segments=tuple(chosen), covered=some)

    chosen: list[Segment] = []
    size = 0
    for segment in segments:
        chosen.append(segment)
        size += segment.size
        if size >= _TASK_BYTES:
            yield task(chosen)
            chosen, size = [], 0
    if chosen:
        yield task(chosen)


def run_check(task: CheckTask) -> Findings:
    """Check the objects of a task. An error is returned in the findings, so that other tasks continue."""
    problems: list[str] = []
    checked = 0
    try:
        store = patient_store_of(task.storage)
        parts = [
            ObjectPart(object_key=segment.object_key, from_offset=0, next_offset=segment.facts.next)
            for segment in task.segments
        ]
        for segment, (part, found) in zip(task.segments, fetch_parts(store, parts), strict=True):
            try:
                key, covered = segment.object_key, task.covered.get(segment.object_key, ())
                check_object(open_segment(*found_or_gone(store, part, found), key), segment.key, task.level, covered)
            except SweptError:  # a deleted object cannot be wrong
                continue
            except NotWholeError as error:
                problems.append(str(error))
            checked += 1
    except ArchiverError as error:
        return Findings(examined=checked, problems=tuple(problems), error=str(error), exit_code=error.exit_code)
    return Findings(examined=checked, problems=tuple(problems))
