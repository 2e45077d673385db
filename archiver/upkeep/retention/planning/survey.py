"""Surveys one partition for a sweep: lists it, reads facts of expired objects, and plans deletions. Deletes nothing."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest

from archiver.archive.format.handle import Archive, patient_archive_of
from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.notes.swept import OffsetRanges
from archiver.archive.notes.topics import LifeRange, topic_stream
from archiver.archive.segments.listing import ListedSegment, list_directory
from archiver.archive.segments.segment_facts import SegmentFacts, check_named, facts_from_metadata
from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, NotWholeError, StrangerError
from archiver.store.port import ObjectStore
from archiver.upkeep.retention.planning.covers import prove_covers
from archiver.upkeep.retention.planning.limits import Limits
from archiver.upkeep.retention.planning.partition_verdict import (
    ASKS_AT_ONCE,
    Answer,
    Ask,
    AskedItem,
    GoingItem,
    LifeItems,
    ListedItem,
    PartitionTerms,
    Staying,
    judge_partition,
    main_items,
)
from archiver.upkeep.retention.planning.shadowed import Recall, ShadowedItem, judge_shadowed


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyTask:
    """One partition, and the terms of its sweep."""

    storage: StorageConfig
    topic: str
    partition: int
    root: int  # the first of its lives
    lineage: tuple[LifeRange, ...]
    terms: PartitionTerms
    swept_by: Limits  # of the last sweep that deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSweep:
    """The deletes of a partition. `unforeseen_bytes`: those that the former limits would have kept. Sizes are those of the listing.

    `listed_bytes`: of all listed objects; bytes that another object has as well count once.
    `shadowed` is deleted besides, without losing a record. `problems`: damaged covers.
    """

    topic: str
    partition: int
    root: int = 0  # the first of its lives
    going: tuple[GoingItem, ...] = ()
    staying: Mapping[Staying, int] = field(default_factory=dict)
    untimed: int = 0
    listed_bytes: int = 0
    unforeseen_bytes: int = 0
    shadowed: tuple[ShadowedItem, ...] = ()
    problems: tuple[str, ...] = ()
    error: str = ""  # why nothing is deleted
    stranger: str = ""  # an object with another topic id than its life: nothing of the topic is deleted
    # Of the offsets topic: a fold up to this offset, or further, replaces the deleted objects; 0: no fold is needed.
    fold_next: int = 0
    notes: tuple[str, ...] = ()  # further remarks

    @property
    def is_work(self) -> bool:
        """Whether a delete is planned."""
        return bool(self.going or self.shadowed)

    @property
    def objects(self) -> int:
        return len(self.going) + len(self.shadowed)

    @property
    def offsets(self) -> OffsetRanges:
        """The offsets whose records are deleted."""
        return OffsetRanges.of((one.item.base, one.told.next) for one in self.going)


def survey_partition(task: SurveyTask) -> PartitionSweep:
    """Survey a partition. An error is returned, so that others continue; nothing of this one is deleted then."""
    try:
        return survey(patient_archive_of(task.storage), task)
    except StrangerError as error:
        return PartitionSweep(topic=task.topic, partition=task.partition, root=task.root, stranger=str(error))
    except ArchiverError as error:
        return PartitionSweep(topic=task.topic, partition=task.partition, root=task.root, error=str(error))


def survey(archive: Archive, task: SurveyTask) -> PartitionSweep:
    """Survey a partition. Raises the error that prevents the survey."""
    lives = [_list_life(archive, task, stretch) for stretch in task.lineage]
    with _asking(archive.store, _likely(lives, task.terms)) as (ask_any, recall):
        ask = partial(_ask_of_topic, ask_any, task)
        found = judge_partition(lives, ask, task.terms)
        unforeseen: Sequence[GoingItem] = ()
        if found.going and task.swept_by != task.terms.limits:
            before = judge_partition(lives, ask, replace(task.terms, limits=task.swept_by))
            foreseen = {one.item.key for one in before.going}
            unforeseen = [one for one in found.going if one.item.key not in foreseen]
        gone = [one.item.key for one in found.going]
        shadowed, problems = prove_covers(
            archive.store,
            task.topic,
            task.partition,
            judge_shadowed(lives, ask, recall, task.terms, gone),
            lambda item: ask_object(archive.store, item),
        )
        found = found.without(one.going.item.key for one in shadowed)
        twice = {one.key for life in lives for one in _lying_twice(life.items)}
        return PartitionSweep(
            topic=task.topic,
            partition=task.partition,
            root=task.root,
            going=found.going,
            staying=found.staying,
            untimed=found.untimed,
            listed_bytes=sum(one.size for life in lives for one in life.items if one.key not in twice),
            unforeseen_bytes=sum(one.item.size for one in unforeseen),
            shadowed=tuple(shadowed),
            problems=tuple(problems),
        )


def _lying_twice(items: Sequence[ListedItem]) -> Iterator[ListedItem]:
    """Yield objects that a merged one before them also has, by names alone. The next name limits where a plain one ends.

    A false name makes the deleted share larger, never smaller: at worst an agreement is requested once too often.
    """
    reach = 0
    for item, following in zip_longest(items, items[1:]):
        end = item.named_next or (MOST_OFFSET if following is None else following.base)
        if end <= reach:
            yield item
        reach = max(reach, item.named_next or 0)


def _ask_of_topic(ask: Ask, task: SurveyTask, item: ListedItem) -> Answer:
    """Read an object's facts. Raises StrangerError if its topic id differs from the notes: one of them is false."""
    told = ask(item)
    noted = task.terms.topic_id
    if isinstance(told, AskedItem) and len({told.topic_id, noted} - {""}) > 1:
        raise StrangerError(
            f"{item.key}: is of topic id {told.topic_id}, and control/{topic_stream(task.topic)} has {noted} for its life;"
            " nothing of the topic is deleted; bring back what was changed"
        )
    return told


