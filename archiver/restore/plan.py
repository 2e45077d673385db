"""What a restore will do: a plan is a value, made without effects."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple

from archiver.archive.archived_topic import ArchivedTopic, problems_within, wanted_readings
from archiver.archive.inventory import EMPTY
from archiver.archive.parts import FactsOfParts, ObjectPart, are_chosen, parts_within, with_planned
from archiver.archive.segment_facts import PartFacts
from archiver.archive.segments import Reading, blocks_of, unreadable_within
from archiver.codec.selection import EVERYTHING, Selection
from archiver.errors import UsageError
from archiver.process.columns import chunks, total
from archiver.process.spelling import spell_count
from archiver.restore.request import SENT_BATCH_BYTES, RestoreRequest

_MOST_TOLD = 20
_LONGEST = str(2**63 - 1)
UNLIMITED = "-1"
RETENTION_KEYS = ("retention.ms", "retention.bytes")
_LARGEST_MESSAGE = str(2**31 - 1)  # what the source once took, the target takes; no fact tells how large headers are

# They keep the broker's hands off while records of any age are filled in. Names that a broker lacks are left out later.
FILL_CONFIGS = {
    "cleanup.policy": "delete",
    **dict.fromkeys(RETENTION_KEYS, UNLIMITED),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _LONGEST,
    "message.timestamp.after.max.ms": _LONGEST,
    "message.timestamp.difference.max.ms": _LONGEST,
    "max.message.bytes": _LARGEST_MESSAGE,
    "segment.bytes": str(2**30),  # Kafka's default; a batch must fit a segment
    "segment.ms": _LONGEST,  # counted from record to record: old ones would begin a new file again and again
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One partition: what is read, in order, and what must be on the target in the end."""

    partition: int
    parts: Sequence[ObjectPart]
    stored_bytes: int
    records: (
        int  # as the facts have it; an upper bound where only some of an object's records are wanted, or it is v1.0
    )
    selection: Selection  # of the parts' records
    selection_digest: str
    problem: str = ""  # why this partition is not restored; the others are
    missing: tuple[str, ...] = ()  # what is not in the archive, and was to be skipped
    facts: Sequence[PartFacts] = ()  # of the parts

    @property
    def planned_parts(self) -> Sequence[ObjectPart]:
        """The parts for whoever reads them, and holds what an object tells of itself against what was planned by."""
        return with_planned(self.parts, self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One topic: how it is created, filled and finished."""

    source: str
    life: int
    target: str
    partitions: tuple[PartitionPlan, ...]
    final_configs: Mapping[str, str]
    archived_retention: Mapping[str, str]
    appends: bool = False  # the target was there, with records of others: those and its configs are left alone
    repartition: int | None = None  # into so many partitions, by key; None: each into its own

    @property
    def target_partitions(self) -> int:
        return self.repartition or len(self.partitions)

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def stored_bytes(self) -> int:
        return sum(partition.stored_bytes for partition in self.partitions)

    @property
    def has_objects(self) -> bool:
        """Whether anything is read for it, or should have been: a topic may have its control fact, and no object."""
        return any(partition.parts or partition.problem or partition.missing for partition in self.partitions)

    @property
    def is_chosen(self) -> bool:
        """Whether it is known which records a predicate, or the last of each key, leaves: the facts are of those."""
        return any(are_chosen(partition.parts) for partition in self.partitions)

    @property
    def has_problems(self) -> bool:
        return any(partition.problem for partition in self.partitions)

    @property
    def may_be_mended(self) -> bool:
        """Whether partitions that were refused can still come back: nothing was written of them, or for them."""
        return self.has_problems and self.repartition is None

    def mended_by(self, later: "TopicPlan") -> "TopicPlan":
        """Take from a later plan what this one had to refuse; all else stays, for it may be half done."""
        if not self.may_be_mended or (later.source, later.life) != (self.source, self.life):
            return self
        fresh = {partition.partition: partition for partition in later.partitions}
        partitions = (fresh.get(one.partition, one) if one.problem else one for one in self.partitions)
        return replace(self, partitions=tuple(partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """Topics in the order of their names."""

    topics: tuple[TopicPlan, ...]


class BatchLimits(NamedTuple):
    """How many bytes a batch may have."""

    records: int  # of its records, uncompressed
    sent: int = SENT_BATCH_BYTES  # as it is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What a plan takes, roughly."""

    gets: int  # of objects
    puts: int  # of small ones: claims, maps, notes
    batches: int  # one produce request each
    seconds: float


# What two cores did with a broker and a store beside them (docs/benchmarks.md), for one.
_RECORDS_A_SECOND = 900_000
_BYTES_A_SECOND = 160_000_000
_SENT_FOR_STORED = 1.7  # lz4 goes out where zstd is stored (decision 10)
_PARTITION_S = 0.085  # its claim, map and note, and its log's first and last steps, however little is in it
_BATCH_S = 0.0007
_START_S = 7.0
_PUTS_A_PARTITION = 3  # what is claimed, its map, that it was read back
_PUTS_A_TOPIC = 2  # its plan, that it is finished
_PUTS_A_DEALT_TOPIC = 4  # and one claim on all its partitions, that they were read back

_OPEN_BATCHES_BYTES = 32 * 1024 * 1024  # of all partitions together that a source is dealt out to
_LEAST_BATCH_BYTES = 16 * 1024  # each; below this the broker's work per batch shows


def dealt_batch_bytes(batch_bytes: int, partitions: int) -> int:
    """Return how large a batch may be where so many are open at once."""
    return min(batch_bytes, max(_LEAST_BATCH_BYTES, _OPEN_BATCHES_BYTES // partitions))


def effort_of(
    topics: Collection[TopicPlan], request: RestoreRequest, cores: int, limits: Mapping[str, BatchLimits]
) -> Effort:
    """Estimate from facts: how many requests, and how long on so many cores, unless brokers or store are slower.

    `limits` are of targets that keep their own configs.
    """
    of_request = BatchLimits(request.batch_bytes)
    partitions = [partition for topic in topics for partition in topic.partitions if not partition.problem]
    parts = sum(len(one.parts) for one in partitions)
    unchosen = sum(len(one.parts) for one in partitions if not are_chosen(one.parts))
    to_choose = unchosen if request.is_chosen else 0
    lists = parts if request.is_chosen else 0  # of which records were chosen
    batches = sum(_batches(topic, limits.get(topic.target, of_request)) for topic in topics)
    sent_bytes = sum(map(_sent_bytes, partitions))
    work_s = _work_s(partitions)
    seconds = max(work_s, batches * _BATCH_S) + (work_s if to_choose else 0)  # all is read before any of it is filled
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
    """Return what one core takes for records and bytes."""
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
    """Estimate how many are sent: the last one to each partition is not full, and each has one record at least."""
    targets = topic.repartition or 1  # that a partition is dealt out to
    most_bytes = dealt_batch_bytes(limits.records, targets) if topic.repartition else limits.records
    return sum(
        min(one.records, max(_size(one) // most_bytes, _sent_bytes(one) // limits.sent) + targets)
        for one in topic.partitions
        if not one.problem
    )


def with_mended(begun: Iterable[TopicPlan], new: Iterable[TopicPlan]) -> list[TopicPlan]:
    """Put together what earlier runs have planned, and what is planned now, also of what those had to refuse."""
    later = {topic.target: topic for topic in new}
    mended = [topic.mended_by(later.pop(topic.target, topic)) for topic in begun]
    return [*mended, *later.values()]


def plan_restore(
    archive: Iterable[ArchivedTopic], targets: Mapping[str, str], request: RestoreRequest | None = None
) -> RestorePlan:
    """Plan each topic of an archive that has a target."""
    asked = request or RestoreRequest()
    return RestorePlan(
        topics=tuple(_plan_topic(topic, targets[topic.topic], asked) for topic in archive if topic.topic in targets)
    )


def tell_unreadable(archive: Iterable[ArchivedTopic], request: RestoreRequest) -> list[str]:
    """Tell what of the wanted offsets comes back from no archive: Kafka had records there that no backup could read."""
    told = [
        f"{topic.topic}-{number}: offsets {first}-{after - 1} do not come back: the backup could not read them (unreadable)"
        for topic in archive
        for number, found in sorted(topic.partitions.items())
        if (wanted := request.wanted.of(number)) is not None
        for first, after in unreadable_within(found.readable, wanted.first_offset, wanted.last_offset + 1)
    ]
    more = len(told) - _MOST_TOLD
    return told if more <= 0 else [*told[:_MOST_TOLD], f"and {spell_count(more, 'more hole')} of that kind"]


def check_partitions(topics: Iterable[TopicPlan], request: RestoreRequest) -> None:
    """Refuse what would bring back nothing: partitions that none of the topics has. Raises UsageError."""
    known = max((len(topic.partitions) for topic in topics), default=0)
    for option, asked in (("--partitions", request.wanted.partitions), ("--offsets", request.wanted.offsets)):
        absent = sorted(number for number in asked or () if number >= known)
        if absent and known:
            names = ", ".join(map(str, absent[:5]))
            raise UsageError(f"{option}: no topic that is restored has partition {names}; they have 0 to {known - 1}")


def _plan_topic(topic: ArchivedTopic, target: str, request: RestoreRequest) -> TopicPlan:
    known = topic.fact.partitions if topic.fact is not None else 0
    count = max(known, *(number + 1 for number in (*topic.partitions, *topic.damaged)), 1)
    configs = dict(topic.fact.configs) if topic.fact is not None else {}
    return TopicPlan(
        source=topic.topic,
        life=topic.life,
        target=target,
        partitions=tuple(_plan_partition(topic, number, request) for number in range(count)),
        final_configs={name: value for name, value in configs.items() if name not in RETENTION_KEYS},
        archived_retention={name: configs[name] for name in RETENTION_KEYS if name in configs},
        repartition=request.repartition,
    )


def _plan_partition(topic: ArchivedTopic, number: int, request: RestoreRequest) -> PartitionPlan:
    selection = request.wanted.of(number)
    readings: Sequence[Reading] = ()
    problems: list[str] = []
    if selection is not None:
        readings = wanted_readings(topic.partitions.get(number, EMPTY).readable, selection)
        problems = problems_within(topic, number, selection)
    selection = selection or EVERYTHING
    parts, segments = parts_within(readings, selection), [block.segments for block in blocks_of(readings)]
    return PartitionPlan(
        partition=number,
        parts=parts,
        stored_bytes=sum(total(some.numbers("size")) for some in segments),
        records=sum(total(some.numbers("records")) for some in segments),
        selection=selection,
        selection_digest=_selection_digest(readings, selection),
        problem="" if request.skips_damage else "; ".join(problems),
        missing=tuple(problems) if request.skips_damage else (),
        facts=FactsOfParts.of_parts(parts, readings),
    )


def _selection_digest(readings: Sequence[Reading], selection: Selection) -> str:
    """Tell apart what is read: by the lines of all readings, and one of the selection, if that is not all."""
    digest, sign = hashlib.sha256(), ""
    for lines in _lines(readings, selection):
        digest.update(f"{sign}{chr(10).join(lines)}".encode())
        sign = "\n"
    return digest.hexdigest()


def _lines(readings: Sequence[Reading], selection: Selection) -> Iterator[Sequence[str]]:
    for block in blocks_of(readings):
        keys, contents = block.segments.object_keys(), block.segments.content_ids()
        for places in chunks(len(block)):
            first = block.from_offset[places].tolist()
            until = [0] * len(first) if block.until_offset is None else block.until_offset[places].tolist()
            yield [
                f"{key} {offset} {content}" + (f" {end}" if end else "")
                for offset, end, key, content in zip(first, until, keys, contents, strict=False)
            ]
    if selection != EVERYTHING:
        yield [" ".join(map(str, astuple(selection)))]
