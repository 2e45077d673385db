"""Where partitions begin that have no archive yet, when a backup was told not to begin at their beginning."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from archiver.archive.control import FORMAT, Fact, append_fact, latest_fact, settle_first
from archiver.archive.topics import PartitionSource, topics_known
from archiver.backup.partition_writer import SegmentSink
from archiver.errors import CorruptSegmentError
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import TopicPartition
from archiver.kafka.epochs import end_of_epoch
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.process.failpoints import reach
from archiver.process.json_values import as_list, as_number, as_object, as_text
from archiver.process.workers import Workers

log = logging.getLogger(__name__)

Start = Literal["earliest", "latest"] | int  # or milliseconds since the epoch
EARLIEST: Final = "earliest"
_PRESENT: Final = "present"  # the stream of one fact


class First(NamedTuple):
    """The first offset that is archived, and the leader epoch in which the log had it; -1: not known."""

    offset: int
    leader_epoch: int = -1


BEGINNING: Final = First(0)


class Starts:
    """Tells each partition's first offset, the same one until its log is cut back.

    A late start applies only to topics that exist when the option is first used. Those that the archive does not know are
    written down then, with the ends of their logs. All others, whoever sees them first, begin at their beginning. So trouble
    that keeps a partition from being opened loses nothing of it.
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
        """Write down what is there, if nobody did. Before any topic is settled."""
        if self._start == EARLIEST:
            return
        known = await self._pool.call(self._latest, _PRESENT)
        if known is None:
            known = await self._pool.call(self._settle, _PRESENT, await self._look())
            reach("start.noted")
        self._present = _checked_present(known)

    async def _look(self) -> Fact:
        at_ms = self._clock_ms()  # before the ends: what comes between is archived
        described = await self._client.describe_topics(None)
        known = await self._pool.call(topics_known, self._sink.archive)
        new = {name: topic for name, topic in sorted(described.items()) if name not in known}
        ends: Mapping[TopicPartition, Any] = {}
        if not isinstance(self._start, int):
            partitions = [(name, number) for name, topic in new.items() for number in topic.partitions]
            found, _ = await self._client.offsets_each(partitions)
            ends = {which: [one.last_stable, one.leader_epoch] for which, one in found.items()}
        topics = {
            name: {
                "topic_id": topic.topic_id,
                "ends": {str(number): ends.get((name, number)) for number in topic.partitions},
            }
            for name, topic in new.items()
        }
        return {"format": FORMAT, "at_ms": at_ms, "topics": topics}

    async def first(self, source: PartitionSource) -> First:
        """Return where a partition begins that has no archive. Not for one in a child life."""
        present = self._present["topics"].get(source.topic)
        # The first life is of the topic that was noted, unless ids tell otherwise; some brokers tell none.
        ids = set() if present is None else {present["topic_id"], source.topic_id} - {""}
        is_old = present is not None and source.life == 0 and len(ids) < 2
        # Of groups that rest, the newest positions may be the oldest records of the topic of positions.
        if self._start == EARLIEST or source.topic == OFFSETS_TOPIC or not is_old:
            return BEGINNING
        if str(source.partition) not in present["ends"]:
            return BEGINNING  # the topic has grown
        stream = _stream(source)
        noted = await self._pool.call(self._latest, stream)
        if noted is not None:
            return _first_of(noted, stream)
        if (end := present["ends"][str(source.partition)]) is not None:
            return First(*end)
        at_ms = self._start if isinstance(self._start, int) else self._present["at_ms"]
        first = First(*await self._client.offset_at(source.topic, source.partition, at_ms))
        held = await self._pool.call(self._settle, stream, _fact(source, first))
        reach("start.noted")
        return _first_of(held, stream)

    async def cut_back(self, source: PartitionSource) -> bool:
        """Begin earlier when the log was cut back to below its start: what is there now is new. Tell whether it was."""
        first = await self.first(source)
        if first.offset == 0:
            return False
        ends = (await self._client.offsets([(source.topic, source.partition)]))[source.topic, source.partition]
        agreed = First(ends.high_watermark)
        if first.leader_epoch >= 0:
            answer = await end_of_epoch(self._client, source.topic, source.partition, first.leader_epoch)
            if answer.leader_epoch >= 0:
                agreed = First(answer.end_offset, answer.leader_epoch)
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

    def _settle(self, stream: str, wanted: Fact) -> Fact:
        return settle_first(self._sink.archive, stream, wanted)


def _stream(source: PartitionSource) -> str:
    return f"starts/{source.topic}/{source.partition}"


def _checked_present(fact: Fact) -> Fact:
    """Return the fact of what was there first, if it can be one. Raises CorruptSegmentError."""
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


def _first(offset: object, leader_epoch: object) -> First:
    return First(as_number(offset), as_number(leader_epoch, -1))


def _first_of(fact: Fact, stream: str) -> First:
    """Return where a partition begins. Raises CorruptSegmentError."""
    try:
        return _first(fact["offset"], fact["leader_epoch"])
    except (KeyError, ValueError) as error:
        raise CorruptSegmentError(
            f"control/{stream}: does not tell where a partition begins: {error!r}; bring its older version back"
        ) from error


def _fact(source: PartitionSource, first: First) -> Fact:
    return {
        "format": FORMAT,
        "topic_id": source.topic_id,
        "offset": first.offset,
        "leader_epoch": first.leader_epoch,
    }
