"""Carries out the plan of a sweep, each life of a partition after the other. Swept ranges are noted before their objects are deleted.

1. For each batch: verify that its replacement exists; check all conditions again; list it again; note its offsets as swept; read holds and unfinished restores once more; delete it within LOOK_S.
2. After the last batch: noted ranges leave the swept set if their objects still exist, so that a later loss is reported.
3. Then shadowed objects are deleted: object and cover are checked again right before. None of their offsets count as swept.

A process that dies between two of these steps leaves objects whose offsets count as swept: readers read them, and the
next run corrects the swept set, or deletes them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Final, NamedTuple
from uuid import uuid4

from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import epoch_ms, since_boot_s
from archiver.archive.notes.holds import delete_after_look
from archiver.archive.notes.swept import (
    Noting,
    OffsetRanges,
    SweptPlace,
    add_swept,
    clear_old_swept,
    note_going,
    was_swept,
)
from archiver.errors import ArchiverError, StoreError, StoreTemporaryError
from archiver.process.running.failpoints import reach
from archiver.upkeep.retention.planning.covers import still_shadowed
from archiver.upkeep.retention.planning.partition_verdict import Going, GoingItem
from archiver.upkeep.retention.planning.shadowed import ShadowedItem
from archiver.upkeep.retention.planning.survey import PartitionSweep, ask_object
from archiver.upkeep.retention.planning.sweep_plan import TopicSweep
from archiver.upkeep.retention.sweeping.swept_corrections import list_place, take_back_own

log = logging.getLogger(__name__)

_BATCH: Final = 1_000  # what S3 deletes by one request
FRESH_S: Final = 60  # for so long answers are valid: a process may sleep before it deletes
_PARTITIONS_AT_ONCE: Final = 8
STOOD_STILL: Final = (
    f"it took more than {FRESH_S} s to list again before anything could be deleted: the store answers slowly, or this process stood"
    " still"
)
# Delays before a temporary refusal of the store is decided on again.
PAUSES_S: Final = (0.0, 1.0, 5.0, 20.0)


@dataclass(slots=True)
class TopicSweepResult:
    """The result for a topic, or for one of its lives."""

    topic: str  # its name, as in the plan
    deleted: list[GoingItem] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # deletes that the store denied, or that failed
    stopped: str = ""  # why this and later batches were not deleted

    @property
    def records(self) -> int:
        """The number of deleted records: those of shadowed objects still exist."""
        return sum(one.told.records for one in self.deleted if one.why is not Going.SHADOWED)

    @property
    def bytes(self) -> int:
        return sum(one.item.size for one in self.deleted)


StillHolds = Callable[[TopicSweep], str]  # checks the conditions again; returns the change, empty: none


class TopicWork(NamedTuple):
    """The deletions of a topic, and the checks before them.

    `look`: reads holds and unfinished restores right before each try of a delete; returns what keeps more since; empty: nothing.
    `ensure`: verifies before each batch of a partition that the replacement exists and is whole; its error stops the partition.
    `refusal`: what prevents sweeping the topic; empty: nothing.
    """

    topic: TopicSweep
    still_holds: StillHolds
    look: StillHolds
    ensure: Callable[[PartitionSweep], None] = lambda _: None
    refusal: str = ""


def sweep_topics(
    archive: Archive,
    work: Sequence[TopicWork],
    report_progress: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    left_alone_ms: int,
    at_once: int = _PARTITIONS_AT_ONCE,
) -> list[TopicSweepResult]:
    """Delete from several partitions at once: most of the time is waiting for the store and the cluster.

    `left_alone_ms`: ranges that another sweep noted within this time are left alone.
    """
    with ThreadPoolExecutor(at_once, "sweep") as pool:
        of_topics = [
            [
                pool.submit(_sweep_partition, archive, one, partition, left_alone_ms)
                for partition in one.topic.partitions
                if partition.is_work
            ]
            for one in work
        ]
        total = sum(map(len, of_topics))
        try:
            for done, future in enumerate(as_completed(future for some in of_topics for future in some), 1):
                future.result()
                report_progress(done, total)
        except BaseException:  # running ones end by themselves, and the others are not started
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [_joined(one.topic, [future.result() for future in some]) for one, some in zip(work, of_topics, strict=True)]


def _joined(topic: TopicSweep, parts: Sequence[TopicSweepResult]) -> TopicSweepResult:
    return TopicSweepResult(
        topic.name,
        deleted=[one for part in parts for one in part.deleted],
        refused=[line for part in parts for line in part.refused],
        stopped=next((part.stopped for part in parts if part.stopped), ""),
    )


def _sweep_partition(
    archive: Archive, work: TopicWork, partition: PartitionSweep, left_alone_ms: int
) -> TopicSweepResult:
    """Delete from each life of a partition while the conditions hold."""
    swept = TopicSweepResult(work.topic.name, stopped=work.refusal)
    shadowed_in = {one.going.item.life for one in partition.shadowed}
    for life in sorted({*shadowed_in, *(one.item.life for one in partition.going)}):
        if swept.stopped:
            break
        sweep = _PlaceSweep(archive, work, partition, life, left_alone_ms, swept)
        try:
            sweep.delete_going([one for one in partition.going if one.item.life == life])
            sweep.delete_shadowed([one for one in partition.shadowed if one.going.item.life == life])
        except StoreTemporaryError:  # the others would wait for the store as long as this one did
            raise
        except ArchiverError as error:  # of this partition: the others continue
            swept.refused.append(str(error))
    return swept


class _PlaceSweep:
    """Deletes from one life of a partition."""

    def __init__(
        self,
        archive: Archive,
        work: TopicWork,
        partition: PartitionSweep,
        life: int,
        left_alone_ms: int,
        swept: TopicSweepResult,
    ) -> None:
        self.place = SweptPlace(work.topic.topic, life, partition.partition)
        self._archive = archive
        self._work = work
        self._partition = partition
        self._left_alone_ms = left_alone_ms  # so long other runs may also delete the objects they noted
        self._swept = swept
        self._run = uuid4().hex
        self._noted: list[OffsetRanges] = []  # before deletes

    def delete_going(self, going: Sequence[GoingItem]) -> None:
        try:
            for start in range(0, len(going), _BATCH):
                self._delete_batch(going[start : start + _BATCH])
                if self._swept.stopped:
                    return
        finally:
            noted = OffsetRanges.of(one for some in self._noted for one in some.ranges)
            take_back_own(self._archive, self.place, noted, self._run)
        clear_old_swept(self._archive, self.place)

    def _delete_batch(self, batch: Sequence[GoingItem]) -> None:
        """Delete a batch: check all conditions again, note the ranges, delete.

        Temporary refusals of the store are decided on again: a hold may have come since, or the object again.
        """
        waiting = batch
        left: Mapping[str, ArchiverError] = {}
        for pause_s in PAUSES_S:
            Event().wait(pause_s)
            self._work.ensure(self._partition)
            still = self._decided(lambda: self._note(waiting))  # noqa: B023 - called at once
            if left:
                listed = {one.key for one in list_place(self._archive, self.place)}
                # Though the answer was lost.
                self._swept.deleted += [one for one in waiting if one.item.key not in listed]
            if self._swept.stopped or not still:
                return
            try:
                left = self._delete(still)
            finally:
                # Another sweep may have removed these ranges while the objects still existed.
                add_swept(self._archive, self.place, _ranges_of(still))
            waiting = [one for one in still if one.item.key in left]
            if not waiting:
                return
        self._swept.refused += map(str, left.values())

    def _note(self, batch: Sequence[GoingItem]) -> Sequence[GoingItem]:
        still = _as_they_were(self._archive, batch)
        reach("sweep.decided")
        ranges = _ranges_of(still)
        self._noted.append(ranges)
        noting = Noting(self._run, epoch_ms(self._archive.store.now()), self._left_alone_ms)
        note_going(self._archive, self.place, ranges, noting)
        reach("sweep.noted")
        return still

    def _decided(self, decide: Callable[[], Sequence[GoingItem]]) -> Sequence[GoingItem]:
        """Check all conditions again, then plan the batch again. Stops if the process slept meanwhile."""
        self._swept.stopped = _reason(partial(self._work.still_holds, self._work.topic))
        if self._swept.stopped:
            return ()
        asked_s = since_boot_s()  # partitions wait for each other's turn to ask; the answer has just come
        still = decide()
        if since_boot_s() - asked_s <= FRESH_S:
            return still
        self._swept.stopped = STOOD_STILL
        return ()

    def delete_shadowed(self, shadowed: Sequence[ShadowedItem]) -> None:
        for start in range(0, len(shadowed), _BATCH):
            if self._swept.stopped:
                return
            batch = shadowed[start : start + _BATCH]
            still = self._decided(lambda: self._still_shadowed(batch))  # noqa: B023 - called at once
            if still:
                # Temporary refusals wait for the next sweep: no record is lost with these objects.
                self._swept.refused += map(str, self._delete(still).values())
                self._note_swept_covers(batch)

    def _still_shadowed(self, batch: Sequence[ShadowedItem]) -> Sequence[GoingItem]:
        """Check the objects and their covers again. Returns the objects that may be deleted right now."""
        listed = {one.key: one for one in list_place(self._archive, self.place)}
        still = still_shadowed(listed, partial(ask_object, self._archive.store), batch)
        reach("sweep.covers_asked")
        return [one.going for one in still]

    def _note_swept_covers(self, batch: Sequence[ShadowedItem]) -> None:
        """Note as swept the objects whose cover another sweep deleted at the same moment: their offsets were lost with it."""
        listed = {one.key for one in list_place(self._archive, self.place)}
        bare = [one for one in batch if one.going.item.key not in listed and one.cover.key not in listed]
        swept_bases = {base for base in {one.cover.base for one in bare} if was_swept(self._archive, self.place, base)}
        if gone := [one.going for one in bare if one.cover.base in swept_bases]:
            add_swept(self._archive, self.place, _ranges_of(gone))

    def _delete(self, batch: Sequence[GoingItem]) -> Mapping[str, ArchiverError]:
        """Look, and delete a batch soon after. A refused object does not stop the others. Returns temporary refusals."""

        def look() -> str:
            why = _reason(partial(self._work.look, self._work.topic))
            if not why:
                reach("sweep.looked")
            return why

        swept = self._swept
        try:
            swept.stopped, refused = delete_after_look(self._archive.store, [one.item.key for one in batch], look)
        except StoreError as error:
            swept.refused.append(str(error))
            return {}
        if swept.stopped:
            return {}
        reach("sweep.deleted")
        for_now = {key: error for key, error in refused.items() if isinstance(error, StoreTemporaryError)}
        swept.refused += [str(error) for key, error in refused.items() if key not in for_now]
        swept.deleted += [one for one in batch if one.item.key not in refused]
        return for_now


def _reason(changed: Callable[[], str]) -> str:
    try:
        return changed()
    except StoreTemporaryError:
        raise
    except ArchiverError as error:
        return str(error)


def _as_they_were(archive: Archive, batch: Sequence[GoingItem]) -> Sequence[GoingItem]:
    """Leave out objects that are gone, or were put again since their facts were read: those are young."""
    keys = [one.item.key for one in batch]
    found: dict[str, tuple[str, int, int]] = {}
    for item in archive.store.list(min(keys).rpartition("/")[0] + "/", min(keys)[:-1]):
        if item.key > max(keys):
            break
        found[item.key] = item.etag, item.size, epoch_ms(item.last_modified)
    return [one for one in batch if found.get(one.item.key) == (one.item.etag, one.item.size, one.item.put_ms)]


def _ranges_of(batch: Sequence[GoingItem]) -> OffsetRanges:
    return OffsetRanges.of((one.item.base, one.told.next) for one in batch)
