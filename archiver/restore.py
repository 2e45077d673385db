"""What a restore will do: a plan is a value, made without effects."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from archiver.control import TopicFact
from archiver.errors import UsageError
from archiver.inventory import EMPTY, PartitionInventory, Reading, problems_of
from archiver.layout import is_topic_name
from archiver.reader import ObjectPart

_LONGEST = str(2**63 - 1)
UNLIMITED = "-1"
RETENTION_KEYS = ("retention.ms", "retention.bytes")
_FIRST_TOPICS = 16  # enough to keep the cores busy while the others are planned
_LARGEST_MESSAGE = str(2**31 - 1)  # what the source once took, the target takes; no fact tells how large headers are

# They keep the broker's hands off while records of any age are filled in. Names that a broker lacks are left out later.
_FILL_CONFIGS = {
    "cleanup.policy": "delete",
    **dict.fromkeys(RETENTION_KEYS, UNLIMITED),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _LONGEST,
    "message.timestamp.after.max.ms": _LONGEST,
    "message.timestamp.difference.max.ms": _LONGEST,
    "max.message.bytes": _LARGEST_MESSAGE,
    "segment.bytes": str(2**30),  # Kafka's default; a batch must fit a segment
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One partition: what is read, in order, and what must be on the target in the end."""

    partition: int
    parts: tuple[ObjectPart, ...]
    stored_bytes: int
    records: int  # as the facts have it; an upper bound when a part begins or ends inside its object
    selection_digest: str
    problem: str = ""  # why this partition is not restored; the others are


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One topic: how it is created, filled and finished."""

    source: str
    life: int
    target: str
    partitions: tuple[PartitionPlan, ...]
    fill_configs: Mapping[str, str]
    final_configs: Mapping[str, str]
    archived_retention: Mapping[str, str]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """Topics in the order of their names."""

    topics: tuple[TopicPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """What the archive has of a topic in one life, joined with those that it goes on from; `fact` None: its shape is not known."""

    topic: str
    life: int
    fact: TopicFact | None
    partitions: Mapping[int, PartitionInventory]
    damaged: Mapping[int, Sequence[str]]  # partition -> what is wrong with its objects
    other_lives: tuple[int, ...]  # that have records, and of which nothing is joined here


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """What a restore was asked for; the same request is the same restore, whatever it finds."""

    topics: str | None = None  # a regular expression; None: all
    renames: Mapping[str, str] = field(default_factory=dict)
    life: int | None = None  # None: the newest of each topic

    @classmethod
    def parse(cls, topics: str | None, renames: Iterable[str], life: int | None = None) -> "RestoreRequest":
        """Make one of what stands on the command line: `renames` are `OLD=NEW`. Raises UsageError."""
        return cls(topics=topics, renames=_parse_renames(renames), life=life)

    def targets(self, names: Iterable[str]) -> dict[str, str]:
        """Choose among the topics of an archive; returns into which topic each is restored. Raises UsageError."""
        targets = {name: self.renames.get(name, name) for name in sorted(names) if is_wanted(name, self.topics)}
        if not targets:
            raise UsageError(
                f"no archived topic matches {self.topics or 'anything'}; `archiver ls` shows what there is"
            )
        absent = self.renames.keys() - targets
        if absent:
            raise UsageError(f"--rename of {', '.join(sorted(absent))}: not among the topics that are restored")
        doubled = sorted(name for name, count in Counter(targets.values()).items() if count > 1)
        if doubled:
            raise UsageError(f"two topics would be restored into {', '.join(doubled)}; rename one of them")
        return targets

    def waves(self, targets: Mapping[str, str], existing: Container[str]) -> list[dict[str, str]]:
        """Share targets out: the first wave is small, and is filled while the others are planned and created.

        What may be refused is in the first one, before anything is changed: targets that exist already, and all of
        them when a life was asked for that they may not have.
        """
        new = [source for source, target in targets.items() if target not in existing]
        later = new[_FIRST_TOPICS:] if self.life is None else []
        first = targets.keys() - later
        waves = ({name: targets[name] for name in sorted(names)} for names in (first, later))
        return [wave for wave in waves if wave]

    def default_id(self, archive_url: str, target_cluster_id: str) -> str:
        """Return the same id for the same command, so that running it again resumes."""
        renames = [f"{old}={new}" for old, new in sorted(self.renames.items())]
        request = [archive_url, target_cluster_id, self.topics, renames, self.life]
        return hashlib.sha256(json.dumps(request).encode()).hexdigest()[:16]


def _parse_renames(texts: Iterable[str]) -> dict[str, str]:
    """Parse `old=new` pairs."""
    renames: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (equals and old and new) or old in renames:
            raise UsageError(f"--rename {text}: must be OLD=NEW, each OLD once")
        if not is_topic_name(new):
            raise UsageError(f"--rename {text}: {new} cannot be a topic's name (1 to 249 of a-z A-Z 0-9 . _ -)")
        renames[old] = new
    return renames


def is_wanted(topic: str, topics_regex: str | None) -> bool:
    """Tell whether a topic is asked for: by full match; one whose name begins with __ only where it is spelled out."""
    if topic.startswith("__"):
        return topics_regex is not None and topic in topics_regex.split("|")
    try:
        return topics_regex is None or re.fullmatch(topics_regex, topic) is not None
    except re.error as error:
        raise UsageError(f"--topics {topics_regex}: not a regular expression: {error}") from error


def plan_restore(archive: Iterable[ArchivedTopic], targets: Mapping[str, str]) -> RestorePlan:
    """Plan each topic of an archive that has a target."""
    return RestorePlan(
        topics=tuple(_plan_topic(topic, targets[topic.topic]) for topic in archive if topic.topic in targets)
    )


def _plan_topic(topic: ArchivedTopic, target: str) -> TopicPlan:
    known = topic.fact.partitions if topic.fact is not None else 0
    count = max(known, *(number + 1 for number in (*topic.partitions, *topic.damaged)), 1)
    configs = dict(topic.fact.configs) if topic.fact is not None else {}
    return TopicPlan(
        source=topic.topic,
        life=topic.life,
        target=target,
        partitions=tuple(_plan_partition(topic, number) for number in range(count)),
        fill_configs=_FILL_CONFIGS,
        final_configs={name: value for name, value in configs.items() if name not in RETENTION_KEYS},
        archived_retention={name: configs[name] for name in RETENTION_KEYS if name in configs},
    )


def _plan_partition(topic: ArchivedTopic, number: int) -> PartitionPlan:
    inventory = topic.partitions.get(number, EMPTY)
    readings = inventory.readable
    return PartitionPlan(
        partition=number,
        parts=tuple(ObjectPart.of(reading) for reading in readings),
        stored_bytes=sum(reading.segment.size for reading in readings),
        records=sum(reading.segment.facts.records for reading in readings),
        selection_digest=_selection_digest(readings),
        problem="; ".join(problems_of(topic.topic, number, inventory, topic.damaged.get(number, ()))),
    )


def _selection_digest(readings: Iterable[Reading]) -> str:
    lines = (
        f"{reading.segment.object_key} {reading.from_offset} {reading.segment.facts.sha256}"
        + ("" if reading.until_offset is None else f" {reading.until_offset}")
        for reading in readings
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def check_restore_id(restore_id: str) -> str:
    """Return an id that can stand in a key."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", restore_id, re.ASCII) is None:
        raise UsageError(f"--id {restore_id}: must be 1 to 64 of a-z A-Z 0-9 . _ -, and begin with a letter or a digit")
    return restore_id
