"""Reads and writes the control facts of topics: their shape, their lives, and where their logs were truncated."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final, NamedTuple

from pydantic import BeforeValidator, Field, PlainSerializer, Strict

from archiver.archive.format.control import (
    CLUSTER,
    FACT_FORMAT,
    READS_AT_ONCE,
    TOPICS,
    append_only_fact,
    only_fact,
    read_fact,
)
from archiver.archive.format.fact_model import BoundedText, Item, LeaderEpoch, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_topic_name
from archiver.archive.format.note_stream import NoteKind, NoteStream
from archiver.errors import ForeignArchiveError, NotWholeError
from archiver.process.running.workers import side_by_side
from archiver.process.values.json_values import spelled_number

MOST_PARTITIONS = 1_000_000  # more than a cluster can have, and few enough for a loop
_MOST_EPOCH = 2**31 - 1
_Config = Annotated[str, Strict(), Field(max_length=1 << 20)]  # throttled replicas name each partition of a topic


def _is_none(value: object) -> bool:
    return value is None


POLICY: Final = "cleanup.policy"
TOMBSTONES_KEPT: Final = "delete.retention.ms"
EFFECTIVE: Final = (POLICY, TOMBSTONES_KEPT)  # configs that a fact has with effective values, wherever they were set
_Effective = Annotated[Mapping[str, Item[_Config]] | None, Field(exclude_if=_is_none)]
_Noted = Annotated[Number | None, Field(exclude_if=_is_none)]  # None: not noted


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Truncated log: lower offsets belong to the parent life; `leader_epoch` is that of the last record below, or -1."""

    offset: Number
    leader_epoch: Annotated[LeaderEpoch, Field(le=_MOST_EPOCH)] = -1
    seen_ms: _Noted = None  # when a backup found that the log was truncated

    def __post_init__(self) -> None:
        if self.offset < 0 or self.leader_epoch < -1:
            raise ValueError(f"not a branch: offset {self.offset}, leader epoch {self.leader_epoch}")


