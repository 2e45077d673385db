"""The input and the report of one partition's restore task. Both are plain and picklable."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from archiver.archive.format.handle import Archive
from archiver.archive.reading.reader import SkipDamaged, read_parts, spare_buffers
from archiver.archive.segments.parts import ObjectPart
from archiver.archive.segments.record_counts import Count
from archiver.codec.frame import Frame
from archiver.codec.selection import Selection
from archiver.config.model import StorageConfig
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours

CREATE_TIME = 0  # a type of timestamp, as Kafka numbers them


class Origin(NamedTuple):
    """The archived topic of a task."""

    topic: str
    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FillMode:
    """How a task treats damage, and records that are on the target."""

    skips_damage: bool
    reads_again: bool  # also partitions that an earlier run has read back
    appends: bool  # behind records of others


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLimits:
    """The sizes of a task's batches, and their rate."""

    batch_bytes: int  # of the records of a batch
    sent_bytes: int  # of a batch on the wire
    rate_bytes: int  # a second; 0: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTask:
    """The input of a task that restores one partition of a topic."""

    restore_id: str
    storage: StorageConfig
    kafka: KafkaSettings
    origin: Origin
    target_topic: str
    target_topic_id: str
    target_cluster_id: str
    partition: int
    parts: Sequence[ObjectPart]
    selection: Selection
    selection_digest: str
    wanted: Count  # records, by the facts of objects
    mode: FillMode
    first_offset: int  # the end of the records of others at the survey, or the start of an existing claim
    limits: SendLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The result of a task; `error` is empty if the partition is whole on the target."""

    target_topic: str
    partition: int
    records: int = 0
    already_there: int = 0
    bytes: int | None = None  # of keys and values; None: not counted
    expired: int = 0  # offsets that the brokers have deleted since an earlier run read the partition back
    digest: int = 0  # of the archived records, in order
    target_digest: int | None = None  # of the records that this run read back; None: it read none
    leader_epoch: int = -1  # of the last batch of a target partition that was read back
    offset_map: str = ""  # the key of the offset map
    seconds: float = 0.0
    verify_seconds: float = 0.0
    missing: tuple[str, ...] = ()  # damaged objects that were skipped
    error: str = ""
    exit_code: int = 0


def failed(target_topic: str, partition: int, error: Exception, where: str) -> TaskReport:
    """Report the error that kept a partition from being restored."""
    ours = as_ours(error, where)
    text = str(ours)
    if ours is error and not text.startswith((f"{where}: ", f"{where} ")):  # some messages begin with the place
        text = f"{where}: {text}"
    return TaskReport(target_topic=target_topic, partition=partition, error=text, exit_code=ours.exit_code)


def read_wanted(
    archive: Archive, task: RestoreTask, skipped: Collection[str], skip: SkipDamaged | None
) -> Iterator[Frame]:
    """Read all restored records of a source partition, from the beginning, except those left out before."""
    parts = [part for part in task.parts if part.object_key not in skipped]
    with spare_buffers() as buffers:  # frames are encoded, or counted, one by one
        yield from read_parts(
            archive.store,
            task.origin.topic,
            task.partition,
            parts,
            selection=task.selection,
            skip=skip,
            buffers=buffers,
        )


def left_out(task: RestoreTask, skipped: Collection[str]) -> list[str]:
    """Return the objects that an earlier attempt has skipped, and this one therefore skips, too."""
    return [f"{part}: was damaged, and was skipped" for part in task.parts if part.object_key in skipped]
