"""Deletes debris, one group of control objects after the other. That a group goes, is written down before.

1. What a former run has written down, and left, is settled: what is gone counts as taken, what stays counts as any other.
2. Of each group: everything that could stop it is asked again, and it is listed again; that it goes is written down; right before
   each delete of snapshots holds and unfinished restores are read once more; it is deleted within LOOK_S.
3. What of a restore says that it is finished goes last. So a restore that is half gone is finished, and the next run goes on.
4. Where nothing of a group is left, that is written down.

A process that dies between any two of these leaves a group that counts as being taken: nobody misses any object of it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Event
from typing import Final

from archiver.archive.finished_restores import FINISHED, PLAN
from archiver.archive.handle import Archive
from archiver.archive.holds import delete_after_look
from archiver.archive.store_clock import epoch_ms, since_boot_s
from archiver.archive.sweeps import old_reports
from archiver.archive.taken import note_taken, note_taking, old_facts_of_taken, read_taken
from archiver.errors import ArchiverError, NotWholeError, StoreError, StoreTemporaryError
from archiver.process.failpoints import reach
from archiver.store.port import ListedObject, ObjectStore
from archiver.upkeep.retention.debris import DebrisGroup, DebrisKind, DebrisPlan, DebrisTerms, gathered
from archiver.upkeep.retention.debris_survey import gather_restore, list_group, survey_debris
from archiver.upkeep.retention.kept_plans import old_plans
from archiver.upkeep.retention.partition_plan import ASKS_AT_ONCE
from archiver.upkeep.retention.sweep import ATTEMPTS, FRESH_S, PAUSES_S, STOOD_STILL

_BATCH: Final = 1_000  # what S3 deletes by one request
# Another sweep may be taking a group right now. After so long it is none that works.
_TAKEN_BACK_MS: Final = 3_600_000
_PHASES: Final = (None, PLAN, FINISHED)  # what of a restore goes when; None: all the rest
_PUT_MEANWHILE: Final = "somebody has put something there while it was deleted; the next sweep looks at it again"
_MOST_TOLD: Final = 1_000  # problems


@dataclass(slots=True)
class DebrisSwept:
    """What was done: groups that are gone, and objects and bytes that were deleted, by kind."""

    groups: Counter[DebrisKind] = field(default_factory=Counter)
    objects: Counter[DebrisKind] = field(default_factory=Counter)
    bytes: Counter[DebrisKind] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)  # the first deletes that the store denied, or that failed
    refusals: int = 0  # of all
    left: list[str] = field(default_factory=list)  # groups that were not as they were planned any more, and why

    def refuse(self, problems: Collection[str]) -> None:
        self.refusals += len(problems)
        self.refused += list(problems)[: _MOST_TOLD - len(self.refused)]


Changed = Callable[[DebrisGroup], str]  # asks again what decides; returns what has changed, empty: nothing


class _LeftError(Exception):
    """Why a group is left as it is."""


def sweep_planned_debris(
    archive: Archive, ask: Callable[[], DebrisTerms], planned: DebrisPlan, chosen: DebrisPlan
) -> DebrisSwept:
    """Delete the chosen part of what was planned, as far as it still goes. What keeps that from being done, is told.

    It is looked for again: since it was planned, topics may have been swept for hours. `ask`: what decides now.
    """
    try:
        terms = ask()
        now = survey_debris(archive, terms)

        def changed(group: DebrisGroup) -> str:
            why = ask().snapshots_stay if group.kind is DebrisKind.SNAPSHOTS else None
            return "" if why is None else f"stays: {why}"

        waiting = [one.stream for plan in (planned, now) for one in plan.going]
        swept = sweep_debris(archive, now.only({*chosen.lines()}).going, waiting, changed, terms.store_now_ms)
        swept.refuse(now.errors)
    except (NotWholeError, StoreError) as error:
        swept = DebrisSwept()
        swept.refuse([str(error)])
    return swept


def sweep_debris(
    archive: Archive, going: Sequence[DebrisGroup], waiting: Collection[str], changed: Changed, now_ms: int
) -> DebrisSwept:
    """Delete groups that go, as long as what was decided on holds. `waiting`: streams of groups that may go, in this run or in another."""
    swept = DebrisSwept()
    steps = [
        partial(settle_taking, archive, {*waiting, *(one.stream for one in going)}, now_ms),
        *(partial(_sweep_group, archive, one, changed, now_ms, swept) for one in going),
        partial(_clear_own_notes, archive, now_ms, swept),
    ]
    for step in steps:
        try:
            step()
        except StoreTemporaryError:  # the others would wait for the store as long as this one did
            raise
        except ArchiverError as error:  # of this group: the others go on
            swept.refuse([str(error)])
    return swept


def settle_taking(archive: Archive, going: Collection[str], now_ms: int) -> None:
    """Settle what a former run has left.

    What goes on being taken now, or is just being taken by another run, stays noted. So does a group of which some is gone and
    nobody has put anything since: the rest of it is of no use, and goes when it may.
    """
    for group, noted in read_taken(archive).taking.items():
        put_ms = [epoch_ms(item.last_modified) for item in list_group(archive, group)]
        is_whole = len(put_ms) >= noted.objects or max(put_ms, default=0) > noted.since_ms
        is_left = group not in going and now_ms - noted.since_ms > _TAKEN_BACK_MS
        if not put_ms or (is_left and is_whole):
            note_taken(archive, group, len(put_ms))


def _sweep_group(archive: Archive, group: DebrisGroup, changed: Changed, now_ms: int, swept: DebrisSwept) -> None:
    is_counted = group.kind is not DebrisKind.INDEX
    try:
        _see_unchanged(archive, group, changed)
        if is_counted:
            note_taking(archive, group.stream, group.objects, now_ms)
            reach("debris.noted")
        _delete_group(archive, group, changed, swept)
    except _LeftError as error:
        swept.left.append(f"control/{group.stream}/: {error}")
        return
    if next(list_group(archive, group.stream), None) is None:
        if is_counted:
            note_taken(archive, group.stream)
        swept.groups[group.kind] += 1


def _see_unchanged(archive: Archive, group: DebrisGroup, changed: Changed) -> None:
    if why := changed(group):
        raise _LeftError(why)
    listed = list_group(archive, group.stream)
    if group.kind is DebrisKind.RESTORE:
        found = gather_restore(archive, group.stream.partition("/")[2], listed).group
    else:
        found = gathered(archive.layout, group.kind, group.stream, listed).group
    if found != group:
        raise _LeftError("it has changed since it was planned; the next sweep looks at it again")


def _delete_group(archive: Archive, group: DebrisGroup, changed: Changed, swept: DebrisSwept) -> None:
    before = swept.refusals
    for phase in _PHASES if group.kind is DebrisKind.RESTORE else (None,):
        listed = list_group(archive, group.stream)
        if group.kind is DebrisKind.RESTORE:
            listed = _of_phase(archive, group, phase, listed)
        while batch := list(islice(listed, _BATCH)):
            if any(epoch_ms(item.last_modified) > group.newest_ms for item in batch):
                raise _LeftError(_PUT_MEANWHILE)
            _delete_batch(archive.store, group, batch, changed, swept)
            reach("debris.deleted")
        if swept.refusals > before:  # the restore stays finished, so that the next run goes on
            return


def _of_phase(
    archive: Archive, group: DebrisGroup, phase: str | None, listed: Iterator[ListedObject]
) -> Iterator[ListedObject]:
    """Leave out what goes later. Nothing may be left that went before."""
    for item in listed:
        found = _phase_of(archive, group, item)
        if found == phase:
            yield item
        elif _PHASES.index(found) < _PHASES.index(phase):
            raise _LeftError(_PUT_MEANWHILE)


def _phase_of(archive: Archive, group: DebrisGroup, item: ListedObject) -> str | None:
    """Return which of the streams of a target that go last has an object; None: no such one."""
    found = archive.layout.split_fact(item.key)
    names = found[0].removeprefix(f"{group.stream}/").split("/") if found is not None else []
    name = names[1] if len(names) == 2 else None  # the target, and what it is
    return name if name in _PHASES else None


def _delete_batch(
    store: ObjectStore, group: DebrisGroup, batch: Sequence[ListedObject], changed: Changed, swept: DebrisSwept
) -> None:
    """Delete a batch. What the store refuses for now is asked again, after a while; what is gone by then, though the answer was lost, counts."""
    locked: list[ListedObject] = []
    refused: Mapping[str, ArchiverError] = {}
    waiting = batch
    for pause_s in PAUSES_S:
        Event().wait(pause_s)
        still, held = _ask_now(store, waiting)
        locked += held
        why, refused = delete_after_look(store, [item.key for item in still], lambda: changed(group))
        if why:
            raise _LeftError(why)
        waiting = [item for item in still if isinstance(refused.get(item.key), StoreTemporaryError)]
        if not waiting:
            break
    swept.refuse([*(f"{item.key}: is locked by the store" for item in locked), *map(str, refused.values())])
    kept = {item.key for item in locked} | refused.keys()
    gone = [item for item in batch if item.key not in kept]
    swept.objects[group.kind] += len(gone)
    swept.bytes[group.kind] += sum(item.size for item in gone)


def _ask_now(store: ObjectStore, batch: Sequence[ListedObject]) -> tuple[list[ListedObject], list[ListedObject]]:
    for _ in range(ATTEMPTS):
        asked_s = since_boot_s()
        found = _ask(store, batch)
        if since_boot_s() - asked_s <= FRESH_S:
            return found
    raise _LeftError(STOOD_STILL)


def _ask(store: ObjectStore, batch: Sequence[ListedObject]) -> tuple[list[ListedObject], list[ListedObject]]:
    """Ask objects now: returns those that are as they were listed, and of these those that are locked."""
    with ThreadPoolExecutor(ASKS_AT_ONCE, "ask") as pool:
        answers = list(pool.map(lambda item: store.head(item.key), batch))
    same = [
        (item, info.is_locked)
        for item, info in zip(batch, answers, strict=True)
        if info is not None and (info.etag, info.size) == (item.etag, item.size)
    ]
    return [item for item, is_locked in same if not is_locked], [item for item, is_locked in same if is_locked]


def _clear_own_notes(archive: Archive, now_ms: int, swept: DebrisSwept) -> None:
    """Delete what sweeps have noted for themselves long ago."""
    notes: Iterator[str] = iter([*old_facts_of_taken(archive), *old_reports(archive), *old_plans(archive, now_ms)])
    while batch := list(islice(notes, _BATCH)):
        try:
            swept.refuse(list(map(str, archive.store.delete_each(batch).values())))
        except StoreTemporaryError as error:  # the next sweep deletes them
            swept.refuse([str(error)])
