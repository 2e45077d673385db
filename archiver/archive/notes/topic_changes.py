"""Notes changes of topics: new shapes and lives, ends, truncated logs, accepted deletions. Backups and imports use it."""

from collections.abc import Mapping
from dataclasses import replace

from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import (
    Branch,
    Life,
    LogEnd,
    SeenTopicId,
    TopicFact,
    another_cluster,
    notes_of,
)
from archiver.errors import CorruptSegmentError, StrangerError


def record_topic(
    archive: Archive,
    *,
    topic: str,
    topic_id: str,
    cluster_id: str,
    partitions: int,
    configs: Mapping[str, str] | None,
    effective: Mapping[str, str] | None = None,
    seen_ms: int | None = None,
    earlier: SeenTopicId | None = None,
) -> TopicFact:
    """Note the present state of the topic, if it changed. Returns the resulting note, including the life.

    `earlier`: the previous topic of that name, when this process last saw it, if it did.

    `configs`, `effective` None: they cannot be read, and the known values stay. A new topic id means a recreated topic: a life
    without a parent begins. A life with an empty id is never continued. Raises StrangerError for another cluster. An instance that
    still sees the topic of an earlier life writes nothing.
    """
    if not topic_id:
        raise ValueError(f"topic {topic} has no topic id")

    def change(known: TopicFact | None) -> TopicFact | None:
        if known is not None and known.cluster_id != cluster_id:
            raise another_cluster(topic, known.cluster_id, cluster_id)
        known_configs, known_effective = ({}, None) if known is None else (known.configs, known.effective)
        wanted = TopicFact(
            topic=topic,
            cluster_id=cluster_id,
            partitions=partitions,
            configs=known_configs if configs is None else configs,
            effective=known_effective if effective is None else effective,
            lives=_lives_now(known, topic_id, seen_ms, earlier),
        )
        if known is not None and known.root(known.current.life) == wanted.root(wanted.current.life):
            wanted = replace(wanted, ends=known.ends)
        is_old_news = topic_id != wanted.current.topic_id
        return None if is_old_news else wanted

    recorded = notes_of(archive, topic).update(change)
    if recorded is None or topic_id not in {life.topic_id for life in recorded.lives}:
        raise CorruptSegmentError(f"{topic}: no control fact after one was written")
    return recorded


def _lives_now(
    known: TopicFact | None, topic_id: str, seen_ms: int | None, earlier: SeenTopicId | None
) -> tuple[Life, ...]:
    """Return the lives of a topic that now has this id. A new life is first seen now."""
    if known is None:
        return (Life(life=0, topic_id=topic_id, seen_ms=seen_ms),)
    if topic_id in {life.topic_id for life in known.lives}:
        return known.lives
    is_before = earlier is not None and earlier.topic_id == known.current.topic_id
    earlier_ms = earlier.at_ms if earlier is not None and is_before else None
    life = Life(life=len(known.lives), topic_id=topic_id, seen_ms=seen_ms, earlier_seen_ms=earlier_ms)
    return (*known.lives, life)


def accept_gone(archive: Archive, topic: str) -> None:
    """Note that a user accepts the deletion of a topic in Kafka, until the topic is seen again. Raises CorruptSegmentError."""

    def change(known: TopicFact | None) -> TopicFact | None:
        if known is None or known.is_accepted_gone:
            return None
        return replace(known, accepted_gone=known.current.life)

    notes_of(archive, topic).update(change)


def record_ends(
    archive: Archive, topic: str, ends: Mapping[int, int], archived: Mapping[int, int], at_ms: int
) -> Mapping[int, LogEnd]:
    """Note the log ends of partitions, if they changed, before any of their records is put. Returns all known ends.

    `archived`: the archived ends of the same partitions. A partition archived to its end needs no note, except the first one.
    """

    def change(known: TopicFact | None) -> TopicFact | None:
        if known is None:
            return None
        news = {number: LogEnd(offset=end, at_ms=at_ms, whole_ms=whole(known, number)) for number, end in ends.items()}
        is_news = any(
            number not in known.ends or known.ends[number].offset != end != archived[number]
            for number, end in ends.items()
        ) or any(known.ends[number].offset > archived[number] >= end for number, end in ends.items())
        return replace(known, ends={**known.ends, **news}) if is_news else None

    def whole(known: TopicFact, number: int) -> int | None:
        earlier = known.ends.get(number)
        if archived[number] >= ends[number]:
            return at_ms
        if earlier is None:
            return None
        return earlier.at_ms if archived[number] >= earlier.offset else earlier.whole_ms

    recorded = notes_of(archive, topic).update(change)
    return {} if recorded is None else recorded.ends


def record_branch(archive: Archive, *, topic: str, partition: int, parent: int, branch: Branch) -> tuple[int, Branch]:
    """Note that a partition's log was truncated. Returns the life in which the partition continues, and its branch.

    When another instance has branched this partition off that parent already, its branch holds. The partition joins the
    newest life if it can; otherwise a life begins. Raises StrangerError when another topic has followed.
    """

    def change(known: TopicFact | None) -> TopicFact | None:
        if known is None or known.root(parent) != known.root(known.current.life):
            raise StrangerError(f"{topic}: life {parent} is not of the topic that is there now; it was created again")
        if _branch_off(known, partition, parent) is not None:
            return None
        present = known.life_of_partition("", partition)
        if present.life != parent:
            raise ValueError(f"{topic}-{partition} lives in life {present.life}, and never did in life {parent}")
        *earlier, newest = known.lives
        if newest.parent == parent and partition not in newest.branches:
            lives = (*earlier, replace(newest, branches={**newest.branches, partition: branch}))
        else:
            topic_id = known.current.topic_id
            begun = Life(life=len(known.lives), topic_id=topic_id, parent=parent, branches={partition: branch})
            lives = (*known.lives, begun)
        return replace(known, lives=lives)

    recorded = notes_of(archive, topic).update(change)
    found = None if recorded is None else _branch_off(recorded, partition, parent)
    if found is None:
        raise CorruptSegmentError(f"{topic}: no control fact after one was written")
    return found


def _branch_off(fact: TopicFact, partition: int, parent: int) -> tuple[int, Branch] | None:
    """Return the life that continues a partition after `parent`, and its branch; None if `parent` is its newest life."""
    lives = (life for life in fact.lives if life.parent == parent and partition in life.branches)
    return next(((life.life, life.branches[partition]) for life in lives), None)
