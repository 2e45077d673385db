"""Reads and puts an application's notes about each group: earlier and wanted position, and the confirmation (docs/format.md §8)."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, Strict

from archiver.archive.format.control import RESTORES, Fact, append_fact, list_numbers, read_fact
from archiver.archive.format.fact_model import BoundedText, FactModel, Item, KafkaText, LeaderEpoch, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_PARTITION, is_topic_name
from archiver.archive.notes.restore_streams import list_restore_notes, read_each
from archiver.archive.restores.finished_restores import APPLICATIONS, TargetIds
from archiver.errors import CorruptSegmentError, NotWholeError, TemporaryError
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group_positions import GroupPosition
from archiver.process.values.json_values import spelled_number

_MOST_EPOCH: Final = 2**31 - 1


def _topic_name(text: str) -> str:
    if not is_topic_name(text):
        raise ValueError(f"{text[:40]!r} is not the name of a topic")
    return text


_TopicName = Annotated[BoundedText, AfterValidator(_topic_name)]
_Partition = Annotated[
    int, BeforeValidator(partial(spelled_number, most=MOST_PARTITION)), PlainSerializer(str, return_type=str)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedBefore:
    """The position that a group had committed in a partition."""

    offset: Number
    leader_epoch: Annotated[LeaderEpoch, Field(le=_MOST_EPOCH)]
    metadata: KafkaText


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedWanted:
    """The wanted position. It has no leader epoch: epochs of the source are meaningless on the target."""

    offset: Number
    metadata: KafkaText


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedMove:
    """`before` is None where the group had no position in the partition.

    `wanted` is None where nothing was set, for example because the group had members: `before` is only its position then.
    `as_of_ms`: the requested time of `wanted`; None: the newest commit. `applied`: since this note the group was seen at `wanted`,
    and was not set back. Without it, this is unknown.
    """

    before: NotedBefore | None
    wanted: NotedWanted | None
    as_of_ms: Number | None = None
    applied: Annotated[bool, Strict()] = False

    @classmethod
    def of(
        cls,
        stands: GroupPosition | None,
        goes_to: GroupPosition | None,
        as_of_ms: int | None = None,
        *,
        applied: bool = False,
    ) -> "NotedMove":
        before = None
        if stands is not None:
            before = NotedBefore(offset=stands.offset, leader_epoch=stands.leader_epoch, metadata=stands.metadata)
        goal = None if goes_to is None else NotedWanted(offset=goes_to.offset, metadata=goes_to.metadata)
        return cls(before=before, wanted=goal, as_of_ms=as_of_ms, applied=applied)

    @property
    def stood(self) -> GroupPosition | None:
        found = self.before
        if found is None:
            return None
        return GroupPosition(offset=found.offset, leader_epoch=found.leader_epoch, metadata=found.metadata)

    @property
    def goal(self) -> GroupPosition | None:
        found = self.wanted
        return None if found is None else GroupPosition(offset=found.offset, metadata=found.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedTopic:
    """The moves in one topic. They do not apply to another topic with its name."""

    topic_id: BoundedText
    partitions: Mapping[Item[_Partition], Item[NotedMove]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNote:
    """All notes of an application about one group of a cluster."""

    target_cluster_id: BoundedText
    group: KafkaText
    source_group: KafkaText
    topics: Mapping[Item[_TopicName], Item[NotedTopic]]

    def move(self, place: TopicPartition, topic_id: str) -> NotedMove | None:
        """Return the noted move of a partition of exactly this topic."""
        return self.topics[place[0]].partitions.get(place[1]) if self.has_topic(place[0], topic_id) else None

    def has_topic(self, name: str, topic_id: str) -> bool:
        """Return whether anything was noted of exactly this topic."""
        topic = self.topics.get(name)
        return topic is not None and topic.topic_id == topic_id

    def with_moves(self, moves: Mapping[TopicPartition, NotedMove], topic_ids: Mapping[str, str]) -> "GroupNote":
        """Return the note with moves added or replaced. Drop the moves of a topic that was created again since."""
        topics = dict(self.topics)
        for name in sorted({topic for topic, _ in moves}):
            noted = topics.get(name)
            kept = noted.partitions if noted is not None and noted.topic_id == topic_ids[name] else {}
            mine = {partition: move for (topic, partition), move in moves.items() if topic == name}
            topics[name] = NotedTopic(topic_id=topic_ids[name], partitions={**kept, **mine})
        return GroupNote(
            target_cluster_id=self.target_cluster_id,
            group=self.group,
            source_group=self.source_group,
            topics=topics,
        )


_NOTE: Final = FactModel(GroupNote)


def is_applied(fact: Fact, targets: Mapping[str, TargetIds]) -> bool:
    """Return whether a note about exactly these targets confirms a group at all wanted positions. Raises NotWholeError."""
    note = _NOTE.read(fact, lambda why: CorruptSegmentError(f"is no note of a group: {why}"))
    noted = {name: TargetIds(note.target_cluster_id, topic.topic_id) for name, topic in note.topics.items()}
    moves = [move for topic in note.topics.values() for move in topic.partitions.values() if move.wanted is not None]
    return bool(moves) and noted.items() <= targets.items() and all(move.applied for move in moves)


class ApplicationNotes:
    """The notes of one restore on one cluster. Keys contain a digest: a group's name may have any character and any length."""

    def __init__(self, archive: Archive, restore_id: str, cluster_id: str) -> None:
        self.archive = archive
        self.restore_id = restore_id
        self._cluster_id = cluster_id
        self.parent = f"{RESTORES}/{restore_id}/{APPLICATIONS}"

    def stream(self, group: str) -> str:
        return f"{self.parent}/{hashlib.sha256(group.encode()).hexdigest()}"

    def read(self, groups: Collection[str] | None = None) -> tuple[dict[str, GroupNote], dict[str, NotWholeError]]:
        """Return the notes of these groups, or of all, by group; and the errors of unreadable notes, by stream."""
        wanted = None if groups is None else {self.stream(group) for group in groups}
        listed = list_restore_notes(self.archive, self.parent) if wanted is None or wanted else ()
        newest = {one.stream: one for one in listed if wanted is None or one.stream in wanted}
        found = {one.stream: note for one, note in read_each(self.archive, newest.values(), self._ours)}
        unreadable = {stream: one for stream, one in found.items() if isinstance(one, NotWholeError)}
        return {note.group: note for note in found.values() if isinstance(note, GroupNote)}, unreadable

    def put(
        self,
        before: GroupNote | None,
        group: str,
        source_group: str,
        moves: Mapping[TopicPartition, NotedMove],
        topic_ids: Mapping[str, str],
    ) -> GroupNote:
        """Add moves to the note of a group. Raises TemporaryError if another run has changed the note since."""
        blank = GroupNote(target_cluster_id=self._cluster_id, group=group, source_group=source_group, topics={})
        wanted = (before or blank).with_moves(moves, topic_ids)
        stream = self.stream(group)

        def decide(latest: Fact | None) -> Fact | None:
            noted = None if latest is None else self._ours(stream, latest)
            if noted == wanted:  # the answer to our own put was lost
                return None
            if noted != before:
                raise TemporaryError(
                    f"group {group}: another run of restore {self.restore_id} is setting its positions; wait for its end, and"
                    " run the same command again"
                )
            return _NOTE.write(wanted)

        append_fact(self.archive, stream, decide)
        return wanted

    def _ours(self, stream: str, latest: Fact) -> GroupNote | None:
        """Return the newest note of this cluster: a restore with the same id may have had another target cluster since."""
        earlier = (read_fact(self.archive, stream, number) for number in reversed(list_numbers(self.archive, stream)))
        for fact in chain([latest], earlier):
            note = self._parse(stream, fact)
            if note.target_cluster_id == self._cluster_id:
                return note
        return None

    def _parse(self, stream: str, fact: Fact) -> GroupNote:
        note = _NOTE.read(fact, lambda why: CorruptSegmentError(f"control/{stream}: is no note of a group: {why}"))
        if self.stream(note.group) != stream:
            raise CorruptSegmentError(
                f"control/{stream}: is of group {note.group[:80]!r}, which is not that of its key; find out who put it, and take"
                " another --id"
            )
        return note
