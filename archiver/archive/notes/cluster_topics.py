"""Finds the topics of a cluster, also those that brokers leave out of the list of all topics, and which of them a backup archives."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.format.layout import is_topic_name
from archiver.archive.notes.topic_changes import accept_gone
from archiver.archive.notes.topics import TopicFact, is_compacted, list_known_topics, read_newest_topic_facts
from archiver.config.model import ArchiverConfig, PositionKeeping, TopicsConfig
from archiver.errors import KafkaError, LostTopicIdError, NoTopicIdError, NotWholeError, StoreError, UsageError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, TopicDescription
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.kafka.login.settings import KafkaSettings

COORDINATION_TOPIC: Final = "_compacted_log_backup_coordination"  # hints between the instances

# Brokers with ZooKeeper list no topics until they have them from the controller.
_EMPTY_ANSWERS: Final = 15
_ASK_AGAIN_S: Final = 1.0


def is_kept_by_turns(fact: TopicFact) -> bool | None:
    """Return whether instances copy an included topic; None if unknown.

    They do not copy `__consumer_offsets`: positions as of a time come from its history. Nor do they copy their own topics.
    """
    return False if fact.topic in {OFFSETS_TOPIC, COORDINATION_TOPIC} else is_compacted(fact)


class ArchivingState(StrEnum):
    """The action of a backup on a topic, or the reason why it does nothing."""

    ARCHIVED = "archived"
    EXCLUDED = "excluded"
    NOT_INCLUDED = "not included"
    REFUSED = "refused"  # included, but describing it is not allowed, or it has no topic id
    GONE = "gone"  # the archive has it, the cluster does not


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludeEntry:
    """An entry of topics.include or topics.exclude, and its place in the file."""

    entry: str
    place: str

    @property
    def unmatched(self) -> str:
        """The message for an entry that matches no topic."""
        return f"{self.place}: {self.entry!r} matches no topic of the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic of the cluster, or one that only the archive has."""

    topic: str
    partitions: int | None  # None: unknown
    standing: "ArchivingState"
    why: str
    include: Sequence[IncludeEntry]
    exclude: Sequence[IncludeEntry]
    in_archive: bool | None  # None: the archive could not be asked
    is_accepted_gone: bool = False  # a user has accepted that the cluster no longer has it

    @property
    def is_lost(self) -> bool:
        """Whether it is included, was deleted, and no user has accepted that."""
        return (
            self.standing is ArchivingState.GONE
            and bool(self.include)
            and not self.exclude
            and not self.is_accepted_gone
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSurvey:
    """Every topic of cluster or archive, and the entries of topics.include that match no topic of the cluster."""

    rows: Sequence[TopicRow]
    unmatched: Sequence[IncludeEntry]
    unread: StoreError | None = None  # why the topics of the archive are unknown


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """The described topics, and why others could not be described."""

    found: Mapping[str, TopicDescription]
    refused: Mapping[str, Refusal]

    def unmatched(self, topics: TopicsConfig) -> list[int]:
        """Return which entries of topics.include match no topic, as numbers."""
        return topics.unmatched([*self.found, *self.refused])


async def find_cluster_topics(client: KafkaClient, topics: TopicsConfig, known: Collection[str]) -> ClusterTopics:
    """Describe all topics; and by name, topics that are `known` or spelled out in topics.include but not in the list of all.

    Brokers leave a topic that a user may not describe out of that list, as if it did not exist. An entry that spells such a
    topic may still match others, as `a.b` matches `a-b`.
    """
    found, refused = await _describe_all(client, known)
    hidden = {name for name in {*known, *topics.include} if is_topic_name(name)} - found.keys() - refused.keys()
    if hidden:
        more, denied = await client.describe_each(hidden)
        found |= more
        refused |= {name: _hidden(error, name) for name, error in denied.items()}
    return ClusterTopics(found, refused)


async def _describe_all(
    client: KafkaClient, known: Collection[str]
) -> tuple[dict[str, TopicDescription], dict[str, Refusal]]:
    """Describe all topics. An empty answer counts only if it stays empty: a broker that has just started knows no topic yet."""
    for _ in range(_EMPTY_ANSWERS - 1):
        found, refused = await client.describe_each(None)
        if found or refused or not known:
            return found, refused
        await asyncio.sleep(_ASK_AGAIN_S)
    return await client.describe_each(None)


def refuse_without_ids(archive: Archive, seen: ClusterTopics) -> ClusterTopics:
    """Move topics that brokers report without a topic id to the refused ones. Topics left in `found` have an id.

    A missing id means unknown: brokers may soon report an archived id again.
    """
    without = {name for name, topic in seen.found.items() if not topic.topic_id}
    if not without:
        return seen
    facts = read_newest_topic_facts(archive, without.__contains__)
    return ClusterTopics(
        {name: topic for name, topic in seen.found.items() if name not in without},
        {**seen.refused, **{name: _without_id(name, facts.get(name)) for name in without}},
    )


def _without_id(topic: str, known: TopicFact | NotWholeError | None) -> Refusal:
    """Return why a topic without an id is refused. A note of the topic that cannot be read may name an id."""
    had_id = known is not None and (isinstance(known, NotWholeError) or any(life.topic_id for life in known.lives))
    return LostTopicIdError(topic) if had_id else NoTopicIdError(topic)


def _hidden(error: Refusal, name: str) -> Refusal:
    """Add advice to a refusal: the topic may not exist, which this user may not know."""
    if not isinstance(error, KafkaError):
        return error
    return KafkaError(
        f"{error} (and Read, to archive it), or leave it out (topics.exclude) if it is gone, or write it as ({name}) in"
        " topics.include if it is a pattern for others"
    )


def explain_unmatched(topics: TopicsConfig, numbers: Iterable[int], place_of: Callable[[int], str]) -> Iterator[str]:
    """Yield a message for each entry of topics.include, by its number, that matches no topic."""
    return (IncludeEntry(entry=topics.include[number], place=place_of(number)).unmatched for number in numbers)


def survey_topics(config: ArchiverConfig, accepted: Sequence[str] = (), *, has_storage: bool = True) -> TopicsSurvey:
    """List the topics of the cluster and of the archive, and the action of a backup on each.

    Without a storage, or if the store refuses the listing, those of the cluster alone. Changes nothing but the notes of `accepted` deleted topics. Raises UsageError for one that was not archived and deleted.
    """
    kafka = KafkaSettings.of(config)
    archive = open_archive(config.storage) if has_storage else None
    archived, unread = _known_topics(archive)

    async def ask() -> ClusterTopics:
        async with KafkaClient(kafka) as client:
            return await find_cluster_topics(client, config.topics, archived)

    seen = asyncio.run(ask())
    if archive is not None and unread is None:
        seen = refuse_without_ids(archive, seen)
    elif accepted:
        raise unread or UsageError("--accept-gone: notes it in the archive; name that with storage.url")
    gone = archived - seen.found.keys() - seen.refused.keys()
    for name in accepted:
        if name in seen.refused:
            raise UsageError(f"--accept-gone {name}: {seen.refused[name]}")
        if name not in gone:
            why = "is in the cluster" if name in archived else "is not in the archive"
            raise UsageError(f"--accept-gone {name}: the topic {why}")
        if archive is not None:
            accept_gone(archive, name)
    may_be_gone = _accepted_of(archive, gone) if archive is not None and gone else frozenset()
    names = sorted(archived | seen.found.keys() | seen.refused.keys())
    unmatched = [
        IncludeEntry(entry=config.topics.include[at], place=config.place_of_include(at))
        for at in seen.unmatched(config.topics)
    ]
    is_known = archive is not None and unread is None
    return TopicsSurvey(
        rows=[
            _survey_topic(config, seen, name, name in archived if is_known else None, name in may_be_gone)
            for name in names
        ],
        unmatched=unmatched,
        unread=unread,
    )


def _known_topics(archive: Archive | None) -> tuple[Collection[str], StoreError | None]:
    try:
        return (frozenset() if archive is None else list_known_topics(archive)), None
    except StoreError as error:
        return frozenset(), error


def _accepted_of(archive: Archive, gone: Collection[str]) -> frozenset[str]:
    """Return the topics whose deletion was accepted; none for a user who may not read their notes."""
    try:
        facts = read_newest_topic_facts(archive, gone.__contains__)
    except StoreError:
        return frozenset()
    return frozenset(name for name, fact in facts.items() if isinstance(fact, TopicFact) and fact.is_accepted_gone)


def _survey_topic(
    config: ArchiverConfig, seen: ClusterTopics, name: str, in_archive: bool | None, is_accepted_gone: bool
) -> TopicRow:
    topics, described, refused = config.topics, seen.found.get(name), seen.refused.get(name)
    include = [
        IncludeEntry(entry=topics.include[at], place=config.place_of_include(at)) for at in topics.including(name)
    ]
    exclude = [
        IncludeEntry(entry=topics.exclude[at], place=config.place_of_exclude(at)) for at in topics.excluding(name)
    ]
    if described is None and refused is None:
        standing, why = ArchivingState.GONE, "is not in the cluster any more"
    elif exclude:
        standing, why = ArchivingState.EXCLUDED, _spell(exclude)
    elif not include and _holds_positions(config, name):
        standing, why = ArchivingState.ARCHIVED, f"backup.groups: {config.backup.groups}"
    elif not include:
        standing, why = ArchivingState.NOT_INCLUDED, ""
    elif refused is not None:
        standing, why = ArchivingState.REFUSED, str(refused)
    else:
        standing, why = ArchivingState.ARCHIVED, _spell(include)
    return TopicRow(
        topic=name,
        partitions=None if described is None else len(described.partitions),
        standing=standing,
        why=why,
        include=include,
        exclude=exclude,
        in_archive=in_archive,
        is_accepted_gone=is_accepted_gone,
    )


def _holds_positions(config: ArchiverConfig, name: str) -> bool:
    return name == OFFSETS_TOPIC and config.backup.groups in {PositionKeeping.AUTO, PositionKeeping.TOPIC}


def _spell(entries: Sequence[IncludeEntry]) -> str:
    return ", ".join(f"{one.place}: {one.entry}" for one in entries)
