"""Carries out the plan of a sweep, each life of a partition after the other. Swept ranges are noted before their objects are deleted.

1. Once for each partition and life, also without deletes: ranges noted by a former run leave the swept set if their objects still exist.
2. For each batch: verify that its replacement exists; check all conditions again; list it again; note its offsets as swept; read holds and unfinished restores once more; delete it within LOOK_S.
3. After the last batch: noted ranges leave the swept set if their objects still exist, so that a later loss is reported.
4. Then shadowed objects are deleted: object and cover are checked again right before. None of their offsets count as swept.

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
from archiver.upkeep.retention.planning.partition_plan import Going, GoingItem
from archiver.upkeep.retention.planning.shadowed import ShadowedItem
from archiver.upkeep.retention.planning.survey import PartitionSweep, ask_object
from archiver.upkeep.retention.planning.sweep_plan import TopicSweep
from archiver.upkeep.retention.sweeping.swept_corrections import list_place, take_back_lying, take_back_own

log = logging.getLogger(__name__)

_BATCH: Final = 1_000  # what S3 deletes by one request
FRESH_S: Final = 60  # for so long answers are valid: a process may sleep before it deletes
ATTEMPTS: Final = 3
_PARTITIONS_AT_ONCE: Final = 8
STOOD_STILL: Final = (
    f"{ATTEMPTS} times it took more than {FRESH_S} s to ask the store again before anything could be deleted: it answers slowly,"
    " or this process stood still"
)
# Delays before a temporary refusal of the store is decided on again.
PAUSES_S: Final = (0.0, 1.0, 5.0, 20.0)


@dataclass(slots=True)
class Swept:
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


def _needs_nothing(_: PartitionSweep) -> None:
    """Accept: most topics need no replacement for deleted objects."""


def _begins_at_once() -> str:
    return ""


class TopicWork(NamedTuple):
    """The deletions of a topic, and the checks before them.

    `look`: reads holds and unfinished restores right before each try of a delete; returns what keeps more since; empty: nothing.
    `ensure`: verifies before each batch of a partition that the replacement exists and is whole; its error stops the partition.
    `begin`: is called before each partition, and returns what prevents sweeping the topic; empty: nothing. Its error ends the sweep.
    """

    topic: TopicSweep
    still_holds: StillHolds
    look: StillHolds
    ensure: Callable[[PartitionSweep], None] = _needs_nothing
    begin: Callable[[], str] = _begins_at_once


def sweep_topics(
    archive: Archive,
    work: Sequence[TopicWork],
    report_progress: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    left_alone_ms: int,
    at_once: int = _PARTITIONS_AT_ONCE,
) -> list[Swept]:
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


def _joined(topic: TopicSweep, parts: Sequence[Swept]) -> Swept:
    return Swept(
        topic.name,
        deleted=[one for part in parts for one in part.deleted],
        refused=[line for part in parts for line in part.refused],
        stopped=next((part.stopped for part in parts if part.stopped), ""),
    )


def _sweep_partition(archive: Archive, work: TopicWork, partition: PartitionSweep, left_alone_ms: int) -> Swept:
    """Delete from each life of a partition while the conditions hold."""
    topic = work.topic
    swept = Swept(topic.name, stopped=work.begin())
    shadowed_in = {one.going.item.life for one in partition.shadowed}
    for life in sorted({*partition.swept_lives, *shadowed_in, *(one.item.life for one in partition.going)}):
        if swept.stopped:
            break
        place = SweptPlace(topic.topic, life, partition.partition)
        going = [one for one in partition.going if one.item.life == life]
        shadowed = [one for one in partition.shadowed if one.going.item.life == life]
        try:
            checks = _Checks(
                partial(work.still_holds, topic), partial(work.look, topic), partial(work.ensure, partition)
            )
            take_back_lying(archive, place, left_alone_ms)
            _sweep_place(archive, place, going, checks, swept, left_alone_ms)
            _sweep_shadowed(archive, place, shadowed, checks._replace(ensure=lambda: None), swept)
        except StoreTemporaryError:  # the others would wait for the store as long as this one did
            raise
        except ArchiverError as error:  # of this partition: the others continue
            swept.refused.append(str(error))
    return swept


class _Checks(NamedTuple):
    """The checks before each batch. `look`: right before each delete."""

    changed: Callable[[], str]
    look: Callable[[], str]
    ensure: Callable[[], None]


class _Noted(NamedTuple):
    """The ranges a run noted before its deletes. `beside_ms`: so long other runs may also delete the objects they noted."""

    run: str
    beside_ms: int
    ranges: list[OffsetRanges]


def _sweep_place(
    archive: Archive, place: SweptPlace, going: Sequence[GoingItem], checks: _Checks, swept: Swept, left_alone_ms: int
) -> None:
    noted = _Noted(uuid4().hex, left_alone_ms, [])
    try:
        for start in range(0, len(going), _BATCH):
            _sweep_batch(archive, place, going[start : start + _BATCH], checks, swept, noted)
            if swept.stopped:
                return
    finally:
        take_back_own(archive, place, OffsetRanges.of(one for some in noted.ranges for one in some.ranges), noted.run)
    clear_old_swept(archive, place)


def _sweep_batch(
    archive: Archive,
    place: SweptPlace,
    batch: Sequence[GoingItem],
    checks: _Checks,
    swept: Swept,
    noted: _Noted,
) -> None:
    """Delete a batch: check all conditions again, note the ranges, delete.

    Temporary refusals of the store are decided on again: a hold may have come since, or the object again.
    """
    waiting: Sequence[GoingItem] = batch
    left: Mapping[str, ArchiverError] = {}

    def decide() -> Sequence[GoingItem]:
        still = _as_they_were(archive, waiting)
        reach("sweep.decided")
        ranges = _ranges_of(still)
        noted.ranges.append(ranges)
        note_going(archive, place, ranges, Noting(noted.run, epoch_ms(archive.store.now()), noted.beside_ms))
        reach("sweep.noted")
        return still

    for pause_s in PAUSES_S:
        Event().wait(pause_s)
        still = _decided_now(checks, decide, swept)
        if left:
            listed = {one.key for one in list_place(archive, place)}
            swept.deleted += [one for one in waiting if one.item.key not in listed]  # though the answer was lost
        if swept.stopped or not still:
            return
        left = _delete(archive, place, still, checks.look, swept)
        waiting = [one for one in still if one.item.key in left]
        if not waiting:
            return
    swept.refused += [str(error) for error in left.values()]


def _decided_now(checks: _Checks, decide: Callable[[], Sequence[GoingItem]], swept: Swept) -> Sequence[GoingItem]:
    """Check all conditions again, then plan the batch again; from the start if the process slept meanwhile."""
    for _ in range(ATTEMPTS):
        checks.ensure()
        swept.stopped = _reason(checks.changed)
        if swept.stopped:
            return ()
        asked_s = since_boot_s()  # partitions wait for each other's turn to ask; the answer has just come
        still = decide()
        if since_boot_s() - asked_s <= FRESH_S:
            return still
    swept.stopped = STOOD_STILL
    return ()


def _sweep_shadowed(
    archive: Archive, place: SweptPlace, shadowed: Sequence[ShadowedItem], checks: _Checks, swept: Swept
) -> None:
    for start in range(0, len(shadowed), _BATCH):
        if swept.stopped:
            return
        batch = _still_shadowed(archive, place, shadowed[start : start + _BATCH], checks, swept)
        if batch:
            # Temporary refusals wait for the next sweep: no record is lost with these objects.
            for_now = _delete_batch(archive, batch, checks.look, swept)
            swept.refused += map(str, for_now.values())
            _note_swept_covers(archive, place, shadowed[start : start + _BATCH])


def _note_swept_covers(archive: Archive, place: SweptPlace, batch: Sequence[ShadowedItem]) -> None:
    """Note as swept the objects whose cover another sweep deleted at the same moment: their offsets were lost with it."""
    listed = {one.key for one in list_place(archive, place)}
    bare = [one for one in batch if one.going.item.key not in listed and one.cover.key not in listed]
    swept_bases = {base for base in {one.cover.base for one in bare} if was_swept(archive, place, base)}
    gone = [one.going for one in bare if one.cover.base in swept_bases]
    if gone:
        add_swept(archive, place, _ranges_of(gone))


def _still_shadowed(
    archive: Archive, place: SweptPlace, batch: Sequence[ShadowedItem], checks: _Checks, swept: Swept
) -> Sequence[GoingItem]:
    """Check all conditions again, the objects, and their covers. Returns the objects that may be deleted right now."""

    def decide() -> Sequence[GoingItem]:
        listed = {one.key: one for one in list_place(archive, place)}
        still = still_shadowed(listed, lambda item: ask_object(archive.store, item), batch)
        reach("sweep.covers_asked")
        return [one.going for one in still]

    return _decided_now(checks, decide, swept)


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


def _delete(
    archive: Archive, place: SweptPlace, batch: Sequence[GoingItem], look: Callable[[], str], swept: Swept
) -> Mapping[str, ArchiverError]:
    """Delete the noted objects. Returns temporary refusals of the store."""
    try:
        return _delete_batch(archive, batch, look, swept)
    finally:
        # Another sweep may have removed these ranges while the objects still existed.
        add_swept(archive, place, _ranges_of(batch))


def _delete_batch(
    archive: Archive, batch: Sequence[GoingItem], look: Callable[[], str], swept: Swept
) -> Mapping[str, ArchiverError]:
    """Check, and delete a batch soon after. A refused object does not stop the others. Returns temporary refusals."""

    def look_now() -> str:
        why = _reason(look)
        if not why:
            reach("sweep.looked")
        return why

    try:
        swept.stopped, refused = delete_after_look(archive.store, [one.item.key for one in batch], look_now)
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
