"""Finds control objects that are no longer needed, in groups: one finished restore, one day of snapshots, one version of the index.

Deletes nothing.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Final

from archiver.archive.format.control import READS_AT_ONCE, RESTORES, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, is_restore_id, is_topic_name
from archiver.archive.format.store_clock import agreed_now_ms, epoch_ms
from archiver.archive.index.index_file import MOST_FILE_BYTES
from archiver.archive.index.index_generations import check_index_file, files_from
from archiver.archive.notes.holds import Hold
from archiver.archive.restores.finished_restores import APPLICATIONS, FINISHED, PLAN, TargetIds, target_ids
from archiver.archive.restores.restore_pins import RestorePins
from archiver.config.model import ArchiverConfig
from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError
from archiver.groups.positions.snapshots import STREAM as SNAPSHOTS
from archiver.groups.positions.snapshots import can_read_day, day_begins_ms
from archiver.groups.target.application_notes import is_applied
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.running.workers import side_by_side
from archiver.store.port import ListedObject

_DIGITS: Final = 32
_DAY_MS: Final = 24 * 3600 * 1000
# A version of the index stays so long at least after the next one was begun: readers may have opened it.
_INDEX_MS: Final = 3_600_000


class DebrisKind(StrEnum):
    """The existing control objects."""

    RESTORE = "notes of finished restores"
    SNAPSHOTS = "days of snapshots of positions"
    INDEX = "earlier versions of the index"


class DebrisStay(StrEnum):
    """Why a group stays."""

    YOUNG = "it is too young"
    UNFINISHED = "it is not finished"
    NEWEST = "the newest of before the time that is kept, or no newer one can be read and was put on its day"
    HELD = "positions are on hold"
    KEPT = "retention.keep names __consumer_offsets"
    PINNED = "an unfinished restore may read it"
    STRANGE = "something lies there that is not the archive's"
    UNMERGED = "it has files that came while the next one was begun, and which that one does not have"
    UNREADABLE = "what tells whether it may go cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebrisGroup:
    """A group of control objects, as a listing shows it. `stream`: the common beginning of their keys, below `control/`."""

    kind: DebrisKind
    stream: str
    objects: int
    bytes: int
    newest_ms: int  # when the last of them was put
    content: str  # a digest of all keys, ETags and times

    def __str__(self) -> str:
        return f"control/{self.stream}/ {self.content} {self.objects}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebrisTerms:
    """What decides, besides the objects. `now_ms`: ages are counted from it; `store_now_ms`: the store's clock has reached it."""

    now_ms: int
    store_now_ms: int
    min_age_ms: int
    restores_ms: int  # so long a finished restore is kept
    snapshots_ms: int | None  # None: forever
    snapshots_stay: DebrisStay | None = None  # why all snapshots stay

    def is_old(self, newest_ms: int, kept_ms: int) -> bool:
        return self.now_ms - newest_ms > kept_ms and self.store_now_ms - newest_ms >= self.min_age_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class DebrisPlan:
    """The debris to delete; how many groups stay, and why. `errors`: kinds that could not be surveyed, and why; they stay whole."""

    going: Sequence[DebrisGroup] = ()
    staying: Mapping[DebrisKind, Mapping[DebrisStay, int]] = field(default_factory=dict)
    errors: Sequence[str] = ()

    def lines(self) -> list[str]:
        return list(map(str, self.going))

    def only(self, lines: Collection[str]) -> "DebrisPlan":
        """Leave out groups that another plan does not have as well."""
        kept = [one for one in self.going if str(one) in lines]
        return DebrisPlan(going=kept, staying=self.staying, errors=self.errors)


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


