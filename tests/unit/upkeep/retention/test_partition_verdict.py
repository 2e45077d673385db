"""What goes of a partition, against a slow reading of the rules (tests/support/retention_oracle.py); and broken copies of that."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archiver.archive.format.layout import MOST_OFFSET
from archiver.upkeep.retention.planning.limits import Limits
from archiver.upkeep.retention.planning.partition_verdict import (
    Answer,
    AskedItem,
    HeldTimes,
    LifeItems,
    ListedItem,
    PartitionTerms,
    Staying,
    judge_partition,
    newest_of,
    remembering,
)
from tests.support.retention_oracle import Plan, Rules
from tests.support.retention_worlds import IN_2106, STORE_NOW, World, as_plan, draw_world

MANY: Final = 2000
SIZE: Final = 10  # of objects of examples, as stored
PASSED_OVER: Final = {
    Staying.NEWEST,
    Staying.HELD,
    Staying.LOCKED,
    Staying.PINNED,
    Staying.UNPROVEN,
    Staying.OF_V1,
    Staying.UNREADABLE,
}


def worlds() -> st.SearchStrategy[World]:
    return st.randoms(use_true_random=False).map(draw_world)


def check_plan(world: World) -> None:
    """Why an object stays is told by its name alone, where that is enough: then what it would have told is not asked."""
    found = world.judged()
    verdict, expected = as_plan(found), Rules(world.lineage, world.told, world.terms).plan()
    assert all(one.told == world.told[one.item.key] for one in found.going)
    assert sum(verdict.staying.values()) + len(verdict.going) == len(world.items)
    start = world.terms.log_start
    if start is None or all(one.base < start for one in world.items):
        assert verdict.going == expected.going
        if not world.terms.limits.keeps_all:
            assert verdict == expected
    else:  # what lies above the log start by its name ends the walk, also where it would have been passed over
        assert verdict.going == expected.going[: len(verdict.going)]


@settings(max_examples=200)
@given(worlds())
def test_the_plan_is_what_the_rules_say(world: World) -> None:
    check_plan(world)


def test_the_plan_is_what_the_rules_say_of_many_worlds(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(2 * MANY):
        check_plan(draw_world(rng))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_plan_is_what_the_rules_say_of_very_many_worlds(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300_000):
        check_plan(draw_world(rng))


# --- what holds whatever the rules


def test_nothing_goes_that_a_writer_needs_or_that_the_broker_has(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(MANY):
        world = draw_world(rng)
        for one in world.judged().going:
            life = world.lineage[one.item.life]
            answers = [world.told[other.key] for other in life.items]
            assert one.item.key not in {last.key for last in newest_of(life.items) if last.named_next is None}
            assert one.told.next < max(told.next for told in answers if isinstance(told, AskedItem))
            start = world.terms.log_start
            is_above = life.until is not None and life.until < one.told.next  # of another log
            assert start is None or one.told.next <= start or is_above
            assert world.terms.store_now_ms - one.item.put_ms >= world.terms.min_age_ms
            assert one.told.topic_id == world.terms.topic_id


def test_few_objects_are_asked_and_none_twice(seed: int) -> None:
    """Of each walk those that go, those that are passed over, one more, and the ends; where nothing is counted by size."""
    rng = random.Random(seed)
    for _ in range(MANY):
        world = draw_world(rng)
        asked: list[str] = []

        def ask(item: ListedItem, told: dict[str, Answer] = world.told, asked: list[str] = asked) -> Answer:
            asked.append(item.key)
            return told[item.key]

        by_time = replace(world.terms, limits=replace(world.terms.limits, bytes=None))
        verdict = judge_partition(world.lineage, remembering(ask), by_time)
        assert len(asked) == len(set(asked))
        ends = {one.key for life in world.lineage for one in newest_of(life.items)}
        walks = 0 if Staying.NO_END in verdict.staying else 1 + sum(one.until is not None for one in world.lineage)
        passed_over = sum(count for why, count in verdict.staying.items() if why in PASSED_OVER)
        assert len(set(asked) - ends) <= len(verdict.going) + passed_over + walks, world
        assert {one.item.key for one in verdict.going} <= set(asked)


# --- what tells the rules


def item(base: int, put_ms: int = 0, *, life: int = 0, named_next: int | None = None) -> ListedItem:
    key = f"{life}/{base}{'' if named_next is None else f'-{named_next}'}"
    return ListedItem(life=life, key=key, base=base, named_next=named_next, size=SIZE, put_ms=put_ms)


def tells(following: int, at_ms: int = 0, source_bytes: int = 10) -> AskedItem:
    return AskedItem(following, at_ms, at_ms, source_bytes, 1)


def terms(**changed: object) -> PartitionTerms:
    plain = PartitionTerms(
        limits=Limits(ms=100), now_ms=STORE_NOW, store_now_ms=STORE_NOW, min_age_ms=1, log_start=None
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


def world_of(*items: tuple[ListedItem, Answer], until: int | None = None, **changed: object) -> World:
    numbers = sorted({one.life for one, _ in items})
    return World(
        lineage=tuple(
            LifeItems(
                life=life,
                items=[one for one, _ in items if one.life == life],
                until=until if life < numbers[-1] else None,
            )
            for life in numbers
        ),
        told={one.key: told for one, told in items},
        terms=terms(**changed),
    )


def test_of_records_that_compress_better_no_more_is_stored_than_the_limit(seed: int) -> None:
    """What counts less than its `source-bytes` is not kept for ever."""
    rng = random.Random(seed)
    for _ in range(MANY // 10):
        ends = sorted(rng.sample(range(1, 1000), 20))
        sized = [replace(item(base), size=rng.randint(1, 50)) for base in [0, *ends[:-1]]]
        objects = [
            (one, tells(end, source_bytes=one.size * rng.randint(1, 5000)))
            for one, end in zip(sized, ends, strict=True)
        ]
        world = world_of(*objects, limits=Limits(bytes=rng.randint(1, 2000)))
        kept = [one.size for one, _ in objects if one.key not in world.going()]
        assert sum(kept[1:]) < (world.terms.limits.bytes or 0) or len(kept) == 1


def test_an_object_of_2106_counts_by_when_it_was_put() -> None:
    told = world_of((item(0, 10), tells(10, IN_2106)), (item(10, 10), tells(20, -1)), (item(20), tells(30))).judged()
    assert [one.item.key for one in told.going] == ["0/0", "0/10"]
    assert told.untimed == 2
    late = world_of((item(0, STORE_NOW - 100), tells(10, IN_2106)), (item(10), tells(20)))
    assert as_plan(late.judged()) == Plan(staying={Staying.WITHIN: 1, Staying.BEHIND: 1}, untimed=1)


# --- broken copies of the rules: a random world tells each from the plan


class HighestBaseGoes(Rules):
    """Only what reaches furthest is needed."""

    def is_newest(self, item: ListedItem, told: AskedItem) -> bool:
        sources = [self.told[one.key] for one in self.position_sources(self.lives[item.life])]
        return told.next >= max(one.next for one in sources if isinstance(one, AskedItem))


class NewestGoes(Rules):
    """The newest object goes like any other."""

    def is_newest(self, item: ListedItem, told: AskedItem) -> bool:
        del item, told
        return False


class ProtectedKeepsAll(Rules):
    """What is held keeps all behind it."""

    def protection_ends(self) -> bool:
        return True


class UnreadableKeepsAll(Rules):
    """What tells nothing keeps all behind it."""

    def tells_nothing_ends(self) -> bool:
        return True


class AnyOldOneGoes(Rules):
    """An old object between new ones goes."""

    def goes_on(self, why: Staying) -> bool:
        return why is Staying.WITHIN


class BrokersGoesOn(Rules):
    """What the broker still has does not keep what comes behind it."""

    def goes_on(self, why: Staying) -> bool:
        return why is Staying.ON_BROKER


class BrokerIgnored(Rules):
    """What the broker still has goes."""

    def is_on_broker(self, item: ListedItem, told: AskedItem) -> bool:
        del item, told
        return False


class BrokerByBase(Rules):
    """What begins below the log start goes."""

    def is_on_broker(self, item: ListedItem, told: AskedItem) -> bool:
        del told
        return self.terms.log_start is not None and item.base >= self.terms.log_start


class SmallestTimestamp(Rules):
    """The oldest record decides."""

    def is_old(self, item: ListedItem, told: AskedItem) -> bool:
        return super().is_old(item, told._replace(max_timestamp=told.min_timestamp))


class AsOldAsTheLimit(Rules):
    """What is exactly as old as the limit goes."""

    def is_old(self, item: ListedItem, told: AskedItem) -> bool:
        newest = told.max_timestamp if self.has_time(told) else item.put_ms
        return self.terms.limits.ms is not None and newest <= self.terms.now_ms - self.terms.limits.ms


class NoFloor(Rules):
    """However young a record is, it goes by the limits."""

    def is_below_floor(self, item: ListedItem, told: AskedItem) -> bool:
        del item, told
        return False


class AsOldAsTheFloor(Rules):
    """What is exactly as old as the floor stays."""

    def is_below_floor(self, item: ListedItem, told: AskedItem) -> bool:
        newest = told.max_timestamp if self.has_time(told) else item.put_ms
        return newest >= self.terms.now_ms - self.terms.limits.floor_ms


class FutureBelieved(Rules):
    """A record of 2106 keeps its object until then."""

    def has_time(self, told: AskedItem) -> bool:
        return told.max_timestamp >= 0


class NoTimeIsOld(Rules):
    """A record without a time is older than any."""

    def has_time(self, told: AskedItem) -> bool:
        return told.max_timestamp <= self.terms.store_now_ms


class YoungByNow(Rules):
    """The age of an object is counted by whatever clock the sweep was given."""

    def is_young(self, item: ListedItem) -> bool:
        return self.terms.now_ms - item.put_ms < self.terms.min_age_ms


class HeldByNewest(Rules):
    """A hold looks at the newest record alone."""

    def is_of_held_time(self, hold: HeldTimes, told: AskedItem) -> bool:
        return super().is_of_held_time(hold, told._replace(min_timestamp=told.max_timestamp))


class UnknownIsTheSame(Rules):
    """An object without a topic id is of the topic that the notes name."""

    def is_proven(self, told: AskedItem) -> bool:
        return "" in {told.topic_id, self.terms.topic_id} or super().is_proven(told)


class TimelessUnheld(Rules):
    """A record without a time is on no hold with times."""

    def is_of_held_time(self, hold: HeldTimes, told: AskedItem) -> bool:
        first = told.min_timestamp if hold.from_ms is None else max(hold.from_ms, told.min_timestamp)
        last = told.max_timestamp if hold.until_ms is None else min(hold.until_ms, told.max_timestamp)
        return first <= last


class CountsItself(Rules):
    """An object counts towards what must lie behind it."""

    def is_surplus(self, items: Sequence[ListedItem], place: int) -> bool:
        if self.terms.limits.bytes is None:
            return False
        parts = (self.counted_bytes(items[at], items[at + 1 :]) for at in range(place, len(items)))
        return sum(parts) >= self.terms.limits.bytes


class CountsTwice(Rules):
    """What lies in two objects counts twice."""

    def counted_bytes(self, item: ListedItem, later: Sequence[ListedItem]) -> int:
        del later
        return super().counted_bytes(item, [])


class BelievesAll(Rules):
    """An object counts for as much as it tells."""

    def believed_bytes(self, item: ListedItem, told: AskedItem) -> int:
        del item
        return told.source_bytes


class CountsAboveTheBranch(Rules):
    """What a parent has above the branch counts."""

    def counted_bytes(self, item: ListedItem, later: Sequence[ListedItem]) -> int:
        until = self.lives[item.life].until
        self.lives[item.life] = replace(self.lives[item.life], until=None)
        counted = super().counted_bytes(item, later)
        self.lives[item.life] = replace(self.lives[item.life], until=until)
        return counted


class EachLifeForItself(Rules):
    """Each life is walked by itself."""

    def parts(self) -> list[tuple[list[ListedItem], bool]]:
        (through, _), *beside = super().parts()
        return [*(([one for one in through if one.life == life], True) for life in self.lives), *beside]


class BesideBySize(Rules):
    """What lies above a branch is counted as if it were a log."""

    def parts(self) -> list[tuple[list[ListedItem], bool]]:
        return [(items, True) for items, _ in super().parts()]


class UnknownEndIsAnEnd(Rules):
    """A partition whose end cannot be read is swept up to where the others end."""

    def has_end(self, life: LifeItems) -> bool:
        told = [self.told[one.key] for one in self.position_sources(life)]
        return not told or any(isinstance(one, AskedItem) for one in told)


MUTANTS: Final[tuple[type[Rules], ...]] = (
    HighestBaseGoes, NewestGoes, ProtectedKeepsAll, UnreadableKeepsAll, AnyOldOneGoes, BrokersGoesOn, BrokerIgnored, BrokerByBase,
    SmallestTimestamp, AsOldAsTheLimit, NoFloor, AsOldAsTheFloor, FutureBelieved, NoTimeIsOld,
    YoungByNow, HeldByNewest, UnknownIsTheSame, TimelessUnheld, CountsItself, CountsTwice, BelievesAll, CountsAboveTheBranch, EachLifeForItself, BesideBySize, UnknownEndIsAnEnd,
)  # fmt: skip


@pytest.mark.parametrize("rules", MUTANTS)
def test_a_broken_copy_is_found_out(rules: type[Rules], seed: int) -> None:
    """By what goes alone, and not by the reasons that are told."""
    rng = random.Random(seed)
    for number in range(20_000):
        world = draw_world(rng)
        broken = rules(world.lineage, world.told, world.terms).plan()
        if as_plan(world.judged()).going != broken.going:
            print(f"{rules.__doc__} Found in world {number}: {world}, {broken}")
            return
    pytest.fail("nothing tells it from the plan")


def test_offsets_are_as_large_as_they_may_be() -> None:
    first, last = (item(0), tells(MOST_OFFSET - 1)), (item(MOST_OFFSET - 1), tells(MOST_OFFSET))
    assert world_of(first, last, log_start=MOST_OFFSET - 1).going() == {"0/0"}
    assert world_of(first, last, log_start=MOST_OFFSET - 2).going() == set()
