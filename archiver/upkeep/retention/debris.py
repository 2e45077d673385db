"""Control objects that nobody needs any longer: which of them go, and why others stay. Pure: what storage says comes from the caller.

They go in groups, each as a whole: what one restore has noted, the snapshots of one day, one generation of the index.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from archiver.archive.control import RESTORES
from archiver.archive.finished_restores import FINISHED, PLAN
from archiver.archive.layout import Layout, is_restore_id, is_topic_name
from archiver.archive.store_clock import epoch_ms
from archiver.groups.application_notes import APPLICATIONS
from archiver.groups.snapshots import STREAM as SNAPSHOTS
from archiver.groups.snapshots import day_begins_ms
from archiver.store.port import ListedObject

_DAY_MS: Final = 24 * 3600 * 1000
# A generation of the index stays so long at least after the next one was begun: readers may have opened it.
_INDEX_MS: Final = 3_600_000
_MOST_TARGETS: Final = 100_000  # of a restore; also groups whose positions it set. Who has more is no restore of ours
_DIGITS: Final = 32


class DebrisKind(StrEnum):
    """The existing control objects."""

    RESTORE = "notes of finished restores"
    SNAPSHOTS = "days of snapshots of positions"
    INDEX = "earlier generations of the index"


class DebrisStay(StrEnum):
    """Why a group stays."""

    YOUNG = "it is too young"
    UNFINISHED = "it is not finished"
    NEWEST = "the newest of before the time that is kept, or no newer one can be read and was put on its day"
    HELD = "positions are on hold"
    KEPT = "retention.keep names __consumer_offsets"
    PINNED = "an unfinished restore may read it"
    STRANGE = "something lies there that is not the archive's"
    UNREADABLE = "what tells whether it may go cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebrisGroup:
    """A group of control objects, as a listing shows it. `stream`: what all of their keys begin with, below `control/`."""

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
    """What decides, besides the objects. `now_ms` is what ages are counted from; `store_now_ms` is what the store's clock has reached."""

    now_ms: int
    store_now_ms: int
    min_age_ms: int
    restores_ms: int  # so long a finished restore is kept
    snapshots_ms: int | None  # None: for ever
    snapshots_stay: DebrisStay | None = None  # why all snapshots stay

    def is_old(self, newest_ms: int, kept_ms: int) -> bool:
        return self.now_ms - newest_ms > kept_ms and self.store_now_ms - newest_ms >= self.min_age_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class DebrisPlan:
    """What goes of debris; how many groups stay, and why. `errors`: what kept a kind from being looked at: nothing of it goes."""

    going: Sequence[DebrisGroup] = ()
    staying: Mapping[DebrisKind, Mapping[DebrisStay, int]] = field(default_factory=dict)
    errors: Sequence[str] = ()

    def lines(self) -> list[str]:
        return list(map(str, self.going))

    def only(self, lines: Collection[str]) -> "DebrisPlan":
        """Leave out what some other plan does not have as well."""
        kept = [one for one in self.going if str(one) in lines]
        return DebrisPlan(going=kept, staying=self.staying, errors=self.errors)


class Gathered:
    """Sums up the objects of one group, in the order of a listing. It takes no more memory for more of them."""

    def __init__(self, kind: DebrisKind, stream: str) -> None:
        self._kind = kind
        self._stream = stream
        self._told = hashlib.sha256()
        self._objects = self._bytes = self._newest_ms = 0
        self.is_strange = False

    def add(self, item: ListedObject, *, is_ours: bool) -> None:
        put_ms = epoch_ms(item.last_modified)
        self._told.update(f"{item.key}\n{item.etag} {item.size} {put_ms}\n".encode())
        self._objects += 1
        self._bytes += item.size
        self._newest_ms = max(self._newest_ms, put_ms)
        self.is_strange |= not is_ours

    @property
    def group(self) -> DebrisGroup:
        return DebrisGroup(
            kind=self._kind,
            stream=self._stream,
            objects=self._objects,
            bytes=self._bytes,
            newest_ms=self._newest_ms,
            content=self._told.hexdigest()[:_DIGITS],
        )


def gathered(layout: Layout, kind: DebrisKind, stream: str, items: Iterable[ListedObject]) -> Gathered:
    """Sum up a day of snapshots, or a generation of the index."""
    found = Gathered(kind, stream)
    generation = stream.rpartition("/")[2]
    for item in items:
        if kind is DebrisKind.INDEX:
            is_ours = layout.parse_index(int(generation), item.key) is not None
        else:
            is_ours = layout.parse_fact(stream, item.key) is not None
        found.add(item, is_ours=is_ours)
    return found


# --- restores


@dataclass(slots=True)
class NotedStreams:
    """The numbers of the plans and of the newest end that a restore has noted of a target."""

    plans: list[int] = field(default_factory=list)
    finished: int | None = None


