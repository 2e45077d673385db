"""Estimates time, requests and bytes of a restore before it begins."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from archiver.archive.segments.parts import FactsOfParts, are_chosen
from archiver.process.values.columns import total
from archiver.restore.plan.request import SENT_BATCH_BYTES, RestoreRequest
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan


class BatchLimits(NamedTuple):
    """The largest size of a batch in bytes."""

    records: int  # of its records, uncompressed
    sent: int = SENT_BATCH_BYTES  # size of a batch on the wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The estimated effort of a plan: requests, bytes, time."""

    gets: int  # of objects
    puts: int  # of small ones: claims, maps, notes
    batches: int  # one produce request each
    seconds: float


# For one core: half of what two cores did with a broker and a store beside them (docs/benchmarks.md).
_RECORDS_A_SECOND = 900_000
_BYTES_A_SECOND = 160_000_000
_SENT_FOR_STORED = 1.7  # lz4 on the wire for zstd in storage (decision 10)
_PARTITION_S = 0.085  # its claim, map and note, and its log's first and last steps, even if it is empty
_BATCH_S = 0.0007
_START_S = 7.0
_PUTS_A_PARTITION = 3  # claim, offset map, verification
_PUTS_A_TOPIC = 2  # its `plan` and `finished` notes
_PUTS_A_DEALT_TOPIC = 4  # also one claim on all its partitions, and the note that they were read back
_OPEN_BATCHES_BYTES = 32 * 1024 * 1024  # of all target partitions of a source together
_LEAST_BATCH_BYTES = 16 * 1024  # each; below this the broker's work per batch shows


def dealt_batch_bytes(batch_bytes: int, partitions: int) -> int:
    """Return the largest size of a batch if so many batches are open at once."""
    return min(batch_bytes, max(_LEAST_BATCH_BYTES, _OPEN_BATCHES_BYTES // partitions))


def effort_of(
    topics: Collection[TopicPlan], request: RestoreRequest, cores: int, limits: Mapping[str, BatchLimits]
) -> Effort:
    """Estimate, from facts, the requests, and the time on so many cores, unless brokers or store are slower.

    `limits` are of targets that keep their own configs.
    """
    of_request = BatchLimits(request.batch_bytes)
    partitions = [partition for topic in topics for partition in topic.partitions if not partition.problem]
    parts = sum(len(one.parts) for one in partitions)
    choosing = [one for topic in topics if request.chooses(is_copied=topic.is_copied) for one in topic.partitions]
    lists = sum(len(one.parts) for one in choosing if not one.problem)  # of chosen records
    to_choose = sum(len(one.parts) for one in choosing if not one.problem and not are_chosen(one.parts))
    batches = sum(_batches(topic, limits.get(topic.target, of_request)) for topic in topics)
    sent_bytes = sum(map(_sent_bytes, partitions))
    work_s = _work_s(partitions)
    choosing_s = work_s if to_choose else 0  # all records are read before the first is sent
    seconds = max(work_s, batches * _BATCH_S) + choosing_s
    seconds = (seconds + len(partitions) * _PARTITION_S) / max(1, cores)
    if request.rate_bytes:
        seconds = max(seconds, sent_bytes / request.rate_bytes)
    return Effort(
        gets=parts + to_choose + lists,
        puts=sum(map(_puts, topics)) + to_choose,
        batches=batches,
        seconds=_START_S + seconds,
    )


def _work_s(partitions: Iterable[PartitionPlan]) -> float:
    """Return the time of one core for records and bytes."""
    counts = [(one.records, _size(one)) for one in partitions]
    return max(
        sum(records for records, _ in counts) / _RECORDS_A_SECOND, sum(size for _, size in counts) / _BYTES_A_SECOND
    )


def _size(partition: PartitionPlan) -> int:
    return total(FactsOfParts.of(partition.facts).numbers("bytes"))


def _sent_bytes(partition: PartitionPlan) -> int:
    return min(_size(partition), int(_SENT_FOR_STORED * partition.stored_bytes))


def _puts(topic: TopicPlan) -> int:
    filled = sum(not partition.problem for partition in topic.partitions)
    return _PUTS_A_DEALT_TOPIC if topic.repartition else _PUTS_A_TOPIC + _PUTS_A_PARTITION * filled


def _batches(topic: TopicPlan, limits: BatchLimits) -> int:
    """Estimate how many batches are sent: the last batch to each partition is not full, and each has one record at least."""
    targets = topic.repartition or 1  # target partitions of a source
    most_bytes = dealt_batch_bytes(limits.records, targets) if topic.repartition else limits.records
    return sum(
        min(one.records, max(_size(one) // most_bytes, _sent_bytes(one) // limits.sent) + targets)
        for one in topic.partitions
        if not one.problem
    )
