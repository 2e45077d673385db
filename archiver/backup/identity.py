"""Whether a name still stands for the topic that was archived: where topic ids do not show that, records do.

What counts as proof, and what is done without one: docs/decisions/0022-topics-without-ids.md
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from archiver.archive.layout import SegmentKey
from archiver.archive.parts import ObjectPart
from archiver.archive.reader import read_parts
from archiver.archive.segment_writer import FinishedSegment
from archiver.archive.topics import Judged, Stretch, TopicFact
from archiver.archive.v1_bounds import END_PIECE_BYTES, Container, open_container
from archiver.backup.cut_back import Archived, find_branch, first_reaching, newest_first
from archiver.backup.segment_sink import SegmentSink
from archiver.codec.frame import Column, Frame
from archiver.codec.tally import Tally
from archiver.config.model import UnprovenPolicy
from archiver.errors import ArchiverError, CorruptBatchError, KafkaError, KafkaTemporaryError
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import PartitionOffsets, TopicDescription, TopicPartition
from archiver.kafka.log_reader import LogRange, LogStartError, first_record_offset, read_log
from archiver.process.workers import Workers
from archiver.store.port import ObjectStore

log = logging.getLogger(__name__)

_ATTEMPTS = 3  # while the brokers delete what is being compared
_MOST_SAMPLES = 8  # comparisons with archived records, from the oldest offsets of a log on
_NEAR_THE_END = 10  # offsets; the last ones of a log may be markers of transactions


class Kin(Enum):
    """How the log of a partition is related to what is archived under its name."""

    SAME = auto()  # the same log: it has the newest archived records that it could have
    OTHER = auto()  # another log: it has other records in their place
    SHORTER = auto()  # it ends before them, and has none of those before: created again, or lost with its disk
    ADJOINS = auto()  # it has none of them, and begins where the archive ends: nothing is missing
    UNKNOWN = auto()  # it begins behind the archived records, or has other offsets


@dataclass(frozen=True, slots=True)
class Place:
    """A partition as it was archived so far: in a life, and in the lives that this one goes on from."""

    topic: str
    topic_id: str
    partition: int
    root: int
    lineage: Sequence[Stretch]

    @classmethod
    def of(cls, topic: TopicDescription, number: int, known: TopicFact, life: int) -> "Place":
        return cls(topic.name, topic.topic_id, number, known.root(life), known.lineage(life, number))

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Sight:
    """A record near the end of a log."""

    offset: int
    digest: int


@dataclass(frozen=True, slots=True)
class _KinFindings:
    """How the logs of a topic are related to what is archived of them; and errors, of logs that could not be compared."""

    archived: Sequence[tuple[Place, Archived]]
    kins: Sequence[Kin]
    errors: Sequence[BaseException]


class Identity:
    """Compares the newest archived records of partitions with their logs."""

    def __init__(self, client: KafkaClient, sink: SegmentSink, pool: Workers, unproven: UnprovenPolicy) -> None:
        self._client = client
        self._sink = sink
        self._pool = pool
        self._unproven = unproven
        self._sights: dict[
            TopicPartition, tuple[int, Sight]
        ] = {}  # each with the root of lives in whose log the record was seen

    async def judge(self, topic: TopicDescription, known: TopicFact) -> Judged:
        """Decide whether a topic is the one that the archive knows. Raises KafkaError where nothing decides that."""
        found = await self._compare(topic, known)
        return Judged(known.root(known.current.life), is_same=self._is_same(topic.name, found))

    async def _compare(self, topic: TopicDescription, known: TopicFact) -> _KinFindings:
        places = [Place.of(topic, number, known, known.current.life) for number in topic.partitions]
        ends = await asyncio.gather(*map(self.newest, places))
        archived = {place.key: (place, end) for place, end in zip(places, ends, strict=True) if end is not None}
        if not archived:
            return _KinFindings([], [], [])
        offsets, refused = await self._client.offsets_each(archived)
        kins = await asyncio.gather(
            *(self.kin(*archived[key], offsets[key]) for key in sorted(offsets)), return_exceptions=True
        )
        return _KinFindings(
            archived=[archived[key] for key in sorted(archived)],
            kins=[kin for kin in kins if isinstance(kin, Kin)],
            errors=[*refused.values(), *(kin for kin in kins if isinstance(kin, BaseException))],
        )

    def _is_same(self, topic: str, found: _KinFindings) -> bool:
        if not found.archived:  # nothing is archived, so nothing can be mixed
            return True
        if (
            Kin.OTHER in found.kins or Kin.SAME in found.kins
        ):  # topics are deleted as a whole: one partition decides for all
            return Kin.OTHER not in found.kins
        for error in found.errors:
            raise error
        if Kin.SHORTER in found.kins:
            return False
        return Kin.UNKNOWN not in found.kins or self._decide(topic, found.archived)

    async def still_has(self, topic: TopicDescription, known: TopicFact, place: Place, held: FinishedSegment) -> bool:
        """Tell whether a log is still the archived one, and the one from which the held records came.

        It is enough to compare the first held records: a deleted log does not come back, so the later ones came from it, too.
        """
        for _ in range(_ATTEMPTS):
            at = (await self._client.offsets([place.key]))[place.key]
            sight = await self._sight_end_past(place, held.facts.next, at)
            try:
                is_same = await self._still_has(topic, known, place, held, at)
            except LogStartError:
                continue
            if is_same:
                self.keep(place.topic, place.root, {place.partition: sight})
            return is_same
        raise self._too_fast(place)

    async def _still_has(
        self, topic: TopicDescription, known: TopicFact, place: Place, held: FinishedSegment, at: PartitionOffsets
    ) -> bool:
        end = await self.newest(place)
        kin = Kin.UNKNOWN if end is None else await self.kin(place, end, at)
        if kin in {Kin.OTHER, Kin.SHORTER}:
            return False
        first = await self._pool.call(_first_records, held, at.log_start)
        has_first = None if first is None else await self.holds(place, first, at.log_start, at.last_stable)
        if has_first is not None or kin is Kin.SAME:
            return has_first is not False
        if at.log_start == held.facts.next or await self._has_sighted(place, at):
            return True
        if self._unproven is UnprovenPolicy.GO_ON and at.high_watermark >= held.facts.next:
            return True
        return Kin.SAME in (await self._compare(topic, known)).kins

    # --- sights of the end of a log

    async def sight_log_ends(self, topic: TopicDescription) -> Mapping[int, Sight | None]:
        """Read a record near the end of each log. Once it is proved whose log that is, the record proves it again, while it is there.

        When a backup is behind, its log may lose all archived records. Records near the end stay longest.
        """
        offsets, _ = await self._client.offsets_each([(topic.name, number) for number in topic.partitions])
        keys = sorted(offsets)
        sights = await asyncio.gather(*(self._sight_end(key, topic.topic_id, offsets[key]) for key in keys))
        return {number: sight for (_, number), sight in zip(keys, sights, strict=True)}

    def keep(self, topic: str, root: int, sights: Mapping[int, Sight | None]) -> None:
        """Note that the logs with these records belong to a root of lives."""
        for number, sight in sights.items():
            if sight is not None:
                self._sights[topic, number] = root, sight

    async def goes_on(self, place: Place) -> bool:
        """Tell whether a log that no longer has a backup's position is the same log, by the record that was seen near its end."""
        at = (await self._client.offsets([place.key]))[place.key]
        sight = await self._sight_end(place.key, place.topic_id, at)
        is_same = await self._has_sighted(place, at)
        if is_same:
            self.keep(place.topic, place.root, {place.partition: sight})
        return is_same

    async def _sight_end_past(self, place: Place, offset: int, at: PartitionOffsets) -> Sight | None:
        """Read a record near the end again, unless the last one lies at or behind `offset`: below it, archived records prove as much."""
        _, last = self._sights.get(place.key, (0, None))
        is_needed = at.last_stable > offset and (last is None or last.offset < offset)
        return await self._sight_end(place.key, place.topic_id, at) if is_needed else None

    async def _sight_end(self, key: TopicPartition, topic_id: str, at: PartitionOffsets) -> Sight | None:
        return await self._read_sight(key, topic_id, max(at.log_start, at.last_stable - _NEAR_THE_END), at.last_stable)

    async def _has_sighted(self, place: Place, at: PartitionOffsets) -> bool:
        root, sight = self._sights.get(place.key, (-1, None))
        if sight is None or root != place.root or not at.log_start <= sight.offset < at.last_stable:
            return False
        return sight == await self._read_sight(place.key, place.topic_id, sight.offset, sight.offset + 1)

    async def _read_sight(self, key: TopicPartition, topic_id: str, start: int, end: int) -> Sight | None:
        """Read the last record of a range; None also when it cannot be read, which only means one proof less."""
        seen: list[Sight] = []

        def take(frame: Frame) -> None:
            if len(frame):
                last = frame.rows(len(frame) - 1, len(frame))
                seen[:] = [Sight(int(last.column(Column.OFFSET)[0]), _digest(last))]

        topic, partition = key
        try:
            await read_log(
                self._client, LogRange(topic=topic, topic_id=topic_id, partition=partition, start=start, end=end), take
            )
        except ArchiverError as error:
            log.debug("%s-%d: the end of its log cannot be looked at: %s", topic, partition, error)
            return None
        return seen[0] if seen else None

    # --- what holds where nothing tells

    def _decide(self, topic: str, archived: Sequence[tuple[Place, Archived]]) -> bool:
        """Decide by the configuration, where no record proves anything."""
        if self._unproven is UnprovenPolicy.REFUSE:
            place, end = archived[0]
            raise KafkaError(
                f"topic {topic} has no topic id that is known, and none of the archived records was found in its log: not the"
                f" newest, and none from the oldest offset of the log on ({place} is archived up to offset {end.next}). Nothing"
                " tells whether it was created again, and nothing of it is archived until topics.unproven says: go-on (it is"
                " the same topic) or new-life (it is another one)"
            )
        return self._unproven is UnprovenPolicy.GO_ON

    async def newest(self, place: Place) -> Archived | None:
        """Return the newest object of a partition; None when nothing is archived."""
        return await anext(self._newest_first(place), None)

    def _newest_first(self, place: Place) -> AsyncIterator[Archived]:
        sink = self._sink
        return newest_first(self._pool, sink.archive, place.topic, place.partition, place.lineage)

    async def kin(self, place: Place, end: Archived, at: PartitionOffsets) -> Kin:
        """Find how a log, whose offsets are `at`, is related to an archive whose newest object is `end`."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._kin(place, end, at)
            except LogStartError:
                at = (await self._client.offsets([place.key]))[place.key]
            except CorruptBatchError as error:
                log.debug("%s: cannot be compared with the archive: %s", place, error)
                return Kin.UNKNOWN
        raise self._too_fast(place)

    def _too_fast(self, place: Place) -> KafkaTemporaryError:
        return KafkaTemporaryError(f"{place}: the brokers delete faster than it can be compared with the archive")

    async def _kin(self, place: Place, end: Archived, at: PartitionOffsets) -> Kin:
        below = min(end.next, at.last_stable)  # nothing behind the last stable offset is served
        agrees = await self._agrees(place, end, at.log_start, below)
        if agrees is None:
            return await self._kin_without_records(place, end, at)
        if agrees or await self._was_cut_back(place, end, at.log_start, below):
            return Kin.SAME
        return Kin.OTHER

    async def _kin_without_records(self, place: Place, end: Archived, at: PartitionOffsets) -> Kin:
        if at.high_watermark < end.next:
            return Kin.SHORTER
        if 0 <= at.leader_epoch < end.facts.leader_epoch:
            return Kin.OTHER  # a topic's epochs only grow; those of a topic that was created again begin at 0
        if at.log_start == end.next:
            return Kin.ADJOINS
        return Kin.SAME if await self._has_sighted(place, at) else Kin.UNKNOWN

    async def _was_cut_back(self, place: Place, end: Archived, log_start: int, below: int) -> bool:
        """Tell whether a log with other records is the same log up to an offset where it was cut back, by its epochs."""
        sink = self._sink
        branch = await find_branch(
            self._client,
            sink.archive,
            pool=self._pool,
            topic=place.topic,
            partition=place.partition,
            lineage=place.lineage,
            log_start=log_start,
        )
        return branch.offset < below and bool(await self._agrees(place, end, log_start, branch.offset))

    async def _agrees(self, place: Place, end: Archived, log_start: int, below: int) -> bool | None:
        """Tell whether the log has the newest archived records below an offset, or, where those are gone, older ones.

        None: it has none of the records that were compared.
        """
        if below <= log_start:
            return None
        agrees = None
        if end.facts.first < below:
            agrees = await self._holds(place, end, log_start, below)
        else:
            async for archived in self._newest_first(place):
                if archived.facts.first < below:
                    agrees = await self._holds(place, archived, log_start, below)
                    break
        return await self._survivors_agree(place, log_start, below) if agrees is None else agrees

    async def _survivors_agree(self, place: Place, log_start: int, below: int) -> bool | None:
        """Tell whether the log has those archived records that compaction has left, from the oldest on."""
        position = log_start
        for _ in range(_MOST_SAMPLES):
            wanted = self._range(place, position, below)
            found = None if position >= below else await first_record_offset(self._client, wanted)
            if found is None:
                return None
            sink = self._sink
            archived = await first_reaching(
                self._pool, sink.archive, place.topic, place.partition, place.lineage, found
            )
            if archived is None:
                return None
            frame = await self._pool.call(_records_from, sink.archive.store, place, archived, found, below)
            agrees = None if frame is None else await self.holds(place, frame, log_start, below)
            if agrees is not None:
                return agrees
            position = archived.next if frame is None else int(frame.column(Column.OFFSET)[-1]) + 1
        return None

    async def _holds(self, place: Place, archived: Archived, log_start: int, below: int) -> bool | None:
        frame = await self._pool.call(
            _last_records, self._sink.archive.store, place, archived, min(below, archived.next)
        )
        return None if frame is None else await self.holds(place, frame, log_start, below)

    async def holds(self, place: Place, frame: Frame, log_start: int, below: int) -> bool | None:
        """Tell whether a log has these records, and no others between them; None when it has none of them."""
        offsets = frame.column(Column.OFFSET)
        start, end = max(log_start, int(offsets[0])), min(below, int(offsets[-1]) + 1)
        found: list[bool] = []

        def compare(logged: Frame) -> None:
            if len(logged):
                found.append(_are_the_same(frame, logged))

        if start < end:
            await read_log(self._client, self._range(place, start, end), compare)
        return all(found) if found else None

    def _range(self, place: Place, start: int, end: int) -> LogRange:
        return LogRange(topic=place.topic, topic_id=place.topic_id, partition=place.partition, start=start, end=end)


def _first_records(held: FinishedSegment, log_start: int) -> Frame | None:
    """Read the first records of a segment that is not put yet, at or above the start of its log."""
    source = held.source
    with held.open_body() as body:

        def read(start: int, stop: int) -> bytes:
            body.seek(start)
            return body.read(stop - start)

        container = Container(read(0, min(held.size, END_PIECE_BYTES)), read, str(held.blocks), held.size)
        key = SegmentKey(topic=source.topic, partition=source.partition, base=held.facts.base)
        for block in container.blocks():
            for frame in container.frames(block, key):
                if frame.column(Column.OFFSET)[-1] >= log_start:
                    return frame
    return None


def _records_from(store: ObjectStore, place: Place, archived: Archived, first: int, below: int) -> Frame | None:
    """Read the first records of an object that lie from one offset on, and below another."""
    part = ObjectPart(archived.key, from_offset=first, until_offset=min(below, archived.next))
    return next(read_parts(store, place.topic, place.partition, [part]), None)


def _last_records(store: ObjectStore, place: Place, archived: Archived, below: int) -> Frame | None:
    """Read the last records of an object that lie below an offset: of its last block, if they lie there."""
    last = None
    if archived.facts.last < below:
        container = open_container(store, archived.key, archived.size)
        if container is not None:
            key = SegmentKey(topic=place.topic, partition=place.partition, base=archived.facts.base)
            for last in container.frames(container.last_block(), key):  # noqa: B007 - the last one
                pass
        return last
    part = ObjectPart(archived.key, from_offset=0, until_offset=below)
    for last in read_parts(store, place.topic, place.partition, [part]):  # noqa: B007
        pass
    return last


def _are_the_same(archived: Frame, logged: Frame) -> bool:
    """Tell whether all records of a log are archived as they are. Compaction may have taken some of them out of it."""
    common = archived.only(np.isin(archived.column(Column.OFFSET), logged.column(Column.OFFSET)))
    return len(common) == len(logged) and _digest(common) == _digest(logged)


def _digest(frame: Frame) -> int:
    tally = Tally()
    tally.add(frame)
    return tally.digest
