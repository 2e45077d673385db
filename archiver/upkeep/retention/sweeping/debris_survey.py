"""Lists the control objects that may be debris, and selects those to delete. Deletes nothing."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Final

from archiver.archive.format.control import RESTORES, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import agreed_now_ms, epoch_ms
from archiver.archive.index.index_file import MOST_FILE_BYTES
from archiver.archive.index.index_generations import check_index_file
from archiver.archive.notes.holds import Hold
from archiver.archive.restores.finished_restores import FINISHED, PLAN, TargetIds, target_ids
from archiver.archive.restores.restore_pins import RestorePins
from archiver.config.model import ArchiverConfig
from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError
from archiver.groups.positions.snapshots import STREAM as SNAPSHOTS
from archiver.groups.positions.snapshots import can_read_day, day_begins_ms
from archiver.groups.target.application_notes import is_applied
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.running.workers import side_by_side
from archiver.store.port import ListedObject
from archiver.upkeep.retention.sweeping.debris import (
    DebrisGroup,
    DebrisKind,
    DebrisPlan,
    DebrisStay,
    DebrisTerms,
    NotedStreams,
    RestoreListing,
    gather,
)

INDEX: Final = "index"
_DAY_MS: Final = 24 * 3600 * 1000
# A version of the index stays so long at least after the next one was begun: readers may have opened it.
_INDEX_MS: Final = 3_600_000
_READS_AT_ONCE: Final = 16
_Found = Iterator[DebrisGroup | DebrisStay]  # a group to delete, or why one stays


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
    """Select the debris to delete. A kind that cannot be listed whole stays."""
    going, errors = list[DebrisGroup](), list[str]()
    staying: dict[DebrisKind, dict[DebrisStay, int]] = {}
    for kind, find in _FINDERS.items():
        try:
            found = list(find(archive, terms))
        except ArchiverError as error:
            errors.append(f"{kind}: {error}")
            continue
        for one in found:
            if isinstance(one, DebrisGroup):
                going.append(one)
            else:
                counts = staying.setdefault(kind, {})
                counts[one] = counts.get(one, 0) + 1
    return DebrisPlan(going=going, staying=staying, errors=errors)


def list_group(archive: Archive, stream: str) -> Iterator[ListedObject]:
    """List all objects of a group, in order."""
    return archive.store.list(archive.layout.control_prefix(stream))


def gather_again(archive: Archive, group: DebrisGroup) -> DebrisGroup:
    """Return a group as a listing shows it now."""
    listed = list_group(archive, group.stream)
    return gather(group.kind, group.stream, listed, lambda _: True)[0]


def _restores(archive: Archive, terms: DebrisTerms) -> _Found:
    prefix = archive.layout.control_prefix(RESTORES)
    listed = groupby(archive.store.list(prefix), lambda item: item.key.removeprefix(prefix).partition("/")[0])
    for restore_id, items in listed:
        found = RestoreListing(archive.layout, restore_id, items)
        yield _why_restore_stays(archive, found, terms) or found.group


def _why_restore_stays(archive: Archive, found: RestoreListing, terms: DebrisTerms) -> DebrisStay | None:
    """Return why the notes of a restore stay. Reads notes only if the listing shows a restore that is finished, and old.

    If a sweep has begun to delete the restore, some targets may have only their `finished` note left.
    """
    if found.is_strange:
        return DebrisStay.STRANGE
    targets = found.targets
    are_ended = all(one.finished is not None and (one.plans or found.is_remnant) for one in targets.values())
    if not targets or not are_ended:
        return DebrisStay.UNFINISHED
    if not terms.is_old(found.group.newest_ms, terms.restores_ms):
        return DebrisStay.YOUNG
    planned = {name: one for name, one in targets.items() if one.plans}
    try:
        ends = side_by_side(_READS_AT_ONCE, lambda one: _finished_ids(archive, found, *one), planned.items(), "ends")
        ids = {name: one for name, one in zip(planned, ends, strict=True) if one is not None}
        if len(ids) < len(planned):
            return DebrisStay.UNFINISHED
        notes = side_by_side(_READS_AT_ONCE, lambda one: read_fact(archive, *one), found.applications.items(), "notes")
        return None if all(is_applied(note, ids) for note in notes) else DebrisStay.UNFINISHED
    except NotWholeError:
        return DebrisStay.UNREADABLE


def _finished_ids(archive: Archive, found: RestoreListing, name: str, noted: NotedStreams) -> TargetIds | None:
    """Return the one topic that all plans and the newest `finished` note of a target name; None: they do not."""
    streams = [(PLAN, number) for number in noted.plans]
    streams += [(FINISHED, noted.finished)] if noted.finished is not None else []
    named = {target_ids(read_fact(archive, f"{found.parent}/{name}/{stream}", number)) for stream, number in streams}
    return named.pop() if len(named) == 1 else None


def _days(archive: Archive, terms: DebrisTerms) -> _Found:
    """Find old days of snapshots, the oldest first."""
    yield from reversed(list(_newest_days_first(archive, terms)))


def _newest_days_first(archive: Archive, terms: DebrisTerms) -> _Found:
    """Find old days of snapshots. Positions at the beginning of the time that is kept are read from the newest day before it."""
    if terms.snapshots_ms is None:
        return
    begins = {
        name: begin_ms
        for name in archive.store.list_directories(archive.layout.control_prefix(SNAPSHOTS))
        if (begin_ms := day_begins_ms(name)) is not None and begin_ms <= terms.store_now_ms
    }
    is_newest_found = False
    for day in sorted(begins, reverse=True):  # only days that have begun, by the store's clock
        end_ms = begins[day] + _DAY_MS
        if terms.now_ms - end_ms <= terms.snapshots_ms:
            yield DebrisStay.YOUNG
            continue
        group, are_ours = _gather_numbered(archive, DebrisKind.SNAPSHOTS, f"{SNAPSHOTS}/{day}")
        if not is_newest_found:
            # A day replaces earlier ones if it can be read, and nothing was put there later than a day after its end.
            is_newest_found = group.newest_ms < end_ms + _DAY_MS and can_read_day(archive, day, terms.store_now_ms)
            yield DebrisStay.NEWEST
        elif not are_ours:
            yield DebrisStay.STRANGE
        elif not terms.is_old(group.newest_ms, terms.snapshots_ms):
            yield DebrisStay.YOUNG
        else:
            yield terms.snapshots_stay or group


def _gather_numbered(archive: Archive, kind: DebrisKind, stream: str) -> tuple[DebrisGroup, bool]:
    """Sum up a day of snapshots, or a version of the index."""
    layout, name = archive.layout, stream.rpartition("/")[2]

    def is_ours(item: ListedObject) -> bool:
        is_index = kind is DebrisKind.INDEX
        number = layout.parse_index(int(name), item.key) if is_index else layout.parse_fact(stream, item.key)
        return number is not None

    return gather(kind, stream, list_group(archive, stream), is_ours)


def _index_versions(archive: Archive, terms: DebrisTerms) -> _Found:
    """Find versions of the index that a newer one replaces, whose first file is whole and was put an hour ago."""
    names = archive.store.list_directories(archive.layout.index_prefix)
    *earlier, newest = sorted(name for name in names if archive.layout.parse_index_generation(name) is not None) or [""]
    begun_ms: int | None = None
    for name in earlier:
        group, are_ours = _gather_numbered(archive, DebrisKind.INDEX, f"{INDEX}/{name}")
        if are_ours and begun_ms is None and _is_old_version(group.newest_ms, terms):
            begun_ms = _begun_ms(archive, int(newest))
        if not are_ours:
            yield DebrisStay.STRANGE
        elif begun_ms is None or not _is_old_version(max(group.newest_ms, begun_ms), terms):
            yield DebrisStay.YOUNG
        else:
            yield group


def _is_old_version(newest_ms: int, terms: DebrisTerms) -> bool:
    return terms.store_now_ms - newest_ms >= max(terms.min_age_ms, _INDEX_MS)


def _begun_ms(archive: Archive, generation: int) -> int:
    """Return when file 0 of the newest version was put. It must be whole. Raises NotWholeError."""
    key = archive.layout.index_key(generation, 0)
    info, found = archive.store.head(key), archive.store.get(key, MOST_FILE_BYTES)
    if info is None or found is None:
        raise CorruptSegmentError(f"{key}: is not there; earlier generations of the index stay")
    check_index_file(*found, key)
    return epoch_ms(info.last_modified)


_FINDERS: Final[Mapping[DebrisKind, Callable[[Archive, DebrisTerms], _Found]]] = {
    DebrisKind.RESTORE: _restores,
    DebrisKind.SNAPSHOTS: _days,
    DebrisKind.INDEX: _index_versions,
}
