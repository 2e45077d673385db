"""Decides which objects of a partition a sweep deletes, and why each other one stays. Reads nothing itself: the caller's `ask` returns facts of objects.

A partition is read through its lives: the *lineage*, parent below the branch, child from there. Its objects are walked oldest
first, as Kafka deletes a log:

1. An object is deleted if the broker has none of it left, if it was put long enough ago, and if it is beyond either limit. The
   first object that fails one of these ends the walk: it stays, and so do all later ones.
2. An object that meets them but is protected is skipped: the newest objects of each life, and any that is held, locked, read
   by a restore, or without a topic id. So it does not keep all later ones; nor does a hold release objects that would stay without it.
3. An object of unknown age is skipped, too.

A life's objects at or above the branch where it was cut back are another history. They are walked separately, by age alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.upkeep.retention.planning.limits import Limits

ASKS_AT_ONCE: Final = 16  # objects: nearly all of the time is waiting for the store
# An object counts at most this many times its stored size against a topic's limit, whatever its facts. So a false fact cannot
# count for more than was put. If records compress still better, at most this part of the topic's limit is stored.
MOST_COMPRESSION: Final = 100


class Going(StrEnum):
    """Why an object is deleted."""

    TIME = "older than what the topic keeps"
    SIZE = "beyond how much the topic keeps"
    SHADOWED = "another object has its records, and is read in its place"


class Staying(StrEnum):
    """Why an object stays."""

    NEWEST = "the newest of its partition and life"
    HELD = "on hold"
    LOCKED = "locked by the store"
    PINNED = "an unfinished restore reads it"
    UNPROVEN = "it does not tell of which topic it is"
    OF_V1 = "of format 1.0: it tells neither times nor sizes"
    UNREADABLE = "its facts cannot be read"
    NO_END = "where its partition ends cannot be read"
    ON_BROKER = "the broker still has some of it"
    YOUNG = "it was put a short time ago"
    WITHIN = "within what the topic keeps"
    BEHIND = "behind an object that stays"
    UNFOLDED = "no fold of group positions stands for it"


_PASSED_OVER: Final = frozenset(
    {
        Staying.NEWEST,
        Staying.HELD,
        Staying.LOCKED,
        Staying.PINNED,
        Staying.UNPROVEN,
        Staying.OF_V1,
        Staying.UNREADABLE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedItem:
    """An object of a partition, as a listing shows it."""

    life: int
    key: str
    base: int
    named_next: int | None = None  # of a merged one
    etag: str = ""
    size: int = 0
    put_ms: int  # by the store's clock


class AskedItem(NamedTuple):
    """The facts of an object, as it returned them."""

    next: int
    min_timestamp: int
    max_timestamp: int
    source_bytes: int
    records: int
    is_locked: bool = False
    topic_id: str = ""
    digest: int = 0


Answer = AskedItem | Staying  # Staying: of an object without usable facts
Ask = Callable[[ListedItem], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeItems:
    """The objects of a partition in one life, in the order of reading. `until`: where the log was cut back, of a life with a child."""

    life: int
    items: Sequence[ListedItem]
    until: int | None = None


class HeldTimes(NamedTuple):
    """Records of these times are on hold; both ends included, None: no end."""

    from_ms: int | None = None
    until_ms: int | None = None

    def hold(self, item: AskedItem | SegmentFacts) -> bool:
        """Return whether some record may be of these times. A record without a time may be of any."""
        is_before = self.until_ms is not None and 0 <= item.min_timestamp > self.until_ms
        return not is_before and (self.from_ms is None or item.max_timestamp >= self.from_ms or item.min_timestamp < 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTerms:
    """What decides, besides the objects. All times are of the store's clock.

    `now_ms`: ages are counted from it; `store_now_ms`: the store's clock has surely reached it.
    """

    limits: Limits
    now_ms: int
    store_now_ms: int
    min_age_ms: int
    log_start: int | None  # where the broker's log begins; None: no broker is asked
    holds: Sequence[HeldTimes] = ()
    pinned: frozenset[str] = frozenset()  # keys of objects that restores read
    topic_id: str = ""  # of the lives, by the notes


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingItem:
    """An object to delete."""

    item: ListedItem
    told: AskedItem
    why: Going


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionVerdict:
    """The objects to delete, oldest first; how many others stay, and why. `untimed`: how many count by when they were put."""

    going: tuple[GoingItem, ...] = ()
    staying: Mapping[Staying, int] = field(default_factory=dict)
    untimed: int = 0
    ended_at: Mapping[str, Staying] = field(default_factory=dict)  # keys of objects that ended a walk

    def without(self, keys: Iterable[str]) -> "PartitionVerdict":
        """Uncount objects that stay only because a walk ended: they are deleted for another reason."""
        staying = dict(self.staying)
        ended = Staying.BEHIND if self.ended_at else next(iter(staying), Staying.BEHIND)
        for key in keys:
            staying[self.ended_at.get(key, ended)] -= 1
        return replace(self, staying={why: count for why, count in staying.items() if count})


def remembering(ask: Ask, answers: dict[str, Answer] | None = None) -> Ask:
    """Read the facts of each object once. `answers`: a cache by key."""
    told: dict[str, Answer] = {} if answers is None else answers

    def ask_once(item: ListedItem) -> Answer:
        if item.key not in told:
            told[item.key] = ask(item)
        return told[item.key]

    return ask_once


def judge_partition(lineage: Sequence[LifeItems], ask: Ask, terms: PartitionTerms) -> PartitionVerdict:
    """Select the objects to delete. `lineage`: the lives of the partition, oldest first. `ask` may be called twice."""
    count = sum(len(life.items) for life in lineage)
    if kept := _all_stay(lineage, terms):
        return PartitionVerdict(staying={kept: count} if count else {})
    ends = {life.life: _end_of(life, ask) for life in lineage}
    if None in ends.values():
        return PartitionVerdict(staying={Staying.NO_END: count})
    walk = _Walk(ask, terms, lineage, {life: end or 0 for life, end in ends.items()})
    walk.through(main_items(lineage))
    for life in lineage:
        walk.beside(_beside(life))
    return PartitionVerdict(going=tuple(walk.going), staying=walk.staying, untimed=walk.untimed, ended_at=walk.ended_at)


def main_items(lineage: Sequence[LifeItems]) -> list[ListedItem]:
    """Return the objects through which the partition is read, in order."""
    return [one for life in lineage for one in life.items if life.until is None or one.base < life.until]


def _beside(life: LifeItems) -> list[ListedItem]:
    """Return the objects of another history: those of a life at or above its branch."""
    return [one for one in life.items if life.until is not None and one.base >= life.until]


def _all_stay(lineage: Sequence[LifeItems], terms: PartitionTerms) -> Staying | None:
    """Return why no object can be deleted, if names alone decide that: then no facts are read."""
    if terms.limits.keeps_all:
        return Staying.WITHIN
    if terms.log_start is None or any(map(_beside, lineage)):
        return None
    return None if any(one.base < terms.log_start for one in main_items(lineage)[:1]) else Staying.ON_BROKER


def _end_of(life: LifeItems, ask: Ask) -> int | None:
    """Return where a life ends, by the objects from which a writer reads its position. None: unknown."""
    told = [ask(one) for one in newest_of(life.items)]
    known = [one.next for one in told if isinstance(one, AskedItem)]
    return max(known, default=0) if len(known) == len(told) else None


def newest_of(items: Sequence[ListedItem]) -> list[ListedItem]:
    """Return the plain object of the highest base, and the merged ones that end highest."""
    plain = max((one for one in items if one.named_next is None), key=lambda one: one.base, default=None)
    furthest = max((one.named_next for one in items if one.named_next is not None), default=None)
    merged = [one for one in items if one.named_next is not None and one.named_next == furthest]
    return merged if plain is None else [plain, *merged]


class _Walk:
    """Walks objects in order, and notes the verdict on each."""

    def __init__(self, ask: Ask, terms: PartitionTerms, lineage: Sequence[LifeItems], ends: Mapping[int, int]) -> None:
        self._ask = ask
        self._terms = terms
        self._ends = ends
        # A merged one of these that the last plain one has passed is as any other.
        self._last_plain = {one.key for life in lineage for one in newest_of(life.items) if one.named_next is None}
        self._untils = {life.life: MOST_OFFSET if life.until is None else life.until for life in lineage}
        self.going: list[GoingItem] = []
        self.staying: dict[Staying, int] = {}
        self.untimed = 0
        self.ended_at: dict[str, Staying] = {}

    def through(self, items: Sequence[ListedItem]) -> None:
        """Walk the lineage: by age and by size, and only below where the broker's log begins."""
        surplus = self._surplus(items)
        for place, item in enumerate(items):
            if self._terms.log_start is not None and item.base >= self._terms.log_start:
                self._ends_at(Staying.ON_BROKER, item, len(items) - place)
                return
            told = self._ask(item)
            if isinstance(told, AskedItem) and self._is_on_broker(item, told):
                stays: Staying | None = Staying.ON_BROKER
            else:
                stays = self._judge(item, told, is_surplus=place < surplus)
            if self._ends_at(stays, item, len(items) - place):
                return

    def beside(self, items: Sequence[ListedItem]) -> None:
        """Walk the objects above a branch: no log has them any more, and their age decides alone."""
        for place, item in enumerate(items):
            stays = self._judge(item, self._ask(item), is_surplus=False)
            if self._ends_at(stays, item, len(items) - place):
                return

    def _is_on_broker(self, item: ListedItem, told: AskedItem) -> bool:
        """Return whether the broker's log may have some of it. Its records above a branch are of another log."""
        return self._terms.log_start is not None and min(told.next, self._untils[item.life]) > self._terms.log_start

    def _ends_at(self, stays: Staying | None, item: ListedItem, left: int) -> bool:
        """Count an object that stays, and those behind it if it ends the walk."""
        if stays is None:
            return False
        self._count(stays, 1)
        if stays in _PASSED_OVER:
            return False
        self.ended_at[item.key] = stays
        self._count(Staying.BEHIND, left - 1)
        return True

    def _count(self, stays: Staying, count: int) -> None:
        if count:
            self.staying[stays] = self.staying.get(stays, 0) + count

    def _protected(self, item: ListedItem, told: AskedItem) -> Staying | None:
        """Return why an object must stay, whatever the limits."""
        if item.key in self._last_plain or told.next >= self._ends[item.life]:
            return Staying.NEWEST
        if told.topic_id != self._terms.topic_id:
            return Staying.UNPROVEN
        if told.is_locked:
            return Staying.LOCKED
        if any(times.hold(told) for times in self._terms.holds):
            return Staying.HELD
        return Staying.PINNED if item.key in self._terms.pinned else None

    def _judge(self, item: ListedItem, told: Answer, *, is_surplus: bool) -> Staying | None:
        """Return why an object that the broker no longer has stays. Notes it if it is deleted."""
        if not isinstance(told, AskedItem):
            return told
        terms = self._terms
        if terms.store_now_ms - item.put_ms < terms.min_age_ms:
            return Staying.YOUNG
        age_ms = terms.now_ms - self._time_of(item, told)
        is_old = terms.limits.ms is not None and age_ms > terms.limits.ms
        is_young = terms.limits.floor_ms > 0 and age_ms < terms.limits.floor_ms
        if not (is_old or is_surplus) or is_young:
            return Staying.WITHIN
        # Checked last: an object that stays by itself ends the walk, also if it is on hold.
        stays = self._protected(item, told)
        if stays is None:
            self.going.append(GoingItem(item=item, told=told, why=Going.TIME if is_old else Going.SIZE))
        return stays

    def _time_of(self, item: ListedItem, told: AskedItem) -> int:
        """The time of the newest record. As in Kafka, an object without times of records counts by when it was put; so does the future."""
        if 0 <= told.max_timestamp <= self._terms.store_now_ms:
            return told.max_timestamp
        self.untimed += 1
        return item.put_ms

    def _surplus(self, items: Sequence[ListedItem]) -> int:
        """Return how many objects, from the oldest on, have at least as much after them as the topic keeps.

        An object counts 0 if it overlaps a later one, reaches above its branch, or must stay, except for the newest: the sum is too
        small at worst, never too large. Nor does it count more than MOST_COMPRESSION times its stored size.
        Facts are read from the newest object on, until the sum suffices.
        """
        if self._terms.limits.bytes is None:
            return 0
        found, following = 0, MOST_OFFSET
        for place in reversed(range(len(items))):
            if found >= self._terms.limits.bytes:
                return place + 1
            item = items[place]
            told = self._ask(item)
            if isinstance(told, AskedItem):
                is_alone = told.next <= min(following, self._untils[item.life])
                is_counted = self._protected(item, told) in {None, Staying.NEWEST}
                found += min(told.source_bytes, MOST_COMPRESSION * item.size) if is_alone and is_counted else 0
            following = min(following, item.base)
        return 0
