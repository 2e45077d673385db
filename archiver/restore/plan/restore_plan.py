"""Plans a restore, as a value: for each topic and partition, the records of each object and their target. Has no effects."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from archiver.archive.copies.archived_topic import (
    ArchivedTopic,
    CopyRange,
    CopyReading,
    problems_within,
    wanted_readings,
)
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.segments.partition_segments import SegmentSlice, blocks_of, unreadable_within
from archiver.archive.segments.parts import FactsOfParts, ObjectPart, are_chosen, parts_within, with_planned
from archiver.archive.segments.segment_facts import PartFacts
from archiver.codec.selection import ALL_RECORDS, Selection
from archiver.errors import UsageError
from archiver.process.output.text import spell_count
from archiver.process.values.columns import chunks, total
from archiver.restore.plan.request import RETENTION_KEYS, RestoreRequest

_MOST_TOLD = 20
_MOST_NAMED = 5
# Every partition up to the highest one is planned. The note of a topic may be lost, or older than its newest partitions.
_MOST_UNNOTED = 10_000
_MOST_PARTITIONS = 200_000  # of a topic without a note: more than a cluster has
_CHOICES = "partitions, offsets, times, --where, --latest-per-key"
_LONGEST = str(2**63 - 1)
UNLIMITED = "-1"
_LARGEST_MESSAGE = str(2**31 - 1)  # the target accepts what the source accepted; facts do not count headers

# They keep the broker from deleting or changing records of any age during the fill. Names that a broker lacks are left out later.
FILL_CONFIGS = {
    "cleanup.policy": "delete",
    **dict.fromkeys(RETENTION_KEYS, UNLIMITED),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _LONGEST,
    "message.timestamp.after.max.ms": _LONGEST,
    "message.timestamp.difference.max.ms": _LONGEST,
    "max.message.bytes": _LARGEST_MESSAGE,
    "segment.bytes": str(2**30),  # Kafka's default; a batch must fit a segment
    "segment.ms": _LONGEST,  # counted from record to record: old records would begin many files
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One partition: the objects to read, in order, and the expected contents of the target."""

    partition: int
    parts: Sequence[ObjectPart]
    stored_bytes: int
    # By the facts of objects: an upper bound if only some records of an object are wanted, or the object is of v1.0.
    records: int
    selection: Selection  # of the parts' records
    selection_digest: str
    problem: str = ""  # why this partition is not restored
    missing: tuple[str, ...] = ()  # missing or damaged objects, to be skipped
    facts: Sequence[PartFacts] = ()  # of the parts
    copies: tuple[CopyRange, ...] = ()  # copies that are read, if the topic has role logs

    def held_copies(self, life: int) -> tuple[CopyRange, ...]:
        """Return the copy that is read, or the history under `topics/` in a life."""
        return self.copies or (CopyRange(None, life, 0),)

    def reads_as(self, other: "PartitionPlan") -> bool:
        """Return whether another plan reads the same records of the same objects."""
        mine, theirs = ((one.selection, one.records, one.problem) for one in (self, other))
        return mine == theirs and self.parts == other.parts

    @property
    def planned_parts(self) -> Sequence[ObjectPart]:
        """The parts with their planned facts: a reader compares these with the object's own."""
        return with_planned(self.parts, self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One topic: how it is created, filled and finished."""

    source: str
    life: int
    target: str
    partitions: tuple[PartitionPlan, ...]
    final_configs: Mapping[str, str]  # of the archive, and of the request; retention only if the request sets it
    archived_retention: Mapping[str, str]
    appends: bool = False  # the target existed, with others' records: its records and configs are left alone
    repartition: int | None = None  # into so many partitions, by key; None: each into its own

    @property
    def target_partitions(self) -> int:
        return self.repartition or len(self.partitions)

    @property
    def given_retention(self) -> dict[str, str]:
        """The final retention that the request sets, in place of the archive's."""
        return {name: self.final_configs[name] for name in RETENTION_KEYS if name in self.final_configs}

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def stored_bytes(self) -> int:
        return sum(partition.stored_bytes for partition in self.partitions)

    @property
    def objects(self) -> int:
        return sum(len(partition.parts) for partition in self.partitions)

    @property
    def has_objects(self) -> bool:
        """Whether objects are read for the topic, or should have been: a topic may have a control fact without any object."""
        return any(partition.parts or partition.problem or partition.missing for partition in self.partitions)

    @property
    def is_chosen(self) -> bool:
        """Whether records were chosen already, by a predicate or as the last of each key: then facts are of the chosen records."""
        return any(are_chosen(partition.parts) for partition in self.partitions)

    @property
    def is_copied(self) -> bool:
        """Whether a copy of a compacted topic is read for any partition."""
        return any(stretch.generation is not None for one in self.partitions for stretch in one.copies)

    @property
    def pins(self) -> dict[int, CopyReading]:
        """The copy to read for each partition: a later run reads the same one, whatever the current copy is."""
        return {
            one.partition: CopyReading(stretches=one.held_copies(self.life))
            for one in self.partitions
            if not one.problem
        }

    @property
    def has_problems(self) -> bool:
        return any(partition.problem for partition in self.partitions)

    @property
    def may_be_mended(self) -> bool:
        """Whether refused partitions can still be restored: nothing was written of them, or for them."""
        return self.has_problems and self.repartition is None

    def mended_by(self, later: "TopicPlan") -> "TopicPlan":
        """Replace refused partitions by those of a later plan. All others stay: they may be half restored."""
        if not self.may_be_mended or (later.source, later.life) != (self.source, self.life):
            return self
        fresh = {partition.partition: partition for partition in later.partitions}
        partitions = (fresh.get(one.partition, one) if one.problem else one for one in self.partitions)
        return replace(self, partitions=tuple(partitions))


def with_mended(begun: Iterable[TopicPlan], new: Iterable[TopicPlan]) -> list[TopicPlan]:
    """Combine the plans of earlier runs with the present one, also for partitions that earlier runs refused."""
    later = {topic.target: topic for topic in new}
    mended = [topic.mended_by(later.pop(topic.target, topic)) for topic in begun]
    return [*mended, *later.values()]


def plan_restore(
    archive: Iterable[ArchivedTopic], targets: Mapping[str, str], request: RestoreRequest | None = None
) -> list[TopicPlan]:
    """Plan each topic of an archive that has a target."""
    asked = request or RestoreRequest()
    return [_plan_topic(topic, targets[topic.topic], asked) for topic in archive if topic.topic in targets]


def unreadable_notes(archive: Iterable[ArchivedTopic], request: RestoreRequest) -> list[str]:
    """Return the wanted offsets that cannot be restored: Kafka had records there that the backup could not read."""
    told = [
        f"{topic.topic}-{number}: offsets {first}-{after - 1} do not come back: the backup could not read them (unreadable)"
        for topic in archive
        for number, found in sorted(topic.partitions.items())
        if (wanted := request.wanted.of(number)) is not None
        for first, after in unreadable_within(found.readable, wanted.first_offset, wanted.last_offset + 1)
    ]
    more = len(told) - _MOST_TOLD
    return told if more <= 0 else [*told[:_MOST_TOLD], f"and {spell_count(more, 'more hole')} of that kind"]


def told_beside(archive: Iterable[ArchivedTopic], plan: Iterable[TopicPlan], request: RestoreRequest) -> Iterator[str]:
    """Yield problems that forbid exit code 0, though all read records are restored."""
    of_source = {topic.source: topic for topic in plan}
    for topic in archive:
        yield from topic.ignored
        yield from _told_beyond(topic, request)
        planned = of_source.get(topic.topic)
        if planned is None or planned.has_objects or request.is_partial or not topic.other_lives:
            continue
        lives = ", ".join(map(str, topic.other_lives))
        yield (
            f"{topic.topic}: nothing of life {topic.life} is restored, because no record of it is archived; the archive has"
            f" records of life {lives} (--life)"
        )


def with_objects(archive: Iterable[ArchivedTopic]) -> set[str]:
    """Name the topics with any archived object, in any life."""
    return {topic.topic for topic in archive if topic.partitions or topic.damaged or topic.other_lives}


def told_of_no_record(records: Mapping[str, int], archived: Collection[str], request: RestoreRequest) -> Iterator[str]:
    """Yield reasons against exit code 0: no record is restored. `records`: by topic; `archived`: topics with objects."""
    if any(records.values()) or not (named := sorted(records.keys() & set(archived))):
        return
    why = f"what was asked for ({_CHOICES}) takes none" if request.is_partial else "the objects that are read have none"
    yield f"no record is restored of {_first_of(named)}: {why}"


def _first_of(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (" and others" if len(names) > _MOST_NAMED else "")


def check_partitions(topics: Iterable[TopicPlan], request: RestoreRequest) -> None:
    """Refuse partitions that none of the topics has: nothing would be restored. Raises UsageError."""
    known = max((len(topic.partitions) for topic in topics), default=0)
    for option, asked in (("--partitions", request.wanted.partitions), ("--offsets", request.wanted.offsets)):
        absent = sorted(number for number in asked or () if number >= known)
        if absent and known:
            names = ", ".join(map(str, absent[:_MOST_NAMED]))
            raise UsageError(f"{option}: no topic that is restored has partition {names}; they have 0 to {known - 1}")


def _partition_limit(topic: ArchivedTopic) -> int:
    """Return the first partition number that is not restored: no topic has so many."""
    return _MOST_PARTITIONS if topic.fact is None else topic.fact.partitions + _MOST_UNNOTED


def _told_beyond(topic: ArchivedTopic, request: RestoreRequest) -> Iterator[str]:
    """Report wanted partitions with numbers that no topic has. They are not restored."""
    limit, numbers = _partition_limit(topic), topic.partitions.keys() | topic.damaged.keys()
    beyond = sorted(number for number in numbers if number >= limit and request.wanted.of(number) is not None)
    if beyond:
        known = "no note" if topic.fact is None else f"a note of {spell_count(topic.fact.partitions, 'partition')}"
        names = _first_of([*map(str, beyond)])
        yield (
            f"{topic.topic}: partition {names}: not restored: the archive has {known} of the topic, and no topic has so many."
            " Find out who put these objects"
        )


def _plan_topic(topic: ArchivedTopic, target: str, request: RestoreRequest) -> TopicPlan:
    known = topic.fact.partitions if topic.fact is not None else 0
    within = (number for number in (*topic.partitions, *topic.damaged) if number < _partition_limit(topic))
    count = max(known, *(number + 1 for number in within), 1)
    asked = request.target_configs
    configs = {**(topic.fact.configs if topic.fact is not None else {}), **asked}
    configs = {name: value for name, value in configs.items() if asked.get(name, "set")}  # asked for as empty: left out
    return TopicPlan(
        source=topic.topic,
        life=topic.life,
        target=target,
        partitions=tuple(_plan_partition(topic, number, request) for number in range(count)),
        final_configs={name: value for name, value in configs.items() if name not in RETENTION_KEYS or name in asked},
        archived_retention={name: configs[name] for name in RETENTION_KEYS if name in configs and name not in asked},
        repartition=request.repartition,
    )


def _plan_partition(topic: ArchivedTopic, number: int, request: RestoreRequest) -> PartitionPlan:
    selection = request.wanted.of(number)
    readings: Sequence[SegmentSlice] = ()
    problems: list[str] = []
    if selection is not None:
        readings = wanted_readings(topic.partitions.get(number, EMPTY_PARTITION).readable, selection)
        problems = problems_within(topic, number, selection)
    selection = selection or ALL_RECORDS
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
        copies=topic.copies[number].stretches if number in topic.copies else (),
    )


def _selection_digest(readings: Sequence[SegmentSlice], selection: Selection) -> str:
    """Return a digest of the records to read: of a line for each slice, and one for the selection, unless it selects all."""
    digest, sign = hashlib.sha256(), ""
    for lines in _lines(readings, selection):
        digest.update(f"{sign}{chr(10).join(lines)}".encode())
        sign = "\n"
    return digest.hexdigest()


def _lines(readings: Sequence[SegmentSlice], selection: Selection) -> Iterator[Sequence[str]]:
    for block in blocks_of(readings):
        keys, contents = block.segments.object_keys(), block.segments.content_ids()
        for places in chunks(len(block)):
            first = block.from_offset[places].tolist()
            until = [0] * len(first) if block.until_offset is None else block.until_offset[places].tolist()
            yield [
                f"{key} {offset} {content}" + (f" {end}" if end else "")
                for offset, end, key, content in zip(first, until, keys, contents, strict=False)
            ]
    if selection != ALL_RECORDS:
        yield [" ".join(map(str, astuple(selection)))]