def _list_life(archive: Archive, task: SurveyTask, stretch: LifeRange) -> LifeItems:
    items = list_items(archive, task.topic, stretch.life, task.partition)
    return LifeItems(life=stretch.life, items=items, until=stretch.until_offset)


def list_partitions(archive: Archive, topic: str, lives: Sequence[int]) -> list[int]:
    """List the partitions that the archive has of some lives of a topic."""
    names = {
        name for life in lives for name in archive.store.list_directories(archive.layout.topic_prefix(topic, life))
    }
    numbers = (archive.layout.parse_partition_directory(name) for name in names)
    return sorted(number for number in numbers if number is not None)


def list_items(archive: Archive, topic: str, life: int, partition: int) -> list[ListedItem]:
    """List the objects of a partition in one life, in the order of reading."""
    listed = list_directory(archive, topic, life, partition).partitions
    found = sorted(
        (one for some in listed.values() for one in some),
        key=lambda one: (one.key.base, -(one.key.next or 0), -one.key.rewrite),
    )
    return list(map(_item, found))


def _item(listed: ListedSegment) -> ListedItem:
    return ListedItem(
        life=listed.key.life,
        key=listed.item.key,
        base=listed.key.base,
        named_next=listed.key.next,
        etag=listed.item.etag,
        size=listed.item.size,
        put_ms=epoch_ms(listed.item.last_modified),
    )


def _likely(lives: Sequence[LifeItems], terms: PartitionTerms) -> list[ListedItem]:
    """Return objects whose facts are read unless an earlier one ends the walk: by name, the broker has none of them."""
    if terms.log_start is None:
        return [one for life in lives for one in life.items]
    items = main_items(lives)
    bases = [*(one.base for one in items[1:]), terms.log_start + 1]
    # Not strict: a partition without an object has no last one, either.
    return [one for one, following in zip(items, bases, strict=False) if following <= terms.log_start]


@contextmanager
def _asking(store: ObjectStore, likely: Sequence[ListedItem]) -> Iterator[tuple[Ask, Recall]]:
    """Yield functions that read an object's facts, once, and that return an earlier answer. Likely next ones are read ahead.

    More and more of them are, while they are needed.
    """
    told: dict[str, Answer] = {}
    ahead: dict[str, Future[Answer]] = {}
    places = {one.key: place for place, one in enumerate(likely)}
    many = 1
    with ThreadPoolExecutor(ASKS_AT_ONCE, "ask") as pool:

        def ask(item: ListedItem) -> Answer:
            nonlocal many
            if item.key not in told:
                place = places.get(item.key)
                for one in [item] if place is None else likely[place : place + many]:
                    if one.key not in told and one.key not in ahead:
                        ahead[one.key] = pool.submit(ask_object, store, one)
                many = min(2 * many, 1 + ASKS_AT_ONCE)
                told[item.key] = ahead.pop(item.key).result()
            return told[item.key]

        yield ask, lambda item: told.get(item.key)


def ask_object(store: ObjectStore, item: ListedItem) -> Answer:
    """Read an object's facts now. It must be the listed one: its answer decides on no other object."""
    info = store.head(item.key)
    if info is None or (info.etag, info.size) != (item.etag, item.size):
        return Staying.UNREADABLE
    try:
        facts = facts_from_metadata(info.metadata, item.key)
        if not isinstance(facts, SegmentFacts):
            return Staying.OF_V1
        check_named(facts, item.base, item.named_next, item.key)
    except NotWholeError:
        return Staying.UNREADABLE
    return AskedItem(
        next=facts.next,
        min_timestamp=facts.min_timestamp,
        max_timestamp=facts.max_timestamp,
        source_bytes=facts.source_bytes,
        records=facts.records,
        is_locked=info.is_locked,
        digest=facts.digest,
        topic_id=sys.intern(facts.topic_id),  # the same of millions of objects
    )
