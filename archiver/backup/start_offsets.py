"""Where partitions without an archive begin, when a backup is told not to begin at the beginning of their logs."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from archiver.archive.control import FACT_FORMAT, Fact, append_fact, append_first_fact, latest_fact
from archiver.archive.topics import PartitionSource, list_known_topics
from archiver.backup.segment_sink import SegmentSink
from archiver.config.model import Start
from archiver.errors import CorruptSegmentError
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import TopicPartition
from archiver.kafka.epochs import end_of_epoch
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.process.failpoints import reach
from archiver.process.json_values import as_list, as_number, as_object, as_text
from archiver.process.workers import Workers

log = logging.getLogger(__name__)

START_EARLIEST: Final = "earliest"
_PRESENT: Final = "present"  # a stream with one fact: the topics that existed at first


class StartOffset(NamedTuple):
    """The first offset that is archived, and the leader epoch in which the log had it; -1: not known."""

    offset: int
    leader_epoch: int = -1


LOG_BEGINNING: Final = StartOffset(0)


class StartOffsets:
    """Tells each partition's first offset, always the same one until its log is cut back.

    A late start applies only to topics that exist when the option is first used. Of these, the ones that the archive does not
    know are written down then, with the ends of their logs. All later topics begin at their beginning. So a partition that
    cannot be opened for a while loses nothing.
    """

    def __init__(
        self,
        client: KafkaClient,
        sink: SegmentSink,
        pool: Workers,
        start: Start,
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._client = client
        self._sink = sink
        self._pool = pool
        self._start = start
        self._clock_ms = clock_ms
        self._present: Fact = {"topics": {}}

    async def note_present(self) -> None:
        """Write down which topics exist, unless that was done. It must be done before any topic is recorded."""
        if self._start == START_EARLIEST:
            return
        known = await self._pool.call(self._latest, _PRESENT)
        if known is None:
            known = await self._pool.call(self._append_first, _PRESENT, await self._survey_present())
            reach("start.noted")
        self._present = _checked_present(known)

    async def _survey_present(self) -> Fact:
        at_ms = self._clock_ms()  # taken before the ends: records that come in between are archived
        described = await self._client.describe_topics(None)
        known = await self._pool.call(list_known_topics, self._sink.archive)
        new = {name: topic for name, topic in sorted(described.items()) if name not in known}
        ends: Mapping[TopicPartition, Any] = {}
        if not isinstance(self._start, int):
            partitions = [(name, number) for name, topic in new.items() for number in topic.partitions]
            found, _ = await self._client.offsets_known(partitions)
            ends = {which: [one.last_stable, one.leader_epoch] for which, one in found.items()}
        topics = {
            name: {
                "topic_id": topic.topic_id,
                "ends": {str(number): ends.get((name, number)) for number in topic.partitions},
            }
            for name, topic in new.items()
        }
        return {"format": FACT_FORMAT, "at_ms": at_ms, "topics": topics}

    async def first(self, source: PartitionSource) -> StartOffset:
        """Return where a partition without an archive begins. Not for a partition in a child life."""
        present = self._present["topics"].get(source.topic)
        # The first life belongs to the topic that was noted, unless ids differ; some brokers have no ids.
        ids = set() if present is None else {present["topic_id"], source.topic_id} - {""}
        is_old = present is not None and source.life == 0 and len(ids) < 2
        # The offsets topic is always read from its beginning: its oldest records may be the newest positions of idle groups.
        if self._start == START_EARLIEST or source.topic == OFFSETS_TOPIC or not is_old:
            return LOG_BEGINNING
        if str(source.partition) not in present["ends"]:
            return LOG_BEGINNING  # the partition was added later
        stream = _stream(source)
        noted = await self._pool.call(self._latest, stream)
        if noted is not None:
            return _first_of(noted, stream)
        if (end := present["ends"][str(source.partition)]) is not None:
            return StartOffset(*end)
        at_ms = self._start if isinstance(self._start, int) else self._present["at_ms"]
        first = StartOffset(*await self._client.offset_at(source.topic, source.partition, at_ms))
        held = await self._pool.call(self._append_first, stream, _fact(source, first))
        reach("start.noted")
        return _first_of(held, stream)

    async def cut_back(self, source: PartitionSource) -> bool:
        """Note an earlier start when the log was cut back to below the noted one: what is there now is new. Tells whether it was."""
        first = await self.first(source)
        if first.offset == 0:
            return False
        ends = (await self._client.offsets([(source.topic, source.partition)]))[source.topic, source.partition]
        agreed = StartOffset(ends.high_watermark)
        if first.leader_epoch >= 0:
            answer = await end_of_epoch(self._client, source.topic, source.partition, first.leader_epoch)
            if answer.leader_epoch >= 0:
                agreed = StartOffset(answer.end_offset, answer.leader_epoch)
        if agreed.offset >= first.offset:
            return False

        stream = _stream(source)

        def decide(latest: Fact | None) -> Fact | None:
            is_known = latest is not None and _first_of(latest, stream).offset <= agreed.offset
            return None if is_known else _fact(source, agreed)

        sink = self._sink
        await self._pool.call(append_fact, sink.archive, stream, decide)
        log.error(
            "%s: the log was cut back to offset %d, below offset %d at which the archive was to begin: it begins there now."
            " Look for an unclean election or a lost disk",
            source,
            agreed.offset,
            first.offset,
        )
        sink.ledger.branched(source.topic)
        return True

    def _latest(self, stream: str) -> Fact | None:
        return latest_fact(self._sink.archive, stream)

    def _append_first(self, stream: str, wanted: Fact) -> Fact:
        return append_first_fact(self._sink.archive, stream, wanted)


def _stream(source: PartitionSource) -> str:
    return f"starts/{source.topic}/{source.partition}"


def _checked_present(fact: Fact) -> Fact:
    """Return the fact of the topics that existed at first, if it is one. Raises CorruptSegmentError."""
    try:
        as_number(fact["at_ms"])
        for topic in map(as_object, as_object(fact["topics"]).values()):
            as_text(topic["topic_id"])
            for end in as_object(topic["ends"]).values():
                if end is not None:
                    _first(*as_list(end))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptSegmentError(
            f"control/{_PRESENT}: does not tell what was there first: {error!r}; bring its older version back"
        ) from error
    return fact


def _first(offset: object, leader_epoch: object) -> StartOffset:
    return StartOffset(as_number(offset), as_number(leader_epoch, -1))


def _first_of(fact: Fact, stream: str) -> StartOffset:
    """Return where a partition begins. Raises CorruptSegmentError."""
    try:
        return _first(fact["offset"], fact["leader_epoch"])
    except (KeyError, ValueError) as error:
        raise CorruptSegmentError(
            f"control/{stream}: does not tell where a partition begins: {error!r}; bring its older version back"
        ) from error


def _fact(source: PartitionSource, first: StartOffset) -> Fact:
    return {
        "format": FACT_FORMAT,
        "topic_id": source.topic_id,
        "offset": first.offset,
        "leader_epoch": first.leader_epoch,
    }
