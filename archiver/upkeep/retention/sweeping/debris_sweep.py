"""Deletes debris, one group of control objects after the other.

1. For each group, all conditions are checked again, and it is listed again. Right before each delete of snapshots, holds
   and unfinished restores are read once more; the delete is sent within LOOK_S.
2. For each restore, claims are deleted first, then the notes of groups, the newest of each group behind its earlier ones, `plan` last
   but one, `finished` last, each in its own request. So a half deleted restore is still finished, and the next run continues.
3. The highest number of a stream is deleted first: no number is missing below one that is left.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import islice, takewhile
from threading import Event
from typing import Final

from archiver.archive.format.control import newest_numbers
from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import epoch_ms, since_boot_s
from archiver.archive.notes.holds import delete_after_look
from archiver.archive.notes.sweeps import old_reports
from archiver.archive.restores.finished_restores import APPLICATIONS, FINISHED, PLAN, is_claim
from archiver.errors import ArchiverError, NotWholeError, StoreError, StoreTemporaryError
from archiver.process.running.failpoints import reach
from archiver.store.port import ListedObject, ObjectInfo, ObjectStore
from archiver.upkeep.retention.planning.kept_plans import old_plans
from archiver.upkeep.retention.planning.partition_plan import ASKS_AT_ONCE
from archiver.upkeep.retention.sweeping.debris import DebrisGroup, DebrisKind, DebrisPlan, DebrisTerms
from archiver.upkeep.retention.sweeping.debris_survey import gather_again, list_group, survey_debris
from archiver.upkeep.retention.sweeping.sweep import ATTEMPTS, FRESH_S, PAUSES_S, STOOD_STILL

_BATCH: Final = 1_000  # what S3 deletes by one request
_PUT_MEANWHILE: Final = "somebody has put something there while it was deleted; the next sweep looks at it again"
_MOST_TOLD: Final = 1_000  # problems


class _Phase(IntEnum):
    """The order of deletes in a group."""

    CLAIMS = 0  # of a day or a version of the index everything
    EARLIER_NOTES = 1  # of groups
    NOTES = 2  # the newest of each group: only that one tells that the group was set
    REST = 3
    PLAN = 4
    FINISHED = 5


@dataclass(slots=True)
class DebrisSwept:
    """The result: deleted groups, objects and bytes, by kind."""

    groups: Counter[DebrisKind] = field(default_factory=Counter)
    objects: Counter[DebrisKind] = field(default_factory=Counter)
    bytes: Counter[DebrisKind] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)  # the first deletes that the store denied, or that failed
    refusals: int = 0  # of all
    left: list[str] = field(default_factory=list)  # groups that no longer were as planned, and why

    def refuse(self, problems: Collection[str]) -> None:
        self.refusals += len(problems)
        self.refused += list(problems)[: _MOST_TOLD - len(self.refused)]


Changed = Callable[[DebrisGroup], str]  # checks the conditions again; returns the change, empty: none


class _LeftError(Exception):
    """A group is left unchanged."""

    def __init__(self, group: DebrisGroup, why: str) -> None:
        super().__init__(f"control/{group.stream}/: {why}")


def sweep_planned_debris(archive: Archive, ask: Callable[[], DebrisTerms], chosen: DebrisPlan) -> DebrisSwept:
    """Delete the chosen part of the plan, if still debris. Reports what prevents that.

    Debris is surveyed again: since the plan, topics may have been swept for hours. `ask`: returns the present terms.
    """
    try:
        terms = ask()
        now = survey_debris(archive, terms)

        def changed(group: DebrisGroup) -> str:
            why = ask().snapshots_stay if group.kind is DebrisKind.SNAPSHOTS else None
            return "" if why is None else f"stays: {why}"

        swept = sweep_debris(archive, now.only({*chosen.lines()}).going, changed, terms.store_now_ms)
        swept.refuse(now.errors)
    except (NotWholeError, StoreError) as error:
        swept = DebrisSwept()
        swept.refuse([str(error)])
    return swept


def sweep_debris(archive: Archive, going: Sequence[DebrisGroup], changed: Changed, now_ms: int) -> DebrisSwept:
    """Delete groups while the conditions hold; then old notes of sweeps for their own use."""
    swept = DebrisSwept()
    steps = [partial(_sweep_group, archive, one, changed, swept) for one in going]
    for step in [*steps, partial(_clear_own_notes, archive, now_ms, swept)]:
        try:
            step()
        except StoreTemporaryError:  # the others would wait for the store as long as this one did
            raise
        except _LeftError as error:
            swept.left.append(str(error))
        except ArchiverError as error:  # of this group: the others continue
            swept.refuse([str(error)])
    return swept


def _sweep_group(archive: Archive, group: DebrisGroup, changed: Changed, swept: DebrisSwept) -> None:
    if why := changed(group):
        raise _LeftError(group, why)
    if gather_again(archive, group) != group:
        raise _LeftError(group, "it has changed since it was planned; the next sweep looks at it again")
    before = swept.refusals
    for phase in _Phase if group.kind is DebrisKind.RESTORE else [_Phase.CLAIMS]:
        listed = _of_phase(archive, group, phase)
        if phase is not _Phase.REST:  # which may have a million objects, in no order that matters
            listed = iter(sorted(listed, key=lambda item: item.key, reverse=True))
        while batch := list(islice(listed, _BATCH)):
            _delete_batch(archive.store, group, batch, changed, swept)
            reach("debris.deleted")
            if swept.refusals > before:  # the rest stays finished, without gaps, so that the next run continues
                return
    if next(list_group(archive, group.stream), None) is None:
        swept.groups[group.kind] += 1


def _of_phase(archive: Archive, group: DebrisGroup, phase: _Phase) -> Iterator[ListedObject]:
    """Yield the objects of a phase. Raises if objects of an earlier phase are left, or new ones were put."""
    is_restore = group.kind is DebrisKind.RESTORE
    newest_notes = newest_numbers(archive, f"{group.stream}/{APPLICATIONS}") if is_restore else {}
    for item in list_group(archive, group.stream):
        found = _phase_of(archive, group, item, newest_notes)
        if found < phase or epoch_ms(item.last_modified) > group.newest_ms:
            raise _LeftError(group, _PUT_MEANWHILE)
        if found is phase:
            yield item


def _phase_of(archive: Archive, group: DebrisGroup, item: ListedObject, newest_notes: Mapping[str, int]) -> _Phase:
    if group.kind is not DebrisKind.RESTORE:
        return _Phase.CLAIMS
    stream, number = archive.layout.split_fact(item.key) or ("", 0)
    target, *names = stream.removeprefix(f"{group.stream}/").split("/")
    name = names[0] if len(names) == 1 else ""  # of a stream of the target; empty: a piece of a plan, or no note
    if target == APPLICATIONS:
        return _Phase.NOTES if newest_notes.get(stream) == number else _Phase.EARLIER_NOTES
    if is_claim(name):
        return _Phase.CLAIMS
    return {PLAN: _Phase.PLAN, FINISHED: _Phase.FINISHED}.get(name, _Phase.REST)


def _delete_batch(
    store: ObjectStore, group: DebrisGroup, batch: Sequence[ListedObject], changed: Changed, swept: DebrisSwept
) -> None:
    """Delete a batch up to its first locked object. What the store refuses for now is asked again, after a while."""
    waiting = batch
    delayed: Mapping[str, ArchiverError] = {}
    for pause_s in PAUSES_S:
        Event().wait(pause_s)
        unlocked, locked = _ask_now(store, group, waiting)
        why, refused = delete_after_look(store, [item.key for item in unlocked], lambda: changed(group))
        if why:
            raise _LeftError(group, why)
        kept = {*refused, *(item.key for item in locked)}
        gone = [item for item in waiting if item.key not in kept]
        swept.objects[group.kind] += len(gone)
        swept.bytes[group.kind] += sum(item.size for item in gone)
        swept.refuse([f"{item.key}: is locked by the store" for item in locked[:1]])
        delayed = {key: error for key, error in refused.items() if isinstance(error, StoreTemporaryError)}
        swept.refuse([str(error) for key, error in refused.items() if key not in delayed])
        waiting = [item for item in unlocked if item.key in delayed]
        if not waiting:
            break
    swept.refuse(list(map(str, delayed.values())))


def _ask_now(
    store: ObjectStore, group: DebrisGroup, batch: Sequence[ListedObject]
) -> tuple[list[ListedObject], list[ListedObject]]:
    """Read the facts of a batch again. Returns the unchanged objects before the first locked one, and those from it on."""
    for _ in range(ATTEMPTS):
        asked_s = since_boot_s()
        with ThreadPoolExecutor(ASKS_AT_ONCE, "ask") as pool:
            answers = list(pool.map(lambda item: store.head(item.key), batch))
        if since_boot_s() - asked_s <= FRESH_S:
            same = [one for one in zip(batch, answers, strict=True) if _is_same(*one)]
            unlocked = [item for item, _ in takewhile(lambda one: one[1] is not None and not one[1].is_locked, same)]
            return unlocked, [item for item, _ in same[len(unlocked) :]]
    raise _LeftError(group, STOOD_STILL)


def _is_same(item: ListedObject, info: ObjectInfo | None) -> bool:
    return info is not None and (info.etag, info.size) == (item.etag, item.size)


def _clear_own_notes(archive: Archive, now_ms: int, swept: DebrisSwept) -> None:
    """Delete old notes of sweeps for their own use."""
    notes: Iterator[str] = iter([*old_reports(archive), *old_plans(archive, now_ms)])
    while batch := list(islice(notes, _BATCH)):
        try:
            swept.refuse(list(map(str, archive.store.delete_each(batch).values())))
        except StoreTemporaryError as error:  # the next sweep deletes them
            swept.refuse([str(error)])
