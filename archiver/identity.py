"""Whether a name still stands for the topic that was archived, where no topic id tells: its records do.

What counts as proof, and what is done without one: docs/decisions/0022-topics-without-ids.md
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from archiver.branch import Archived, find_branch, newest_first
from archiver.config import Unproven
from archiver.control import Judged, Stretch, TopicFact
from archiver.ends import PIECE_BYTES, Container, open_container
from archiver.errors import CorruptBatchError, KafkaError, KafkaTemporaryError
from archiver.frame import Column, Frame
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import PartitionOffsets, TopicDescription
from archiver.layout import SegmentKey
from archiver.log_reader import LogRange, LogStartError, read_log
from archiver.parts import ObjectPart
from archiver.reader import read_parts
from archiver.segment import FinishedSegment
from archiver.store import ObjectStore
from archiver.tally import Tally
from archiver.workers import Workers
from archiver.writer import Archive

log = logging.getLogger(__name__)

_ATTEMPTS = 3  # while the brokers delete what is being compared


class Kin(Enum):
    """What the log of a partition is to what is archived of it."""

    SAME = auto()  # it has the newest archived records that it could have
    OTHER = auto()  # it has others in their place
    SHORTER = auto()  # it ends before them, and has none of those before: created again, or lost with its disk
    UNKNOWN = auto()  # it begins behind them


@dataclass(frozen=True, slots=True)
class Place:
    """A partition as it was archived so far, in a life and those that it goes on from."""

    topic: str
    topic_id: str
    partition: int
    lineage: Sequence[Stretch]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Identity:
    """Holds the newest archived records of partitions against their logs."""

    def __init__(self, client: KafkaClient, archive: Archive, pool: Workers, unproven: Unproven) -> None:
        self._client = client
        self._archive = archive
        self._pool = pool
        self._unproven = unproven

    async def judge(self, topic: TopicDescription, known: TopicFact) -> Judged:
        """Tell whether a topic is the one that is known. Raises KafkaError where nothing decides that."""
        places = [
            Place(topic.name, topic.topic_id, number, known.lineage(known.current.life, number))
            for number in topic.partitions
        ]
        ends = await asyncio.gather(*map(self.newest, places))
        archived = {place.partition: (place, end) for place, end in zip(places, ends, strict=True) if end is not None}
        root = known.root(known.current.life)
        if not archived:  # then there is nothing that could be mixed
            return Judged(root, is_same=True)
        offsets, refused = await self._client.offsets_known([(topic.name, number) for number in archived])
        kins = await asyncio.gather(
            *(self.kin(*archived[number], offsets[topic.name, number]) for _, number in sorted(offsets)),
            return_exceptions=True,
        )
        errors = [*refused.values(), *(kin for kin in kins if isinstance(kin, BaseException))]
        if Kin.OTHER in kins:
            return Judged(root, is_same=False)
        if Kin.SAME in kins:  # topics are deleted as a whole
            return Judged(root, is_same=True)
        for error in errors:
            raise error
        if Kin.SHORTER in kins:
            return Judged(root, is_same=False)
        return Judged(root, is_same=self._decide(topic.name, [archived[number] for _, number in sorted(offsets)]))

    async def still_has(self, place: Place, held: FinishedSegment) -> bool:
        """Tell whether a log is still the one that is archived, and from which what is held came.

        What came after the first of it came from the same log: what was deleted does not come back.
        """
        key = place.topic, place.partition
        at = (await self._client.offsets([key]))[key]
        end = await self.newest(place)
        if end is not None and await self.kin(place, end, at) in {Kin.OTHER, Kin.SHORTER}:
            return False
        first = await self._pool.call(_first_records, held)
        return await self.holds(place, first, at.log_start, at.last_stable) is not False

    def _decide(self, topic: str, archived: Sequence[tuple[Place, Archived]]) -> bool:
        """Do what the configuration says where nothing else tells."""
        if self._unproven is Unproven.REFUSE:
            place, end = archived[0]
            raise KafkaError(
                f"topic {topic} has no topic id that is known, and its log none of the archived records any more ({place} is"
                f" archived up to offset {end.next}): nothing tells whether it was created again, and nothing of it is"
                " archived until topics.unproven says: go-on (it is the same topic) or new-life (it is another one)"
            )
        return self._unproven is Unproven.GO_ON

    async def newest(self, place: Place) -> Archived | None:
        """Return the newest object of a partition; None when nothing is archived."""
        return await anext(self._newest_first(place), None)

    def _newest_first(self, place: Place) -> AsyncIterator[Archived]:
        archive = self._archive
        return newest_first(self._pool, archive.store, archive.layout, place.topic, place.partition, place.lineage)

    async def kin(self, place: Place, end: Archived, at: PartitionOffsets) -> Kin:
        """Tell what a log, which begins and ends there, is to an archive that ends with that object."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._kin(place, end, at)
            except LogStartError:
                key = place.topic, place.partition
                at = (await self._client.offsets([key]))[key]
            except CorruptBatchError as error:
                log.debug("%s: cannot be compared with the archive: %s", place, error)
                return Kin.UNKNOWN
        raise KafkaTemporaryError(f"{place}: the brokers delete faster than it can be compared with the archive")

    async def _kin(self, place: Place, end: Archived, at: PartitionOffsets) -> Kin:
        below = min(end.next, at.last_stable)  # behind it nothing is served while a transaction is open
        agrees = await self._agrees(place, end, at.log_start, below)
        if agrees is None and at.high_watermark < end.next:
            return Kin.SHORTER
        if agrees is None:
            # A topic's epochs only grow; those of one that was created again begin anew.
            return Kin.OTHER if 0 <= at.leader_epoch < end.facts.leader_epoch else Kin.UNKNOWN
        if agrees or await self._was_cut_back(place, end, at.log_start, below):
            return Kin.SAME
        return Kin.OTHER

    async def _was_cut_back(self, place: Place, end: Archived, log_start: int, below: int) -> bool:
        """Tell whether a log that has other records is the same one up to where it was cut back, as epochs tell."""
        archive = self._archive
        branch = await find_branch(
            self._client,
            archive.store,
            archive.layout,
            pool=self._pool,
            topic=place.topic,
            partition=place.partition,
            lineage=place.lineage,
            log_start=log_start,
        )
        return branch.offset < below and bool(await self._agrees(place, end, log_start, branch.offset))

    async def _agrees(self, place: Place, end: Archived, log_start: int, below: int) -> bool | None:
        """Tell whether the newest archived records below an offset are the log's; None when it has none of them."""
        if below <= log_start:
            return None
        if end.facts.first < below:
            return await self._holds(place, end, log_start, below)
        async for archived in self._newest_first(place):
            if archived.facts.first < below:
                return await self._holds(place, archived, log_start, below)
        return None

    async def _holds(self, place: Place, archived: Archived, log_start: int, below: int) -> bool | None:
        frame = await self._pool.call(_last_records, self._archive.store, place, archived, min(below, archived.next))
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
            wanted = LogRange(
                topic=place.topic, topic_id=place.topic_id, partition=place.partition, start=start, end=end
            )
            await read_log(self._client, wanted, compare)
        return all(found) if found else None


def _first_records(held: FinishedSegment) -> Frame:
    """Read the records of the first block of a segment that is not put yet."""
    source = held.source
    with held.open_body() as body:

        def read(start: int, stop: int) -> bytes:
            body.seek(start)
            return body.read(stop - start)

        container = Container(read(0, min(held.size, PIECE_BYTES)), read, str(held.blocks), held.size)
        key = SegmentKey(topic=source.topic, partition=source.partition, base=held.facts.base)
        return next(container.frames(container.first_block(), key))


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
