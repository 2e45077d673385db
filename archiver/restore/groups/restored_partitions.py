"""Finds the partitions that a restore has brought back, and the offset maps for group positions. Changes nothing.

1. Ask which topics the cluster has now: only a map to the present topic is valid.
2. Read the restore's notes on each, one by one (docs/format.md §8). Other programs may write there: a map must fit plan and claim.
3. Ask where the targets begin and end now: lost records must be restored again first.
4. Read from the archive where the sources' logs were cut back.

Refusals are reported with a reason, and stop nothing else.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from archiver.archive.format.control import RESTORES, Fact, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import OffsetMapKey, is_partition_number, is_restore_id, is_topic_name
from archiver.archive.notes.restore_streams import ListedNote, list_restore_notes, read_each
from archiver.archive.restores.finished_restores import PLAN
from archiver.archive.restores.offset_map import HOW_TO_MEND, MOST_RUNS, OffsetMap, OffsetMapFacts, read_offset_map
from archiver.config.model import IndexUse
from archiver.errors import NotWholeError, UsageError
from archiver.groups.target.application_decisions import WantedPosition
from archiver.groups.target.translation import RestoredPartition
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicPartition
from archiver.process.output.text import spell_some
from archiver.restore.groups.source_lives import SourceLives, SourcePartition
from archiver.restore.plan.claims import PARTITION_CLAIMS, PartitionClaim
from archiver.restore.plan.noted_plan import PlanHeading, heading_from_fact, last_object
from archiver.restore.plan.noted_target import is_here, is_of

_AGAIN: Final = "run that restore again until it is whole"
_MOST_NAMED: Final = 20  # restores, in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedTarget:
    """The notes of one target. `problem`: why no partition counts; `refused`: why single ones do not."""

    topic: str
    topic_id: str  # of the present topic
    stream: str  # of its plan
    plan: PlanHeading
    claims: Mapping[int, PartitionClaim]
    refused: Mapping[int, str]
    problem: str = ""


def list_targets(archive: Archive, restore_id: str) -> list[str]:
    """List the targets of a restore. Raises UsageError for an unknown restore."""
    known = sorted(filter(is_restore_id, archive.store.list_directories(archive.layout.control_prefix(RESTORES))))
    if restore_id not in known:
        there = f"there are {spell_some(known, _MOST_NAMED)}" if known else "there is none"
        raise UsageError(f"restore {restore_id}: the archive knows no restore with this id; {there}")
    directories = archive.store.list_directories(archive.layout.control_prefix(f"{RESTORES}/{restore_id}"))
    return sorted(filter(is_topic_name, directories))


def read_noted_targets(
    archive: Archive, restore_id: str, cluster_id: str, targets: Iterable[str], topic_ids: Mapping[str, str]
) -> tuple[list[NotedTarget], dict[str, str]]:
    """Read a restore's notes on targets. `topic_ids`: of the topics that the cluster has now.

    Each partition has a claim of this restore on this very topic, or the reason for its lack. Also returns the targets with
    unreadable plans, and why.
    """
    newest: dict[str, dict[str, ListedNote]] = {}  # by target and name
    for note in list_restore_notes(archive, f"{RESTORES}/{restore_id}"):
        newest.setdefault(note.target, {})[note.name] = note
    found: list[NotedTarget] = []
    refused: dict[str, str] = {}
    for target in targets:
        try:
            found.append(_read_target(archive, cluster_id, target, newest.get(target, {}), topic_ids.get(target)))
        except NotWholeError as error:
            refused[target] = str(error)
    return found, refused


def _read_target(
    archive: Archive, cluster_id: str, target: str, newest: Mapping[str, ListedNote], topic_id: str | None
) -> NotedTarget:
    """Read the plan of a target, then its claims. `newest`: its notes by name. Raises NotWholeError for an unreadable plan."""
    if PLAN not in newest:
        raise NotWholeError("nothing was planned for it")
    stream = newest[PLAN].stream
    fact = read_fact(archive, stream, newest[PLAN].listed)
    plan, problem = heading_from_fact(stream, fact), _problem_of(target, fact, cluster_id, topic_id)

    def read_claim(stream: str, claim: Fact) -> PartitionClaim:
        if not is_of(claim, cluster_id, topic_id or ""):
            number = stream.rpartition("/")[2]
            raise NotWholeError(f"what is noted of {target}-{number} is of an earlier topic of that name")
        return PARTITION_CLAIMS.read(claim, stream)

    has_maps = not problem and plan.repartition is None
    wanted = [note for name, note in newest.items() if has_maps and is_partition_number(name)]
    claims = [(int(note.name), claim) for note, claim in read_each(archive, wanted, read_claim)]
    return NotedTarget(
        topic=target,
        topic_id=topic_id or "",
        stream=stream,
        plan=plan,
        claims={number: one for number, one in claims if isinstance(one, PartitionClaim)},
        refused={number: str(one) for number, one in claims if isinstance(one, NotWholeError)},
        problem=problem,
    )


def _problem_of(target: str, plan: Fact, cluster_id: str, topic_id: str | None) -> str:
    if not is_here(plan, cluster_id):
        return f"topic {target} was restored into another cluster"
    if topic_id is None:
        return f"topic {target} is not on the cluster"
    if not is_of(plan, cluster_id, topic_id):
        return f"topic {target} is not the one that was restored: it was created again since"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """A source topic and a target that it was restored into. `problem`: why no position can be translated."""

    source: str
    root: int  # the root life of the restored life
    target: str
    topic_id: str
    partitions: tuple[int, ...]  # of the target, now
    repartition: int | None
    problem: str
    restored: Mapping[int, RestoredPartition]  # of the wanted partitions
    refused: Mapping[int, str]  # the other wanted ones: why they cannot be translated


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopics:
    """The requested topics of one restore. `unreadable`: targets without a known source, and why."""

    restore_id: str
    topics: tuple[RestoredTopic, ...]
    unreadable: Mapping[str, str]
    sources: Collection[str] = ()  # of all targets


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTargets:
    """The targets of a restore, by its notes and by the cluster; `unreadable` ones have no readable plan."""

    restore_id: str
    cluster_id: str
    noted: Sequence[NotedTarget]
    unreadable: Mapping[str, str]
    partitions: Mapping[str, tuple[int, ...]]  # of the topics that the cluster has now

    @property
    def lives(self) -> set[tuple[str, int]]:
        """The source topics, each with the life that was restored."""
        return {(one.plan.source, one.plan.life) for one in self.noted}


async def survey_targets(archive: Archive, client: KafkaClient, restore_id: str) -> RestoreTargets:
    """Read the notes on all targets of a restore, and ask for the topics. Raises UsageError for an unknown restore."""
    names = list_targets(archive, restore_id)
    cluster_id = await client.cluster_id()
    found, denied = await client.describe_each(names) if names else ({}, {})
    topic_ids = {name: one.topic_id for name, one in found.items()}
    noted, refused = read_noted_targets(archive, restore_id, cluster_id, names, topic_ids)
    return RestoreTargets(
        restore_id=restore_id,
        cluster_id=cluster_id,
        noted=[replace(one, problem=str(denied[one.topic])) if one.topic in denied else one for one in noted],
        unreadable=refused,
        partitions={name: one.partitions for name, one in found.items()},
    )


async def find_restored_topics(
    archive: Archive, client: KafkaClient, targets: RestoreTargets, wanted: Collection[TopicPartition], use: IndexUse
) -> RestoredTopics:
    """Find the restored partitions of topics, and the maps of the `wanted` partitions."""
    sources = {source for source, _ in wanted}
    noted = [one for one in targets.noted if one.plan.source in sources]
    numbers = {one.topic: _numbers_of(one, wanted) for one in noted}
    asked = {(target, number) for target, some in numbers.items() for number in some if target in targets.partitions}
    reader = _Reader(
        archive,
        targets,
        await client.offsets_each(asked) if asked else ({}, {}),
        SourceLives(archive, {one.plan.source for one in noted}, use),
    )
    topics: list[RestoredTopic] = []
    unreadable = dict(targets.unreadable)
    for one in noted:
        try:
            topics.append(reader.topic(one, numbers[one.topic]))
        except NotWholeError as error:
            unreadable[one.topic] = str(error)
    return RestoredTopics(
        restore_id=targets.restore_id,
        topics=tuple(topics),
        unreadable=unreadable,
        sources={source for source, _ in targets.lives},
    )


def _numbers_of(target: NotedTarget, wanted: Collection[TopicPartition]) -> list[int]:
    """Return the wanted partitions of a target, if it has maps."""
    if target.problem or target.plan.repartition is not None:
        return []
    return sorted(number for source, number in wanted if source == target.plan.source)


_Offsets = tuple[Mapping[TopicPartition, PartitionOffsets], Mapping[TopicPartition, Exception]]


class _Reader:
    """Reads and checks the maps of one restore."""

    def __init__(self, archive: Archive, targets: RestoreTargets, offsets: _Offsets, lives: SourceLives) -> None:
        self._archive = archive
        self._targets = targets
        self._offsets, self._unreachable = offsets
        self._lives = lives
        self._runs = 0  # of all maps in memory

    def topic(self, noted: NotedTarget, numbers: Iterable[int]) -> RestoredTopic:
        """Read the wanted maps of a target. Raises NotWholeError for a topic or life that the archive does not have."""
        root = self._lives.root_of(noted.plan.source, noted.plan.life)
        restored, refused = dict[int, RestoredPartition](), dict[int, str]()
        for number in numbers:
            try:
                restored[number] = self._partition(noted, root, number)
            except NotWholeError as error:
                refused[number] = str(error)
        return RestoredTopic(
            source=noted.plan.source,
            root=root,
            target=noted.topic,
            topic_id=noted.topic_id,
            partitions=self._targets.partitions.get(noted.topic, ()),
            repartition=noted.plan.repartition,
            problem=noted.problem,
            restored=restored,
            refused=refused,
        )

    def _partition(self, noted: NotedTarget, root: int, number: int) -> RestoredPartition:
        """Return a partition that is whole. Raises NotWholeError with the problem."""
        if number in noted.refused:
            raise NotWholeError(noted.refused[number])
        plan, claim = noted.plan, noted.claims.get(number)
        if number >= len(plan.partitions):
            raise NotWholeError(f"{plan.source}-{number} was not among the partitions of that restore")
        if claim is None or claim.verified is None:
            raise NotWholeError(f"{noted.topic}-{number} is not restored and read back; {_AGAIN}")
        log_start = self._log_start(noted.topic, number, claim)
        found = self._map_of(noted, claim, number)
        source = self._source_of(noted, number, found)
        return RestoredPartition(
            root=root,
            held_life=source.held_life,
            target=WantedPosition(noted.topic, noted.topic_id, number),
            offset_map=found,
            log_start=log_start,
            archive_end=source.end,
            forks=source.forks,
        )

    def _log_start(self, target: str, number: int, claim: PartitionClaim) -> int:
        found = self._offsets.get((target, number))
        if found is None:
            raise NotWholeError(
                str(self._unreachable.get((target, number), f"{target}-{number} is not on the cluster"))
            )
        if found.high_watermark < claim.verified_end:
            ends = f"ends at offset {found.high_watermark} and was restored up to {claim.verified_end}"
            raise NotWholeError(f"{target}-{number} {ends}: the brokers have lost records since; {_AGAIN}")
        return found.log_start

    def _map_of(self, noted: NotedTarget, claim: PartitionClaim, number: int) -> OffsetMap:
        key = self._archive.layout.offset_map_key(
            OffsetMapKey(
                restore_id=self._targets.restore_id,
                topic=noted.topic,
                partition=number,
                topic_id=noted.topic_id or self._targets.cluster_id,
            )
        )
        found = read_offset_map(self._archive.store, key)
        if found is None:
            raise NotWholeError(f"{key}: the offset map is gone; run that restore again, which makes it")
        self._check(found.facts, key, noted, claim, number)
        return found

    def _check(self, facts: OffsetMapFacts, key: str, noted: NotedTarget, claim: PartitionClaim, number: int) -> None:
        """Compare a map's facts with the other notes."""
        told = (
            (facts.restore_id, facts.source_topic, facts.source_life, facts.source_partition),
            (facts.target_cluster_id, facts.target_topic, facts.target_topic_id, facts.target_partition),
            (facts.target_next, facts.target_next - facts.records),
        )
        wanted = (
            (self._targets.restore_id, noted.plan.source, noted.plan.life, number),
            (self._targets.cluster_id, noted.topic, noted.topic_id, number),
            (claim.verified_end, claim.start_offset),
        )
        if told != wanted:
            raise NotWholeError(
                f"{key}: is not the map of what was read back from {noted.topic}-{number}; {HOW_TO_MEND}"
            )
        if claim.start_offset and not noted.plan.appends:
            raise NotWholeError(
                f"{noted.topic}-{number}: its claim begins at offset {claim.start_offset} of a topic that was empty"
            )
        self._runs += facts.runs
        if self._runs > MOST_RUNS:
            raise NotWholeError(f"{key}: too many runs in all maps together; take fewer topics at once, with --topics")

    def _source_of(self, noted: NotedTarget, number: int, found: OffsetMap) -> SourcePartition:
        plan = noted.plan
        last = last_object(self._archive, noted.stream, plan.partitions[number])
        place = None if last is None else self._archive.layout.place_of(last)
        if last is not None and (place is None or (place[0], place[2]) != (plan.source, number)):
            raise NotWholeError(
                f"control/{noted.stream}: plans {last!r:.300} for {plan.source}-{number}; use another --id"
            )
        last_life = None if place is None else place[1]
        return self._lives.partition(plan.source, plan.life, number, last_life, found.facts.source_next)
