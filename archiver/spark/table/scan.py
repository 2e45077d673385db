"""One scan of a topic: plans its tasks from facts alone, and runs a task.

Needs no Spark. It belongs here because both halves are the data source's own: the plan follows the options
of the data source, and a task gives rows of its columns.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from archiver.archive.copies.archived_topic import ArchivedTopic, problems_within, wanted_readings
from archiver.archive.copies.copied_topic import CopyChoice
from archiver.archive.format.handle import Archive, archive_of
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.reading.catalog import find_topic
from archiver.archive.reading.reader import fetch_parts, open_part
from archiver.archive.segments.partition_segments import SegmentSlice, blocks_of
from archiver.archive.segments.parts import ObjectPart, parts_within
from archiver.codec.selection import ALL_RECORDS, Selection, Wanted
from archiver.config.model import StorageConfig
from archiver.errors import NotWholeError
from archiver.process.values.columns import Chain, Numbers
from archiver.spark.table.options import OnDamage, ScanOptions
from archiver.store.shared import patient_store_of

if TYPE_CHECKING:
    import pyarrow as pa

    from archiver.archive.segments.segment import LoadedSegment
    from archiver.codec.arrow_scan import Scanner

log = logging.getLogger(__name__)

# The wanted records of a partition, besides the options; None: no record.
Narrow = Callable[[int], Selection | None]

HOW_TO_GO_ON = "; to read the rest, set option onDamage to skip"
TASK_BYTES = 64 * 1024 * 1024  # stored; two objects of the usual size, whose fetch and decoding overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """Objects of one partition that one task reads, in order."""

    storage: StorageConfig
    topic: str
    partition: int
    columns: tuple[str, ...]
    selection: Selection
    parts: Sequence[ObjectPart]
    is_hashed: bool  # its bytes are compared with its SHA-256 before its first record
    tries_first: bool  # one of v1.0, which has no SHA-256, is read to its end before its first record
    skips_damage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """The tasks of a scan, and the wanted records that the archive cannot give."""

    tasks: tuple[ScanTask, ...]
    missing: tuple[str, ...]


def plan_scan(
    options: ScanOptions,
    narrow: Narrow,
    parallelism: int,
    task_bytes: int = TASK_BYTES,
    given_up: Collection[str] = (),
) -> ScanPlan:
    """List the topic's objects, and share the wanted ones among tasks.

    `given_up`: objects that are not read, and missing parts that were reported before.
    """
    archive = archive_of(options.storage)
    told: list[str] = []

    def selection_of(number: int) -> Selection | None:
        asked, left = options.wanted.of(number), narrow(number)
        selection = None if asked is None or left is None else asked.within(left)
        return None if selection is None or selection.is_empty else selection

    topic = _find(archive, options, selection_of, told.append)
    readings: dict[int, Sequence[SegmentSlice]] = {}
    selections: dict[int, Selection] = {}
    for number in sorted({*topic.partitions, *topic.damaged}):
        selection = selection_of(number)
        if selection is None:
            continue
        told += problems_within(topic, number, selection)
        wanted = wanted_readings(topic.partitions.get(number, EMPTY_PARTITION).readable, selection)
        readings[number] = _without(wanted, given_up)
        selections[number] = selection
    return ScanPlan(
        tasks=tuple(_share(options, readings, selections, max(parallelism, options.min_tasks or 1), task_bytes)),
        missing=tuple(problem for problem in told if problem not in given_up),
    )


def _find(
    archive: Archive, options: ScanOptions, reads: Wanted, report_problem: Callable[[str], None]
) -> ArchivedTopic:
    found = find_topic(
        archive,
        options.topic,
        options.life,
        choice=CopyChoice(instance=options.instance, is_history=options.is_history),
        use=options.storage.index,
        reads=reads,
        report_problem=report_problem,
    )
    for note in found.notes:
        log.warning("%s", note)
    return found


def report_missing(plan: ScanPlan, on_damage: OnDamage) -> None:
    """Raise NotWholeError for missing parts of a plan, or log them, by option onDamage."""
    if plan.missing and on_damage is OnDamage.FAIL:
        raise NotWholeError("; ".join(plan.missing) + HOW_TO_GO_ON)
    for problem in plan.missing:
        log.warning("skipped: %s", problem)


def _share(
    options: ScanOptions,
    readings: Mapping[int, Sequence[SegmentSlice]],
    selections: Mapping[int, Selection],
    parallelism: int,
    task_bytes: int,
) -> list[ScanTask]:
    stored = sum(int(sizes_of(found).sum()) for found in readings.values())
    limit = min(task_bytes, max(1, stored // parallelism))
    return [
        ScanTask(
            storage=options.storage,
            topic=options.topic,
            partition=number,
            columns=options.columns,
            selection=selections[number],
            parts=parts_within(group, ALL_RECORDS),
            is_hashed=options.is_hashed,
            tries_first=options.on_damage is OnDamage.SKIP,
            skips_damage=options.on_damage is OnDamage.SKIP,
        )
        for number, found in readings.items()
        for group in grouped(found, limit)
    ]


def _without(readings: Sequence[SegmentSlice], given_up: Collection[str]) -> Sequence[SegmentSlice]:
    if not given_up:
        return readings
    kept = ((block, [key not in given_up for key in block.segments.object_keys()]) for block in blocks_of(readings))
    return Chain(block.only(np.flatnonzero(chosen)) for block, chosen in kept)


def sizes_of(readings: Sequence[SegmentSlice]) -> Numbers:
    """Return how many bytes each object has in the store."""
    sizes = [block.segments.numbers("size").astype(np.int64) for block in blocks_of(readings)]
    return np.concatenate(sizes) if sizes else np.zeros(0, np.int64)


def grouped(readings: Sequence[SegmentSlice], limit_bytes: int) -> list[Sequence[SegmentSlice]]:
    """Cut a partition's objects into runs of about the limit, all of about one size; an object is never cut."""
    sizes = sizes_of(readings)
    stored = int(sizes.sum())
    count = max(1, -(-stored // limit_bytes))
    middles = np.cumsum(sizes) - sizes / 2
    groups = np.minimum(count - 1, (middles * count / max(1, stored)).astype(np.int64))
    bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(readings)]
    return [readings[start:stop] for start, stop in pairwise(bounds) if start < stop]


def read_task(task: ScanTask) -> Iterator["pa.RecordBatch"]:
    """Read a task's objects; the next one is fetched while one is decoded. Batches without a row are left out."""
    from archiver.codec.arrow_scan import Scanner  # noqa: PLC0415 - kernels, which planning does not need

    store = patient_store_of(task.storage)
    scanner = Scanner(topic=task.topic, partition=task.partition, columns=task.columns)
    for part, found in fetch_parts(store, task.parts):
        try:
            yield from _read_part(task, scanner, part, open_part(store, part, found), tries_first=task.tries_first)
        except NotWholeError as error:
            if not task.skips_damage:
                raise
            log.warning("skipped: %s", error)


def scan_for_damage(task: ScanTask) -> list[tuple[str, str]]:
    """Read a task's objects as `read_task` does, without their records. Returns (key, problem) of each damaged object."""
    from archiver.codec.arrow_scan import Scanner  # noqa: PLC0415 - as above

    store = patient_store_of(task.storage)
    scanner = Scanner(topic=task.topic, partition=task.partition, columns=task.columns)
    damaged: list[tuple[str, str]] = []
    for part, found in fetch_parts(store, task.parts):
        try:
            for _ in _read_part(task, scanner, part, open_part(store, part, found)):
                pass
        except NotWholeError as error:
            damaged.append((part.object_key, f"{task.topic}-{task.partition}: {part}: {error}"))
    return damaged


def _read_part(
    task: ScanTask, scanner: "Scanner", part: ObjectPart, body: "LoadedSegment", *, tries_first: bool = False
) -> Iterator["pa.RecordBatch"]:
    """Read the wanted records of an object. `tries_first`: an object of v1.0 is read to its end first; if damaged, it gives no record."""
    if task.is_hashed:
        body.check_bytes()
    bounds = Selection(first_offset=part.from_offset)
    if part.until_offset is not None:
        bounds = Selection(first_offset=part.from_offset, last_offset=part.until_offset - 1)
    wanted = task.selection.within(bounds)
    if (
        body.facts is None and tries_first
    ):  # v1.0 has no digest: damage may show only in its last block, which is too late
        for _ in scanner.scan(body.content, body.header, part.object_key, wanted):
            pass
    counted, last_offset = 0, -1
    for scanned in scanner.scan(body.content, body.header, part.object_key, wanted):
        counted, last_offset = scanned.counted, scanned.last_offset
        if scanned.batch.num_rows:
            yield scanned.batch
    body.check_records(counted, last_offset)
