"""What a restore will read, read whole before anything is deleted for it, as a Spark job: every digest, CRC and fact."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark import SparkContext

from archiver.chosen import read_chosen
from archiver.config import StorageConfig
from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError, TemporaryError
from archiver.layout import Layout
from archiver.parts import ObjectPart
from archiver.reader import fetch_parts, found_or_gone
from archiver.restore import PartitionPlan, TopicPlan
from archiver.spark.purge import Damage
from archiver.spark.stores import patient_store_of
from archiver.spark.tasks import run_on_spark
from archiver.store import ObjectStore
from archiver.verify import Level, check_content

_TASK_BYTES = 256 * 1024 * 1024  # of objects: some seconds of work, so that progress shows


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTask:
    """Objects that one task reads."""

    storage: StorageConfig
    target: str
    partition: int
    parts: Sequence[ObjectPart]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a task found; `error`: what kept it from looking at all of them."""

    damage: tuple[Damage, ...] = ()
    error: str = ""
    is_temporary: bool = False


def find_damage(
    spark: SparkContext,
    storage: StorageConfig,
    topics: Sequence[TopicPlan],
    tell: Callable[[int, int], None] | None = None,
) -> list[Damage]:
    """Read all that is planned of these topics, each object once. Raises ArchiverError when some could not be looked at."""
    tasks = [task for topic in topics for one in topic.partitions for task in _tasks(storage, topic.target, one)]
    proofs = run_on_spark(spark, tasks, run_proof, lambda task: len(task.parts), tell)
    for proof in sorted(proofs, key=lambda one: one.is_temporary):
        if proof.error:
            kind = TemporaryError if proof.is_temporary else ArchiverError
            raise kind(f"nothing is purged: what is to be in its place could not be read; {proof.error}")
    return sorted((one for proof in proofs for one in proof.damage), key=lambda one: (one.target, one.partition))


def _tasks(storage: StorageConfig, target: str, partition: PartitionPlan) -> Iterator[ProofTask]:
    parts = partition.parts
    count = max(1, len(parts) * _TASK_BYTES // max(_TASK_BYTES, partition.stored_bytes))
    for start in range(0, len(parts), count):
        yield ProofTask(
            storage=storage, target=target, partition=partition.partition, parts=parts[start : start + count]
        )


def run_proof(task: ProofTask) -> Proof:
    """Read some objects. Errors come back as a report, so that the other tasks go on."""
    damage: list[Damage] = []
    try:
        store = patient_store_of(task.storage)
        layout = Layout(task.storage.prefix)
        for part, found in fetch_parts(store, task.parts):
            try:
                _check(store, layout, part, *found_or_gone(part, found))
            except NotWholeError as error:
                damage.append(Damage(task.target, task.partition, part.tell(error)))
    except ArchiverError as error:
        return Proof(damage=tuple(damage), error=str(error), is_temporary=error.retriable)
    return Proof(damage=tuple(damage))


def _check(
    store: ObjectStore, layout: Layout, part: ObjectPart, content: bytes | memoryview, metadata: Mapping[str, str]
) -> None:
    key = layout.parse_segment(part.object_key)
    if key is None:
        raise CorruptSegmentError(f"{part.object_key}: is not the name of a segment")
    check_content(content, metadata, key, part.object_key, Level.RECORDS)
    if part.chosen_key is not None:
        read_chosen(store, part.chosen_key)