class GatheredRestore(Gathered):
    """Sums up what one restore has noted."""

    def __init__(self, restore_id: str) -> None:
        self.parent = f"{RESTORES}/{restore_id}"
        super().__init__(DebrisKind.RESTORE, self.parent)
        self.targets: dict[str, NotedStreams] = {}
        self.applications: dict[str, int] = {}  # the newest note of each group whose positions were set
        self.is_remnant = True  # nothing but plans and ends of targets is left
        self.is_strange = not is_restore_id(restore_id)

    def add_note(self, layout: Layout, item: ListedObject) -> None:
        """Add the next object of the listing."""
        name, _, rest = item.key.removeprefix(layout.control_prefix(self.parent)).partition("/")
        fact = layout.split_fact(item.key)
        is_ours = bool(rest) and (fact is not None or layout.parse_offset_map(item.key) is not None)
        is_ours = is_ours or layout.is_chosen(item.key)
        self.add(item, is_ours=is_ours and (is_topic_name(name) or name == APPLICATIONS))
        if not is_ours or len(self.targets) > _MOST_TARGETS or len(self.applications) > _MOST_TARGETS:
            self.is_strange = True
            return
        if name == APPLICATIONS:
            self.is_remnant = False
            if fact is not None:
                self.applications[fact[0]] = fact[1]
            return
        noted = self.targets.setdefault(name, NotedStreams())
        if fact is not None and fact[0] == f"{self.parent}/{name}/{PLAN}":
            noted.plans.append(fact[1])
        elif fact is not None and fact[0] == f"{self.parent}/{name}/{FINISHED}":
            noted.finished = fact[1]
        else:
            self.is_remnant = False


def judge_restore(found: GatheredRestore, terms: DebrisTerms, *, is_being_taken: bool) -> DebrisStay | None:
    """Return why the notes of a restore stay, by a listing alone. An earlier sweep may have left only the ends of targets."""
    if found.is_strange:
        return DebrisStay.STRANGE
    may_lack_plan = is_being_taken and found.is_remnant
    for noted in found.targets.values():
        if noted.finished is None or (not noted.plans and not may_lack_plan):
            return DebrisStay.UNFINISHED
    if not found.targets:
        return DebrisStay.UNFINISHED
    return None if terms.is_old(found.group.newest_ms, terms.restores_ms) else DebrisStay.YOUNG


# --- snapshots


def days_in_order(names: Iterable[str], now_ms: int) -> list[str]:
    """Return the days that have begun by now, the newest first; whatever else is named so is left alone."""
    return sorted(
        (name for name in names if (begin := day_begins_ms(name)) is not None and begin <= now_ms), reverse=True
    )


def is_old_day(day: str, terms: DebrisTerms) -> bool:
    """Return whether a whole day is older than snapshots are kept."""
    begin_ms = day_begins_ms(day)
    return (
        begin_ms is not None
        and terms.snapshots_ms is not None
        and terms.now_ms - begin_ms - _DAY_MS > terms.snapshots_ms
    )


def was_put_in_time(day: str, newest_ms: int) -> bool:
    """Tell whether the snapshots of a day were put on it, or while a store that was away was waited for."""
    begin_ms = day_begins_ms(day)
    return begin_ms is not None and newest_ms < begin_ms + 2 * _DAY_MS


def judge_day(found: Gathered, terms: DebrisTerms) -> DebrisStay | None:
    """Say why the snapshots of an old day stay that is not the newest."""
    if found.is_strange:
        return DebrisStay.STRANGE
    if terms.snapshots_ms is None or not terms.is_old(found.group.newest_ms, terms.snapshots_ms):
        return DebrisStay.YOUNG
    return terms.snapshots_stay


def day_stream(day: str) -> str:
    return f"{SNAPSHOTS}/{day}"


# --- the index


def judge_generation(found: Gathered, next_put_ms: int, terms: DebrisTerms) -> DebrisStay | None:
    """Say why a generation of the index stays that is not the newest. `next_put_ms`: when the newest was begun."""
    if found.is_strange:
        return DebrisStay.STRANGE
    newest_ms = max(found.group.newest_ms, next_put_ms)
    is_old = terms.store_now_ms - newest_ms >= max(terms.min_age_ms, _INDEX_MS)
    return None if is_old else DebrisStay.YOUNG


# --- counting


class Stays:
    """Counts the groups that stay, by kind and reason."""

    def __init__(self) -> None:
        self._counts: dict[DebrisKind, Counter[DebrisStay]] = {}

    def add(self, kind: DebrisKind, why: DebrisStay, count: int = 1) -> None:
        if count:
            self._counts.setdefault(kind, Counter())[why] += count

    def join(self, more: "Stays") -> None:
        for kind, counts in more.told().items():
            for why, count in counts.items():
                self.add(kind, why, count)

    def told(self) -> Mapping[DebrisKind, Mapping[DebrisStay, int]]:
        return {kind: dict(counts) for kind, counts in self._counts.items()}