def _sum_up(
    kind: DebrisKind, stream: str, items: Iterable[ListedObject], is_ours: Callable[[ListedObject], bool]
) -> DebrisGroup | None:
    """Sum up the listed objects of a group, in constant memory. None: something else lies there."""
    told = hashlib.sha256()
    objects = size = newest_ms = 0
    are_ours = True
    for item in items:
        put_ms = epoch_ms(item.last_modified)
        told.update(f"{item.key}\n{item.etag} {item.size} {put_ms}\n".encode())
        objects, size, newest_ms = objects + 1, size + item.size, max(newest_ms, put_ms)
        are_ours &= is_ours(item)
    if not are_ours:
        return None
    content = told.hexdigest()[:_DIGITS]
    return DebrisGroup(kind=kind, stream=stream, objects=objects, bytes=size, newest_ms=newest_ms, content=content)


class _RestoreNotes:
    """Which of a restore's notes tell whether it is finished, by a listing."""

    def __init__(self, layout: Layout, parent: str) -> None:
        self.targets: set[str] = set()
        self.plans: dict[str, list[int]] = {}  # the numbers of each target's plans
        self.finished: dict[str, int] = {}  # the number of each target's newest `finished` note
        self.applications: dict[str, int] = {}  # the newest note of each group whose positions were set
        self.is_remnant = True  # only plans and `finished` notes of targets are left
        self._layout = layout
        self._parent = parent

    def take(self, item: ListedObject) -> bool:
        """Note an object. Returns whether it belongs to a restore."""
        layout, fact = self._layout, self._layout.split_fact(item.key)
        target, _, name = item.key.removeprefix(layout.control_prefix(self._parent)).partition("/")
        is_note = fact is not None or layout.parse_offset_map(item.key) is not None or layout.is_chosen(item.key)
        if not (is_note and name and (target == APPLICATIONS or is_topic_name(target))):
            return False
        stream, number = fact or ("", 0)
        if target == APPLICATIONS:
            self.applications[stream] = number
        else:
            self.targets.add(target)
        if stream == f"{self._parent}/{target}/{PLAN}":
            self.plans.setdefault(target, []).append(number)
        elif stream == f"{self._parent}/{target}/{FINISHED}":
            self.finished[target] = number
        else:
            self.is_remnant = False
        return True

    @property
    def are_ended(self) -> bool:
        """Whether each target has an end, and a plan. A sweep that died may have left only the end."""
        planned = self.targets if self.is_remnant else self.plans.keys()
        return bool(self.targets) and self.targets <= self.finished.keys() & planned

    def ids_of(self, archive: Archive, target: str) -> set[TargetIds | None]:
        """Return the topics that the plans and the end of a target name; None: a note names none."""
        place = f"{self._parent}/{target}"
        plans = [read_fact(archive, f"{place}/{PLAN}", number) for number in self.plans.get(target, ())]
        end = read_fact(archive, f"{place}/{FINISHED}", self.finished[target])
        return {target_ids(note) for note in [*plans, end]}

    def is_finished(self, archive: Archive) -> bool:
        """Whether all notes of each target name one topic, and each group was set there. Raises NotWholeError."""
        named = side_by_side(READS_AT_ONCE, lambda one: self.ids_of(archive, one), self.targets, "ends")
        ids = {target: one for target, (one, *others) in zip(self.targets, named, strict=True) if one and not others}
        if len(ids) < len(self.targets):
            return False
        notes = side_by_side(READS_AT_ONCE, lambda one: read_fact(archive, *one), self.applications.items(), "notes")
        return all(is_applied(note, ids) for note in notes)


def _restores(archive: Archive, terms: DebrisTerms) -> Iterator[DebrisGroup | DebrisStay]:
    """Find old finished restores. Reads notes only if the listing shows a restore that is ended, and old."""
    prefix = archive.layout.control_prefix(RESTORES)
    listed = groupby(archive.store.list(prefix), lambda item: item.key.removeprefix(prefix).partition("/")[0])
    for restore_id, items in listed:
        notes = _RestoreNotes(archive.layout, f"{RESTORES}/{restore_id}")
        group = _sum_up(DebrisKind.RESTORE, f"{RESTORES}/{restore_id}", items, notes.take)
        if group is None or not is_restore_id(restore_id):
            yield DebrisStay.STRANGE
        elif not notes.are_ended:
            yield DebrisStay.UNFINISHED
        elif not terms.is_old(group.newest_ms, terms.restores_ms):
            yield DebrisStay.YOUNG
        else:
            try:
                yield group if notes.is_finished(archive) else DebrisStay.UNFINISHED
            except NotWholeError:
                yield DebrisStay.UNREADABLE


