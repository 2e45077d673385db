"""Lists the control objects that may be debris, and says which go. Deletes nothing."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Final

from archiver.archive.control import RESTORES, read_fact
from archiver.archive.finished_restores import PLAN, TargetIds, is_finished, target_ids
from archiver.archive.handle import Archive
from archiver.archive.holds import Hold
from archiver.archive.index_file import MOST_FILE_BYTES
from archiver.archive.index_generations import check_index_file
from archiver.archive.restore_pins import RestorePins
from archiver.archive.store_clock import agreed_now_ms, epoch_ms
from archiver.archive.taken import Taken, read_taken
from archiver.config.model import ArchiverConfig
from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError
from archiver.groups.application_notes import is_applied
from archiver.groups.snapshots import STREAM as SNAPSHOTS
from archiver.groups.snapshots import can_read_day
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.process.workers import side_by_side
from archiver.store.port import ListedObject
from archiver.upkeep.retention.debris import (
    DebrisGroup,
    DebrisKind,
    DebrisPlan,
    DebrisStay,
    DebrisTerms,
    Gathered,
    GatheredRestore,
    NotedStreams,
    Stays,
    day_stream,
    days_in_order,
    gathered,
    is_old_day,
    judge_day,
    judge_generation,
    judge_restore,
    was_put_in_time,
)

INDEX: Final = "index"
_READS_AT_ONCE: Final = 16


def debris_terms(
    archive: Archive, config: ArchiverConfig, holds: Mapping[str, Hold], now_ms: int | None, pins: RestorePins
) -> DebrisTerms:
    """Ask what decides about debris. `now_ms`: from when ages are counted; None: now."""
    store_now_ms = agreed_now_ms(archive.store)
    unfinished = pins.read_objects(store_now_ms - config.restores.pin_ms).restores
    reasons = {
        DebrisStay.KEPT: config.retention.keeps(OFFSETS_TOPIC),
        DebrisStay.HELD: any(hold.is_in_force and hold.matches(OFFSETS_TOPIC) for hold in holds.values()),
        DebrisStay.PINNED: bool(unfinished),
    }
    return DebrisTerms(
        now_ms=store_now_ms if now_ms is None else now_ms,
        store_now_ms=store_now_ms,
        min_age_ms=config.retention.min_object_age_ms,
        restores_ms=config.restores.keep_ms,
        snapshots_ms=config.retention.groups_ms,
        snapshots_stay=next((why for why, is_so in reasons.items() if is_so), None),
    )


def survey_debris(archive: Archive, terms: DebrisTerms) -> DebrisPlan:
    """Say which debris goes. Of a kind that cannot be listed whole, nothing goes."""
    stays, going, errors = Stays(), list[DebrisGroup](), list[str]()
    for kind, find in _FINDERS.items():
        some = Stays()
        try:
            found = list(find(archive, terms, some))
        except ArchiverError as error:
            errors.append(f"{kind}: {error}")
            continue
        going += found
        stays.join(some)
    return DebrisPlan(going=going, staying=stays.told(), errors=errors)


def list_group(archive: Archive, stream: str) -> Iterator[ListedObject]:
    """List all objects of a group, in order."""
    return archive.store.list(archive.layout.control_prefix(stream))


# --- restores


def _old_restores(archive: Archive, terms: DebrisTerms, stays: Stays) -> Iterator[DebrisGroup]:
    taken = read_taken(archive)
    for found in _each_restore(archive):
        why = _why_restore_stays(archive, found, terms, taken)
        if why is None:
            yield found.group
        else:
            stays.add(DebrisKind.RESTORE, why)


def _each_restore(archive: Archive) -> Iterator[GatheredRestore]:
    """Sum up what each restore has noted, one after the other, in one listing."""
    prefix = archive.layout.control_prefix(RESTORES)
    listed = groupby(archive.store.list(prefix), lambda item: item.key.removeprefix(prefix).partition("/")[0])
    for restore_id, items in listed:
        yield gather_restore(archive, restore_id, items)


def gather_restore(archive: Archive, restore_id: str, items: Iterator[ListedObject]) -> GatheredRestore:
    found = GatheredRestore(restore_id)
    for item in items:
        found.add_note(archive.layout, item)
    return found


def _why_restore_stays(archive: Archive, found: GatheredRestore, terms: DebrisTerms, taken: Taken) -> DebrisStay | None:
    """Say why the notes of a restore stay. Facts are read only where the listing says that it is finished, and old."""
    why = judge_restore(found, terms, is_being_taken=found.parent in taken.taking)
    if why is not None:
        return why
    named = [(name, noted) for name, noted in found.targets.items() if noted.plans]
    is_taken = found.parent in taken.taking
    try:
        ends = list(
            side_by_side(_READS_AT_ONCE, lambda one: _finished_target(archive, found, *one, is_taken), named, "ends")
        )
        ids = {name: one for (name, _), one in zip(named, ends, strict=True) if one is not None}
        if len(ids) < len(named):
            return DebrisStay.UNFINISHED
        notes = side_by_side(_READS_AT_ONCE, lambda one: read_fact(archive, *one), found.applications.items(), "notes")
        return None if all(is_applied(note, ids) for note in notes) else DebrisStay.UNFINISHED
    except NotWholeError:
        return DebrisStay.UNREADABLE


def _finished_target(
    archive: Archive, found: GatheredRestore, name: str, noted: NotedStreams, is_taken: bool
) -> TargetIds | None:
    """Return which topic a restore has finished; None: it has not."""
    if not noted.plans or noted.finished is None:
        return None
    parent = f"{found.parent}/{name}"
    plans = [read_fact(archive, f"{parent}/{PLAN}", number) for number in noted.plans]
    return (
        target_ids(plans[0]) if is_finished(archive, parent, plans, noted.finished, has_claims=not is_taken) else None
    )


# --- snapshots


def _old_days(archive: Archive, terms: DebrisTerms, stays: Stays) -> Iterator[DebrisGroup]:
    if terms.snapshots_ms is None:
        return
    names = archive.store.list_directories(archive.layout.control_prefix(SNAPSHOTS))
    days = days_in_order(names, terms.store_now_ms)
    old = [day for day in days if is_old_day(day, terms)]
    stays.add(DebrisKind.SNAPSHOTS, DebrisStay.YOUNG, len(days) - len(old))
    # Positions at the beginning of the time that is kept are read from the newest day before it.
    newest = next((place for place, day in enumerate(old) if _stands_for_earlier(archive, day, terms)), len(old))
    stays.add(DebrisKind.SNAPSHOTS, DebrisStay.NEWEST, len(old[: newest + 1]))
    for day in reversed(old[newest + 1 :]):  # the oldest first
        found = _gathered_day(archive, day)
        why = judge_day(found, terms)
        if why is None:
            yield found.group
        else:
            stays.add(DebrisKind.SNAPSHOTS, why)


def _gathered_day(archive: Archive, day: str) -> Gathered:
    return gathered(archive.layout, DebrisKind.SNAPSHOTS, day_stream(day), list_group(archive, day_stream(day)))


def _stands_for_earlier(archive: Archive, day: str, terms: DebrisTerms) -> bool:
    """Tell whether earlier days may go because of an old one: it can be read, and nothing was put there later."""
    return was_put_in_time(day, _gathered_day(archive, day).group.newest_ms) and can_read_day(
        archive, day, terms.store_now_ms
    )


# --- the index


def _old_generations(archive: Archive, terms: DebrisTerms, stays: Stays) -> Iterator[DebrisGroup]:
    names = archive.store.list_directories(archive.layout.index_prefix)
    generations = sorted(name for name in names if archive.layout.parse_index_generation(name) is not None)
    newest = int(generations[-1]) if generations else 0
    begun_ms: int | None = None
    for name in generations[:-1]:
        stream = f"{INDEX}/{name}"
        found = gathered(archive.layout, DebrisKind.INDEX, stream, list_group(archive, stream))
        why = judge_generation(found, 0, terms)
        if why is None and begun_ms is None:
            begun_ms = _begun_ms(archive, newest)
        why = why or judge_generation(found, begun_ms or 0, terms)
        if why is None:
            yield found.group
        else:
            stays.add(DebrisKind.INDEX, why)


def _begun_ms(archive: Archive, generation: int) -> int:
    """Return when the newest generation was begun. What began it must be whole. Raises NotWholeError."""
    key = archive.layout.index_key(generation, 0)
    info, found = archive.store.head(key), archive.store.get(key, MOST_FILE_BYTES)
    if info is None or found is None:
        raise CorruptSegmentError(f"{key}: is not there; earlier generations of the index stay")
    check_index_file(*found, key)
    return epoch_ms(info.last_modified)


_Find = Callable[[Archive, DebrisTerms, Stays], Iterator[DebrisGroup]]
_FINDERS: Final[Mapping[DebrisKind, _Find]] = {
    DebrisKind.RESTORE: _old_restores,
    DebrisKind.SNAPSHOTS: _old_days,
    DebrisKind.INDEX: _old_generations,
}
