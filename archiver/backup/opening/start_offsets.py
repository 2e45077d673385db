"""Determines and notes the first offsets of new partitions, if `backup.start` is not the beginning of their logs."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import PlainValidator

from archiver.archive.format.control import (
    PRESENT,
    append_only_fact,
    only_fact,
)
from archiver.archive.format.fact_model import BoundedText, Item, LeaderEpoch, Number
from archiver.archive.format.note_stream import NoteKind, NoteStream
from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.notes.topics import PartitionSource, list_known_topics
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.config.section import StartPoint
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.kafka.records.epochs import end_of_epoch
from archiver.process.running.failpoints import reach
from archiver.process.running.workers import Workers
from archiver.process.values.json_values import as_list, as_number, as_object

log = logging.getLogger(__name__)

START_EARLIEST: Final = "earliest"


@dataclass(frozen=True, slots=True)
class StartOffset:
    """The first archived offset of a partition, as it is noted, and its leader epoch in the log; -1: unknown."""

    offset: Number
    leader_epoch: LeaderEpoch
    topic_id: BoundedText


_End = list[int]  # offset and leader epoch of a StartOffset


def _check_ends(found: object) -> dict[str, _End | None]:
    """Check the ends of a topic, without conversion: for a million partitions, pydantic takes five times as long."""
    ends = as_object(found)
    for end in ends.values():
        if end is not None:
            offset, leader_epoch = as_list(end)
            as_number(offset)
            as_number(leader_epoch, -1)
    return ends


@dataclass(frozen=True, slots=True, kw_only=True)
class _PresentTopic:
    """A topic that existed when a late start was first used. Its ends by partition; None: a time or the moment decides, later."""

    topic_id: BoundedText
    ends: Annotated[Mapping[str, _End | None], PlainValidator(_check_ends)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Present:
    """The topics that existed when a late start was first used."""

    at_ms: Number
    topics: Mapping[str, Item[_PresentTopic]]


_OLDER: Final = "bring its older version back"
_PRESENT: Final = NoteKind(_Present, "the topics at the first start", _OLDER)
_STARTS: Final = NoteKind(StartOffset, "a partition's first offset", _OLDER)


class StartOffsets:
    """Returns the first offset of each partition, which is constant until its log is truncated.

    A late start applies only to topics that exist when the option is first used. Topics among these that the archive does not
    know are noted then, with the ends of their logs. All later topics begin at their beginning. So a partition that
    cannot be opened for a while loses nothing.
    """

    def __init__(
        self,
        client: KafkaClient,
        sink: SegmentSink,
        pool: Workers,
        start: StartPoint,
        *,
        clock_ms: Callable[[], int] = machine_now_ms,
    ) -> None:
        self._client = client
        self._sink = sink
        self._pool = pool
        self._start = start
        self._clock_ms = clock_ms
        self._present = _Present(at_ms=0, topics={})

    async def note_present(self) -> None:
        """Note the existing topics, unless a backup has done so before. Must be called before any topic is recorded."""
        if self._start == START_EARLIEST:
            return
        archive = self._sink.archive
        known = await self._pool.call(only_fact, archive, PRESENT)
        if known is None:
            noted = _PRESENT.encode(await self._describe_present())
            known = await self._pool.call(append_only_fact, archive, PRESENT, noted)
            reach("start.noted")
        self._present = _PRESENT.decode(known, archive, PRESENT)

    async def _describe_present(self) -> _Present:
        at_ms = self._clock_ms()  # before the ends: records between them are archived
        described = await self._client.describe_topics(None)
        known = await self._pool.call(list_known_topics, self._sink.archive)
        new = {name: topic for name, topic in sorted(described.items()) if name not in known}
        ends: Mapping[TopicPartition, _End] = {}
        if not isinstance(self._start, int):
            partitions = [(name, number) for name, topic in new.items() for number in topic.partitions]
            found, _ = await self._client.offsets_each(partitions)
            ends = {which: [one.last_stable, one.leader_epoch] for which, one in found.items()}
        topics = {
            name: _PresentTopic(
                topic_id=topic.topic_id,
                ends={str(number): ends.get((name, number)) for number in topic.partitions},
            )
            for name, topic in new.items()
        }
        return _Present(at_ms=at_ms, topics=topics)

    async def first(self, source: PartitionSource) -> StartOffset:
        """Return the first offset of a partition without an archive. Not for one in a child life."""
        beginning = StartOffset(0, -1, source.topic_id)
        present = self._present.topics.get(source.topic)
        # The newest positions of idle groups may be the oldest records of `__consumer_offsets`.
        if self._start == START_EARLIEST or source.topic == OFFSETS_TOPIC or present is None:
            return beginning
        if source.life > 0 or present.topic_id != source.topic_id:  # another topic, or one without an id then
            return beginning
        if str(source.partition) not in present.ends:
            return beginning  # the topic has grown
        starts, end = self._starts(source), present.ends[str(source.partition)]
        noted = await self._pool.call(starts.read)
        told = await self._at_time(source) if end is None else StartOffset(end[0], end[1], source.topic_id)
        if noted is None and end is None:
            noted = await self._pool.call(starts.update, lambda before: before or told)
            reach("start.noted")
        held = noted or told
        if held.offset <= told.offset:
            return held
        # An offset from `present` or from a time never moves back: a higher note would hide records.
        log.warning(
            "%s: control/%s says that it begins at offset %d, and what was noted at first says %d: it begins there. Look who"
            " wrote it",
            source,
            starts.stream,
            held.offset,
            told.offset,
        )
        return told

    async def _at_time(self, source: PartitionSource) -> StartOffset:
        at_ms = self._start if isinstance(self._start, int) else self._present.at_ms
        return StartOffset(*await self._client.offset_at(source.topic, source.partition, at_ms), source.topic_id)

    async def cut_back(self, source: PartitionSource) -> None:
        """Begin earlier if the log was truncated below its start: its records are new."""
        first = await self.first(source)
        if first.offset == 0:
            return
        ends = (await self._client.offsets([(source.topic, source.partition)]))[source.topic, source.partition]
        agreed = StartOffset(ends.high_watermark, -1, source.topic_id)
        if first.leader_epoch >= 0:
            answer = await end_of_epoch(self._client, source.topic, source.partition, first.leader_epoch)
            if answer.leader_epoch >= 0:
                agreed = StartOffset(answer.end_offset, answer.leader_epoch, source.topic_id)
        if agreed.offset >= first.offset:
            return

        def change(before: StartOffset | None) -> StartOffset | None:
            return None if before is not None and before.offset <= agreed.offset else agreed

        await self._pool.call(self._starts(source).update, change)
        log.error(
            "%s: the log was cut back to offset %d, below offset %d at which the archive was to begin: it begins there now."
            " Look for an unclean election or a lost disk",
            source,
            agreed.offset,
            first.offset,
        )
        self._sink.ledger.branched(source.topic)

    def _starts(self, source: PartitionSource) -> NoteStream[StartOffset]:
        return _STARTS.at(self._sink.archive, f"starts/{source.topic}/{source.partition}")
