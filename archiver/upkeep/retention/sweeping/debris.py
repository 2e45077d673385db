"""Control objects that are no longer needed, in groups: one finished restore, one day of snapshots, one version of the index."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from archiver.archive.format.control import RESTORES
from archiver.archive.format.layout import Layout, is_restore_id, is_topic_name
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.restores.finished_restores import APPLICATIONS, FINISHED, PLAN
from archiver.store.port import ListedObject

_MOST_TARGETS: Final = 100_000  # of a restore; also groups whose positions it set. A larger one is no restore of ours
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


def gather(
    kind: DebrisKind, stream: str, items: Iterable[ListedObject], is_ours: Callable[[ListedObject], bool]
) -> tuple[DebrisGroup, bool]:
    """Sum up the listed objects of a group, in constant memory. Returns the group, and whether all of its objects are ours."""
    told = hashlib.sha256()
    objects = size = newest_ms = 0
    are_ours = True
    for item in items:
        put_ms = epoch_ms(item.last_modified)
        told.update(f"{item.key}\n{item.etag} {item.size} {put_ms}\n".encode())
        objects, size, newest_ms = objects + 1, size + item.size, max(newest_ms, put_ms)
        are_ours &= is_ours(item)
    content = told.hexdigest()[:_DIGITS]
    group = DebrisGroup(kind=kind, stream=stream, objects=objects, bytes=size, newest_ms=newest_ms, content=content)
    return group, are_ours


@dataclass(slots=True)
class NotedStreams:
    """The numbers of the plans and of the newest `finished` note that a restore has noted of a target."""

    plans: list[int] = field(default_factory=list)
    finished: int | None = None


class RestoreListing:
    """The notes of one restore, by a listing."""

    def __init__(self, layout: Layout, restore_id: str, items: Iterable[ListedObject]) -> None:
        self.parent = f"{RESTORES}/{restore_id}"
        self.targets: dict[str, NotedStreams] = {}
        self.applications: dict[str, int] = {}  # the newest note of each group whose positions were set
        self.is_remnant = True  # only plans and `finished` notes of targets are left
        self._layout = layout
        self.group, are_ours = gather(DebrisKind.RESTORE, self.parent, items, self._add)
        self.is_strange = not are_ours or not is_restore_id(restore_id)

    def _add(self, item: ListedObject) -> bool:
        """Classify and note an object. Returns whether it belongs to a restore."""
        layout, fact = self._layout, self._layout.split_fact(item.key)
        name, _, rest = item.key.removeprefix(layout.control_prefix(self.parent)).partition("/")
        is_note = bool(rest) and (fact is not None or layout.parse_offset_map(item.key) is not None)
        is_ours = (is_note or layout.is_chosen(item.key)) and (is_topic_name(name) or name == APPLICATIONS)
        if not is_ours or max(len(self.targets), len(self.applications)) > _MOST_TARGETS:
            return False
        if name == APPLICATIONS:
            self.is_remnant = False
            if fact is not None:
                self.applications[fact[0]] = fact[1]
            return True
        noted = self.targets.setdefault(name, NotedStreams())
        if fact is not None and fact[0] == f"{self.parent}/{name}/{PLAN}":
            noted.plans.append(fact[1])
        elif fact is not None and fact[0] == f"{self.parent}/{name}/{FINISHED}":
            noted.finished = fact[1]
        else:
            self.is_remnant = False
        return True