def _days(archive: Archive, terms: DebrisTerms) -> Iterator[DebrisGroup | DebrisStay]:
    """Find old days of snapshots, the oldest first."""
    yield from reversed(list(_newest_days_first(archive, terms)))


def _newest_days_first(archive: Archive, terms: DebrisTerms) -> Iterator[DebrisGroup | DebrisStay]:
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
        stream, end_ms = f"{SNAPSHOTS}/{day}", begins[day] + _DAY_MS
        if terms.now_ms - end_ms <= terms.snapshots_ms:
            yield DebrisStay.YOUNG
            continue
        group = _sum_numbered(archive, DebrisKind.SNAPSHOTS, stream, partial(archive.layout.parse_fact, stream))
        if group is None:
            yield DebrisStay.STRANGE
        elif not is_newest_found:
            # A day replaces earlier ones if it can be read, and nothing was put there later than a day after its end.
            is_newest_found = group.newest_ms < end_ms + _DAY_MS and can_read_day(archive, day, terms.store_now_ms)
            yield DebrisStay.NEWEST
        elif not terms.is_old(group.newest_ms, terms.snapshots_ms):
            yield DebrisStay.YOUNG
        else:
            yield terms.snapshots_stay or group


def _index_versions(archive: Archive, terms: DebrisTerms) -> Iterator[DebrisGroup | DebrisStay]:
    """Find versions of the index that a newer one replaces, whose first file is whole and was put an hour ago.

    The version before the newest stays if it has files that were added while it was merged: readers take them from there.
    """
    layout = archive.layout
    names = archive.store.list_directories(layout.index_prefix)
    *earlier, newest = sorted(name for name in names if layout.parse_index_generation(name) is not None) or [""]
    begun_ms, merged_files = _begun(archive, int(newest)) if earlier else (0, 0)
    for name in earlier:
        parse = partial(layout.parse_index, int(name))
        group = _sum_numbered(archive, DebrisKind.INDEX, f"index/{name}", parse)
        if group is None:
            yield DebrisStay.STRANGE
        elif terms.store_now_ms - max(group.newest_ms, begun_ms) < max(terms.min_age_ms, _INDEX_MS):
            yield DebrisStay.YOUNG
        elif int(name) == int(newest) - 1 and files_from(archive, int(name), merged_files):
            yield DebrisStay.UNMERGED
        else:
            yield group


def _sum_numbered(
    archive: Archive, kind: DebrisKind, stream: str, parse: Callable[[str], int | None]
) -> DebrisGroup | None:
    """Sum up a day of snapshots, or a version of the index. `parse`: the number in a key."""
    return _sum_up(kind, stream, list_group(archive, stream), lambda item: parse(item.key) is not None)


def _begun(archive: Archive, generation: int) -> tuple[int, int]:
    """Return when file 0 of the newest version was put, and how many files it merged. It must be whole. Raises NotWholeError."""
    key = archive.layout.index_key(generation, 0)
    info, found = archive.store.head(key), archive.store.get(key, MOST_FILE_BYTES)
    if info is None or found is None:
        raise CorruptSegmentError(f"{key}: is not there; earlier versions of the index stay")
    return epoch_ms(info.last_modified), check_index_file(*found, key).merged_files


_FINDERS: Final = {
    DebrisKind.RESTORE: _restores,
    DebrisKind.SNAPSHOTS: _days,
    DebrisKind.INDEX: _index_versions,
}
