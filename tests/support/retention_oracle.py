"""A slow reading of which objects of a partition go: one method for each rule of retention, each looking at everything again.

It shares no code with what it checks but the values that go in and come out. A broken copy overrides one rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from archiver.upkeep.retention.planning.partition_verdict import (
    Answer,
    AskedItem,
    Going,
    HeldTimes,
    LifeItems,
    ListedItem,
    PartitionTerms,
    Staying,
)


@dataclass(slots=True, kw_only=True)
class Plan:
    """What goes, in order, each by its key; how many stay, and why; how many count by when they were put."""

    going: list[tuple[str, Going]] = field(default_factory=list)
    staying: dict[Staying, int] = field(default_factory=dict)
    untimed: int = 0

    def stay(self, why: Staying, count: int = 1) -> None:
        if count:
            self.staying[why] = self.staying.get(why, 0) + count


class Rules:
    """The rules as the order has them."""

    def __init__(self, lineage: Sequence[LifeItems], told: Mapping[str, Answer], terms: PartitionTerms) -> None:
        self.lineage = lineage
        self.told = told
        self.terms = terms
        self.lives = {life.life: life for life in lineage}

    # --- what never goes

    def position_sources(self, life: LifeItems) -> list[ListedItem]:
        """What a writer reads its position from (docs/format.md, F2)."""
        plain = [one for one in life.items if one.named_next is None]
        merged = [one for one in life.items if one.named_next is not None]
        return [
            *(one for one in plain if all(one.base >= other.base for other in plain)),
            *(one for one in merged if all((one.named_next or 0) >= (other.named_next or 0) for other in merged)),
        ]

    def has_end(self, life: LifeItems) -> bool:
        return all(isinstance(self.told[one.key], AskedItem) for one in self.position_sources(life))

    def is_newest(self, item: ListedItem, told: AskedItem) -> bool:
        """The plain object of the highest base, and each that reaches to where a writer goes on."""
        sources = self.position_sources(self.lives[item.life])
        answers = [self.told[one.key] for one in sources]
        position = max(one.next for one in answers if isinstance(one, AskedItem))
        is_last_plain = item.named_next is None and any(one.key == item.key for one in sources)
        return is_last_plain or told.next >= position

    def is_of_held_time(self, hold: HeldTimes, told: AskedItem) -> bool:
        """Whether a record may be of these times; one without a time may be of any."""
        if told.min_timestamp < 0:
            return True
        first = told.min_timestamp if hold.from_ms is None else max(hold.from_ms, told.min_timestamp)
        last = told.max_timestamp if hold.until_ms is None else min(hold.until_ms, told.max_timestamp)
        return first <= last

    def is_proven(self, told: AskedItem) -> bool:
        """An object goes only as one of the topic that the notes name. One that names none is of an unknown topic."""
        return self.terms.topic_id == told.topic_id

    def protection(self, item: ListedItem, told: AskedItem) -> Staying | None:
        if self.is_newest(item, told):
            return Staying.NEWEST
        if not self.is_proven(told):
            return Staying.UNPROVEN
        if told.is_locked:
            return Staying.LOCKED
        if any(self.is_of_held_time(hold, told) for hold in self.terms.holds):
            return Staying.HELD
        return Staying.PINNED if item.key in self.terms.pinned else None

    def is_young(self, item: ListedItem) -> bool:
        return self.terms.store_now_ms - item.put_ms < self.terms.min_age_ms

    def is_on_broker(self, item: ListedItem, told: AskedItem) -> bool:
        """Of a parent's object, what lies above the branch is no part of the broker's log."""
        until = self.lives[item.life].until
        following = told.next if until is None else min(told.next, until)
        return self.terms.log_start is not None and following > self.terms.log_start

    # --- time

    def has_time(self, told: AskedItem) -> bool:
        return told.max_timestamp >= 0 and told.max_timestamp <= self.terms.store_now_ms

    def is_old(self, item: ListedItem, told: AskedItem) -> bool:
        newest = told.max_timestamp if self.has_time(told) else item.put_ms
        return self.terms.limits.ms is not None and newest < self.terms.now_ms - self.terms.limits.ms

    def is_below_floor(self, item: ListedItem, told: AskedItem) -> bool:
        """Whether it is so young that it stays, whatever the limits say."""
        newest = told.max_timestamp if self.has_time(told) else item.put_ms
        return newest > self.terms.now_ms - self.terms.limits.floor_ms

    # --- size

    def counted_bytes(self, item: ListedItem, later: Sequence[ListedItem]) -> int:
        """What an object has of the lineage for certain: nothing if a part of it may be in another, or above the branch."""
        told, until = self.told[item.key], self.lives[item.life].until
        if not isinstance(told, AskedItem):
            return 0
        is_within = until is None or told.next <= until
        is_alone = all(told.next <= other.base for other in later)
        is_counted = self.protection(item, told) in {None, Staying.NEWEST}
        return self.believed_bytes(item, told) if is_within and is_alone and is_counted else 0

    def believed_bytes(self, item: ListedItem, told: AskedItem) -> int:
        """What Kafka had of an object's records, as it tells, unless nothing could be compressed so much."""
        times_as_much = 100
        return min(times_as_much * item.size, told.source_bytes)

    def is_surplus(self, items: Sequence[ListedItem], place: int) -> bool:
        """Whether what lies behind an object is as much as the topic keeps."""
        if self.terms.limits.bytes is None:
            return False
        behind = range(place + 1, len(items))
        return sum(self.counted_bytes(items[at], items[at + 1 :]) for at in behind) >= self.terms.limits.bytes

    # --- in order

    def tells_nothing_ends(self) -> bool:
        return False

    def protection_ends(self) -> bool:
        return False

    def goes_on(self, why: Staying) -> bool:
        """Whether the walk goes on behind an object that stays by itself."""
        del why
        return False

    def own_reason(self, items: Sequence[ListedItem], place: int, *, is_lineage: bool) -> Staying | Going:
        """What would become of an object if nothing protected it."""
        item = items[place]
        told = self.told[item.key]
        assert isinstance(told, AskedItem)
        if is_lineage and self.is_on_broker(item, told):
            return Staying.ON_BROKER
        if self.is_young(item):
            return Staying.YOUNG
        if self.terms.limits.floor_ms and self.is_below_floor(item, told):
            return Staying.WITHIN
        if self.is_old(item, told):
            return Going.TIME
        return Going.SIZE if is_lineage and self.is_surplus(items, place) else Staying.WITHIN

    def walk(self, items: Sequence[ListedItem], plan: Plan, *, is_lineage: bool) -> None:
        for place, item in enumerate(items):
            told = self.told[item.key]
            if not isinstance(told, AskedItem):
                plan.stay(told)
                if self.tells_nothing_ends():
                    plan.stay(Staying.BEHIND, len(items) - place - 1)
                    return
                continue
            why = self.own_reason(items, place, is_lineage=is_lineage)
            if why not in {Staying.ON_BROKER, Staying.YOUNG} and not self.has_time(told):
                plan.untimed += 1
            if isinstance(why, Staying):
                plan.stay(why)
                if self.goes_on(why):
                    continue
                plan.stay(Staying.BEHIND, len(items) - place - 1)
                return
            protection = self.protection(item, told)
            if protection is None:
                plan.going.append((item.key, why))
                continue
            plan.stay(protection)
            if self.protection_ends():
                plan.stay(Staying.BEHIND, len(items) - place - 1)
                return

    def parts(self) -> list[tuple[list[ListedItem], bool]]:
        """The lineage; and what each parent has at or above the branch where it was cut back."""
        through = [one for life in self.lineage for one in life.items if life.until is None or one.base < life.until]
        beside = [
            [one for one in life.items if one.base >= life.until] for life in self.lineage if life.until is not None
        ]
        return [(through, True), *((items, False) for items in beside)]

    def plan(self) -> Plan:
        plan = Plan()
        if not all(self.has_end(life) for life in self.lineage):
            plan.stay(Staying.NO_END, sum(len(life.items) for life in self.lineage))
            return plan
        for items, is_lineage in self.parts():
            self.walk(items, plan, is_lineage=is_lineage)
        return plan