_PartitionName = Annotated[int, BeforeValidator(partial(spelled_number, most=MOST_PARTITIONS)), PlainSerializer(str)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One history of a topic. A life with a parent holds only the partitions with truncated logs, which are in `branches`."""

    life: Number
    topic_id: BoundedText
    parent: Number | None = None
    seen_ms: _Noted = None  # when a backup first saw the topic
    earlier_seen_ms: _Noted = None  # when that backup had last seen the previous topic, if it had
    branches: Mapping[Item[_PartitionName], Item[Branch]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.parent is None) != (not self.branches):
            raise ValueError(f"life {self.life} has parent {self.parent} and {len(self.branches)} branches")

    def holds(self, partition: int) -> bool:
        return self.parent is None or partition in self.branches


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The end of a partition's log at a time. Records missing in the archive below it may have any time after `whole_ms`."""

    offset: Number
    at_ms: Number
    whole_ms: _Noted = None  # the time up to which the archive was known to be complete then; None: unknown


_Ends = Annotated[Mapping[Item[_PartitionName], Item[LogEnd]], Field(exclude_if=lambda ends: not ends)]


class SeenTopicId(NamedTuple):
    """A topic id that brokers returned, and its time."""

    topic_id: str
    at_ms: int


class LifeRange(NamedTuple):
    """Offsets of a partition that one life holds; `until_offset` is exclusive, None: to its end."""

    life: int
    from_offset: int
    until_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFact:
    """The state of a topic: its cluster, its number of partitions, the configs that were set on it, its lives.

    `effective`: effective values of some configs, wherever they were set; None: unknown.
    """

    topic: BoundedText
    cluster_id: BoundedText
    partitions: Annotated[int, Strict(), Field(ge=1, le=MOST_PARTITIONS)]
    configs: Mapping[str, Item[_Config]]
    lives: tuple[Item[Life], ...]
    effective: _Effective = None
    accepted_gone: _Noted = None  # the life whose deletion in Kafka a user has accepted
    ends: _Ends = field(default_factory=dict)  # of `__consumer_offsets`: the ends that a complete archive must reach
    _roots: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.lives or [life.life for life in self.lives] != list(range(len(self.lives))):
            raise ValueError(f"the lives of {self.topic} are not numbered from 0: {[life.life for life in self.lives]}")
        roots: list[int] = []
        holders: dict[
            tuple[int, int], int
        ] = {}  # the newest life of a root that holds a partition, but the root itself
        for life in self.lives:
            if life.parent is not None and not 0 <= life.parent < life.life:
                raise ValueError(f"life {life.life} of {self.topic} has parent {life.parent}")
            if life.parent is not None and self.lives[life.parent].topic_id != life.topic_id:
                raise ValueError(f"life {life.life} of {self.topic} is of another topic id than its parent")
            root = life.life if life.parent is None else roots[life.parent]
            roots.append(root)
            for partition in life.branches:
                if holders.get((root, partition), root) != life.parent:
                    raise ValueError(f"life {life.life} of {self.topic}-{partition} is no branch of life {life.parent}")
                holders[root, partition] = life.life
        object.__setattr__(self, "_roots", tuple(roots))

    @property
    def is_accepted_gone(self) -> bool:
        """Whether a user has accepted that the topic, in its last seen life, was deleted from Kafka."""
        return self.accepted_gone == self.current.life

    @property
    def current(self) -> Life:
        """The newest life; some partitions may still live in an earlier one of the same root."""
        return self.lives[-1]

    def root(self, life: int) -> int:
        """Return the root of a life: all lives of one root belong to one topic.

        Topic ids do not suffice: all topics of brokers without ids have the same empty id.
        """
        return self._roots[life]

    def life_of_partition(self, topic_id: str, partition: int) -> Life:
        """Return the life in which a partition continues. Raises KeyError for an unknown topic id.

        Without a topic id, the topic recorded last counts.
        """
        named = [life.life for life in self.lives if topic_id in {"", life.topic_id}]
        found = self._holder(self.root(named[-1]), partition, len(self.lives)) if named else None
        if found is None:
            raise KeyError(topic_id)
        return found

    def lineage(self, life: int, partition: int) -> list[LifeRange]:
        """Return the offsets of a partition in each life, as of when `life` was the newest; the root comes first."""
        stretches: list[LifeRange] = []
        until: int | None = None
        holder = self._holder(self.root(life), partition, life + 1)
        while holder is not None:
            branch = holder.branches.get(partition)
            start = 0 if branch is None else branch.offset
            if until is None or start < until:  # otherwise this life was truncated below its own beginning
                stretches.append(LifeRange(holder.life, start, until))
                until = start
            holder = None if holder.parent is None else self.lives[holder.parent]
        return stretches[::-1]

    def lives_of(self, root: int) -> list[int]:
        """Return the lives of a root, the root first."""
        return [life for life, found in enumerate(self._roots) if found == root]

    def _holder(self, root: int, partition: int, below: int) -> Life | None:
        """Return the newest life of a root, below a number, that holds a partition."""
        earlier = reversed(self.lives[:below])
        return next((life for life in earlier if life.holds(partition) and self.root(life.life) == root), None)


def topic_stream(topic: str) -> str:
    return f"{TOPICS}/{topic}"


TOPIC_NOTES: Final = NoteKind(
    TopicFact, "a topic", "bring its older version back", lambda noted: topic_stream(noted.topic)
)


def notes_of(archive: Archive, topic: str) -> NoteStream[TopicFact]:
    return TOPIC_NOTES.at(archive, topic_stream(topic))


def is_compacted(fact: TopicFact) -> bool | None:
    """Return whether brokers compact a topic's log; None if unknown."""
    policy = cleanup_policy(fact)
    return None if policy is None else says_compact(policy)


def cleanup_policy(fact: TopicFact) -> str | None:
    """Return a topic's cleanup.policy according to the archive; None: unknown."""
    return (fact.effective or {}).get(POLICY, fact.configs.get(POLICY))


def says_compact(policy: str) -> bool:
    """Return whether a cleanup.policy includes compaction."""
    return "compact" in {part.strip() for part in policy.split(",")}


def record_cluster(archive: Archive, cluster_id: str) -> None:
    """Note the cluster of this archive, unless it is already noted. Raises ForeignArchiveError if the archive is another cluster's."""
    held = append_only_fact(archive, CLUSTER, {"format": FACT_FORMAT, "cluster_id": cluster_id})
    if held.get("cluster_id") != cluster_id:
        raise another_cluster(archive.layout.fact_key(CLUSTER, 0), held.get("cluster_id"), cluster_id)


def read_cluster(archive: Archive) -> str | None:
    """Return the id of the archive's cluster; None if it is not noted."""
    held = only_fact(archive, CLUSTER)
    return None if held is None else str(held.get("cluster_id"))


def another_cluster(what: str, owner: object, cluster_id: str) -> ForeignArchiveError:
    return ForeignArchiveError(
        f"{what}: this archive belongs to cluster {owner}, and this is {cluster_id}; give each cluster its own prefix in storage.url"
    )


def read_topic(archive: Archive, topic: str) -> TopicFact | None:
    """Return the newest note of a topic."""
    return notes_of(archive, topic).read()


def read_topic_history(archive: Archive, topic: str) -> list[TopicFact]:
    """Return the notes of a topic, oldest first."""
    return [note.value for note in notes_of(archive, topic).history()]


def shape_in(history: Sequence[TopicFact], life: int) -> TopicFact | None:
    """Return the newest note of a topic in one life, not of a later topic with its name."""
    return next((fact for fact in reversed(history) if fact.current.life == life), None)


def list_known_topics(archive: Archive) -> frozenset[str]:
    """List the names of the topics that were archived, or should have been."""
    return frozenset(filter(is_topic_name, archive.store.list_directories(archive.layout.control_prefix(TOPICS))))


def list_newest_topic_facts(archive: Archive) -> dict[str, int]:
    """List the topics with a fact, with the number of the newest fact of each."""
    return {topic: max(numbers) for topic, numbers in list_topic_facts(archive).items()}


def list_topic_facts(archive: Archive) -> dict[str, list[int]]:
    """List the topics with a fact, with the numbers of their facts."""
    prefix = archive.layout.control_prefix(TOPICS)
    found: dict[str, list[int]] = {}
    for item in archive.store.list(prefix):
        topic = item.key.removeprefix(prefix).partition("/")[0]
        number = archive.layout.parse_fact(topic_stream(topic), item.key)
        if number is not None and is_topic_name(topic):
            found.setdefault(topic, []).append(number)
    return found


def read_topic_facts(archive: Archive, numbers: Mapping[str, int]) -> dict[str, TopicFact | NotWholeError]:
    """Read the newest note of each topic, several at a time; an unreadable note is returned as its error."""

    def read(known: tuple[str, int]) -> TopicFact | NotWholeError:
        topic, number = known
        stream = topic_stream(topic)
        try:
            return TOPIC_NOTES.decode(read_fact(archive, stream, number), archive, stream, number)
        except NotWholeError as error:
            return error

    return dict(zip(numbers, side_by_side(READS_AT_ONCE, read, numbers.items(), "topic"), strict=True))


def read_newest_topic_facts(
    archive: Archive, wanted: Callable[[str], bool] | None = None
) -> dict[str, TopicFact | NotWholeError]:
    """Read the newest fact of each known topic, or of the wanted ones, as `read_topic_facts` does."""
    known = list_newest_topic_facts(archive)
    return read_topic_facts(archive, {name: known[name] for name in known if not wanted or wanted(name)})


class UnnotedLives(NamedTuple):
    """Lives with records that no note of the topic names; empty for a topic without notes. `problems`: a line each."""

    lives: frozenset[int]
    problems: tuple[str, ...]

    @classmethod
    def of(cls, topic: str, history: Iterable[TopicFact], with_records: Collection[int]) -> "UnnotedLives":
        noted = {life.life for fact in history for life in fact.lives}
        lives = frozenset(with_records) - noted if noted else frozenset()
        where = f"control/{topic_stream(topic)}/"
        return cls(
            lives,
            tuple(
                f"{topic}: life {life} has objects, and {where} does not name it, so it is not read. Find out who put them, or"
                f" bring the note back; --life {life} reads them"
                for life in sorted(lives)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSource:
    """The partition that records come from, in one life of its topic."""

    topic: str
    partition: int
    life: int
    topic_id: str
    cluster_id: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
