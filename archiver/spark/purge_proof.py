"""Proves that a purge loses nothing: a Spark job reads all replacements before a restore deletes any topic."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyspark import SparkContext

from archiver.archive.format.handle import patient_archive_of
from archiver.archive.format.layout import Layout
from archiver.archive.reading.reader import fetch_parts, found_or_gone, wanted_frames
from archiver.archive.segments.parts import ObjectPart, check_planned, parts_within
from archiver.archive.segments.segment import LoadedSegment, open_segment
from archiver.codec.selection import ALL_RECORDS, Selection
from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, CorruptSegmentError, FalseFactsError, NotWholeError, TemporaryError
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.purge.archived_logs import ArchivedLog
from archiver.restore.purge.purge_checks import ArchiveReading, Damage, Purge
from archiver.spark.session.tasks import run_on_spark
from archiver.upkeep.object_check import Level, check_content

_TASK_BYTES = 256 * 1024 * 1024  # of objects: some seconds of work, so that progress shows
_TASK_OBJECTS = 16  # if their bytes are unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTask:
    """Objects of one partition that one task reads whole."""

    storage: StorageConfig
    topic: str
    target: str
    partition: int
    parts: Sequence[ObjectPart]
    selection: Selection | None  # of the target's records; None: these objects are not for the target


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A task's findings in its objects; `error`: why it could not read all of them."""

    target: str
    damage: Sequence[Damage] = ()
    is_filled: bool = False  # a record is to be in the target
    error: str = ""
    is_temporary: bool = False
    is_false: bool = False  # an object differs from the plan, which therefore proves nothing


def read_whole(
    spark: SparkContext,
    storage: StorageConfig,
    topics: Sequence[TopicPlan],
    purge: Purge,
    report_progress: Callable[[int, int], None] | None = None,
) -> ArchiveReading:
    """Read all planned objects of these topics, and all archived objects of the topics that they replace.

    Each object is read once. Raises ArchiverError when some could not be read.
    """
    tasks = [task for topic in topics for task in _tasks(storage, topic, purge.archived.get(topic.target))]
    proofs = run_on_spark(spark, tasks, run_proof, lambda task: len(task.parts), report_progress)
    for proof in sorted(proofs, key=lambda one: one.is_temporary):
        if proof.error:
            kind = TemporaryError if proof.is_temporary else FalseFactsError if proof.is_false else ArchiverError
            raise kind(f"nothing is purged: what is to be in its place could not be read; {proof.error}")
    damage = sorted((one for proof in proofs for one in proof.damage), key=lambda one: (one.target, one.partition))
    return ArchiveReading(damage, {proof.target for proof in proofs if proof.is_filled})


def _tasks(storage: StorageConfig, topic: TopicPlan, itself: ArchivedLog | None) -> Iterator[ProofTask]:
    for one in topic.partitions:
        count = max(1, len(one.parts) * _TASK_BYTES // max(_TASK_BYTES, one.stored_bytes))
        yield from _shares(storage, topic, one.partition, one.planned_parts, one.selection, count)
    if itself is None:
        return
    planned = {one.partition: one.parts for one in topic.partitions}
    for number, archived in itself.partitions.items():
        rest = _others(parts_within(archived.readable, ALL_RECORDS), planned.get(number, ()))
        yield from _shares(storage, topic, number, rest, None, _TASK_OBJECTS)


def _shares(
    storage: StorageConfig,
    topic: TopicPlan,
    partition: int,
    parts: Sequence[ObjectPart],
    selection: Selection | None,
    count: int,
) -> Iterator[ProofTask]:
    for start in range(0, len(parts), count):
        yield ProofTask(
            storage=storage,
            topic=topic.source if selection is not None else topic.target,
            target=topic.target,
            partition=partition,
            parts=parts[start : start + count],
            selection=selection,
        )


def _others(parts: Sequence[ObjectPart], planned: Sequence[ObjectPart]) -> Sequence[ObjectPart]:
    """Return the objects of a purged topic that its plan does not read: each object is read once. Usually the plan reads all."""
    if len(parts) == len(planned) and all(
        one.object_key == other.object_key for one, other in zip(parts, planned, strict=True)
    ):
        return ()
    read = {part.object_key for part in planned}
    return [part for part in parts if part.object_key not in read]


def run_proof(task: ProofTask) -> Proof:
    """Read some objects. Errors are returned as a report, so that other tasks continue."""
    damage: list[Damage] = []
    is_filled = False
    try:
        store, layout = patient_archive_of(task.storage)
        for part, found in fetch_parts(store, task.parts):
            try:
                body = open_segment(*found_or_gone(store, part, found), part.object_key)
                _check(layout, body)
                if task.selection is not None:
                    check_planned(part, body.facts)
                    frames = wanted_frames(store, part, body, task.topic, task.partition, task.selection)
                    is_filled = any(map(len, frames)) or is_filled
            except NotWholeError as error:
                damage.append(Damage(task.target, task.partition, part.describe_damage(error)))
    except ArchiverError as error:
        return Proof(
            target=task.target,
            damage=damage,
            error=str(error),
            is_temporary=error.retriable,
            is_false=isinstance(error, FalseFactsError),
        )
    return Proof(target=task.target, damage=damage, is_filled=is_filled)


def _check(layout: Layout, body: LoadedSegment) -> None:
    key = layout.parse_stored(body.key)
    if key is None:
        raise CorruptSegmentError(f"{body.key}: is not the name of a segment")
    check_content(body, key, Level.RECORDS)
