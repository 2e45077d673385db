"""Deletes debris, one group of control objects after the other.

1. Of a restore, claims are deleted first, then all else in the order of keys, so that the newest note of a group is behind its earlier
   ones; `plan` last but one, `finished` last, each in its own request. So a half deleted restore is still finished, and the next run
   continues.
2. The highest number of a claim or of a day is deleted first: no number is missing below one that is left.
3. Right before each delete of snapshots, holds and unfinished restores are read once more; the delete is sent within LOOK_S.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.notes.holds import delete_after_look
from archiver.archive.notes.sweeps import old_reports
from archiver.archive.restores.finished_restores import FINISHED, PLAN, is_claim
from archiver.errors import ArchiverError, StoreTemporaryError
from archiver.process.running.failpoints import reach
from archiver.process.running.workers import side_by_side
from archiver.store.port import ListedObject
from archiver.upkeep.retention.planning.kept_plans import old_plans
from archiver.upkeep.retention.planning.partition_verdict import ASKS_AT_ONCE
from archiver.upkeep.retention.sweeping.debris import DebrisGroup, DebrisKind, DebrisStay, list_group

_BATCH: Final = 1_000  # what S3 deletes by one request


class _Phase(IntEnum):
    """The order of deletes in a group."""

    CLAIMS = 0  # of a day or a version of the index everything
    REST = 1
    PLAN = 2
    FINISHED = 3


@dataclass(slots=True)
class DebrisSwept:
    """The result: deleted groups, objects and bytes, by kind."""

    groups: Counter[DebrisKind] = field(default_factory=Counter)
    objects: Counter[DebrisKind] = field(default_factory=Counter)
    bytes: Counter[DebrisKind] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)  # the first delete of each group that was denied, or failed
    refusals: int = 0  # of all
    left: list[str] = field(default_factory=list)  # groups that no longer were as planned, and why


class _LeftError(Exception):
    """Why a group is left unchanged."""


def sweep_debris(
    archive: Archive, going: Sequence[DebrisGroup], snapshots_stay: Callable[[], DebrisStay | None], now_ms: int
) -> DebrisSwept:
    """Delete groups; then old notes of sweeps for their own use. `snapshots_stay`: why all snapshots stay by now."""
    swept = DebrisSwept()

    def look(group: DebrisGroup) -> str:
        why = snapshots_stay() if group.kind is DebrisKind.SNAPSHOTS else None
        return "" if why is None else f"stays: {why}"

    for group in going:
        try:
            _sweep_group(archive, group, look, swept)
        except StoreTemporaryError:  # the others would wait for the store as long as this one did
            raise
        except _LeftError as why:
            swept.left.append(f"control/{group.stream}/: {why}")
        except ArchiverError as error:  # of this group: the others continue
            _refuse(swept, [error])
    if own_notes := [*old_reports(archive), *old_plans(archive, now_ms)]:
        _refuse(swept, archive.store.delete_each(own_notes).values())
    return swept


def _refuse(swept: DebrisSwept, problems: Collection[object]) -> None:
    swept.refusals += len(problems)
    swept.refused += [str(one) for one in islice(problems, 1)]


def _sweep_group(archive: Archive, group: DebrisGroup, look: Callable[[DebrisGroup], str], swept: DebrisSwept) -> None:
    """Delete a group, up to the first batch with a locked object, or a refused delete."""
    before = swept.refusals
    for phase in _Phase if group.kind is DebrisKind.RESTORE else [_Phase.CLAIMS]:
        listed = _of_phase(archive, group, phase)
        if phase is _Phase.CLAIMS:
            listed = iter(sorted(listed, key=lambda item: item.key, reverse=True))
        while batch := list(islice(listed, _BATCH)):
            _delete_batch(archive, group, batch, look, swept)
            reach("debris.deleted")
            if swept.refusals > before:
                return
    swept.groups[group.kind] += 1


def _of_phase(archive: Archive, group: DebrisGroup, phase: _Phase) -> Iterator[ListedObject]:
    """Yield the objects of a phase. Raises if objects of an earlier phase are left, or new ones were put."""
    for item in list_group(archive, group.stream):
        found = _phase_of(archive, group, item)
        if found < phase or epoch_ms(item.last_modified) > group.newest_ms:
            raise _LeftError("somebody has put something there since it was planned; the next sweep looks at it again")
        if found is phase:
            yield item


def _phase_of(archive: Archive, group: DebrisGroup, item: ListedObject) -> _Phase:
    stream, _ = archive.layout.split_fact(item.key) or ("", 0)
    name = stream.removeprefix(f"{group.stream}/").partition("/")[
        2
    ]  # of a stream of a target; a piece of a plan has a longer one
    if group.kind is not DebrisKind.RESTORE or is_claim(name):
        return _Phase.CLAIMS
    return {PLAN: _Phase.PLAN, FINISHED: _Phase.FINISHED}.get(name, _Phase.REST)


def _delete_batch(
    archive: Archive,
    group: DebrisGroup,
    batch: Sequence[ListedObject],
    look: Callable[[DebrisGroup], str],
    swept: DebrisSwept,
) -> None:
    keys = [item.key for item in batch]
    answers = side_by_side(ASKS_AT_ONCE, archive.store.head, keys, "ask")
    locked = [key for key, info in zip(keys, answers, strict=True) if info is not None and info.is_locked]
    if locked:
        _refuse(swept, [f"{locked[0]}: is locked by the store"])
        return
    why, refused = delete_after_look(archive.store, keys, lambda: look(group))
    if why:
        raise _LeftError(why)
    gone = [item for item in batch if item.key not in refused]
    swept.objects[group.kind] += len(gone)
    swept.bytes[group.kind] += sum(item.size for item in gone)
    _refuse(swept, refused.values())
