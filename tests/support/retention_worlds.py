"""Random partitions, with what their objects tell and what decides about them: for retention sweeps."""

import random
from dataclasses import dataclass, replace
from typing import Final

from archiver.upkeep.retention.planning.limits import Limits
from archiver.upkeep.retention.planning.partition_verdict import (
    Answer,
    AskedItem,
    HeldTimes,
    LifeItems,
    ListedItem,
    PartitionTerms,
    PartitionVerdict,
    Staying,
    judge_partition,
)
from tests.support.retention_oracle import Plan

STORE_NOW: Final = 1000  # of all worlds; their objects were put at any time before, and some a little later
MOST: Final = 2**63 - 1
IN_2106: Final = 4_294_967_295_000


@dataclass(frozen=True, kw_only=True)
class World:
    """A partition, what its objects tell when they are asked, and what decides besides."""

    lineage: tuple[LifeItems, ...]
    told: dict[str, Answer]
    terms: PartitionTerms

    @property
    def items(self) -> list[ListedItem]:
        return [one for life in self.lineage for one in life.items]

    def judged(self, **terms: object) -> PartitionVerdict:
        changed = replace(self.terms, **terms)  # type: ignore[arg-type]
        return judge_partition(self.lineage, lambda item: self.told[item.key], changed)

    def going(self, **terms: object) -> set[str]:
        return {one.item.key for one in self.judged(**terms).going}


def as_plan(verdict: PartitionVerdict) -> Plan:
    return Plan(
        going=[(one.item.key, one.why) for one in verdict.going],
        staying=dict(verdict.staying),
        untimed=verdict.untimed,
    )


# --- random worlds


def draw_time(rng: random.Random) -> int:
    """Most are so coarse that they meet limits and each other."""
    odd = (-1, -5, STORE_NOW + 1, 1500, IN_2106, MOST)
    most = rng.choice((300, STORE_NOW))
    return rng.choice((rng.randint(0, most), *[100 * rng.randint(0, most // 100)] * 4, rng.choice(odd)))


def draw_held_times(rng: random.Random) -> HeldTimes:
    first, last = sorted(rng.choice((rng.randint(-10, STORE_NOW), 100 * rng.randint(0, 10), IN_2106)) for _ in range(2))
    return HeldTimes(first if rng.randrange(3) else None, last if rng.randrange(3) else None)


def draw_answer(rng: random.Random, following: int) -> Answer:
    if rng.randrange(15) == 0:
        return rng.choice((Staying.OF_V1, Staying.UNREADABLE))
    first, last = sorted([draw_time(rng), draw_time(rng)]) if rng.randrange(10) else (-1, -1)
    topic_id = "" if rng.randrange(12) == 0 else "T"
    source_bytes = rng.choice((*[rng.randint(0, 9)] * 5, rng.randint(90, 210), MOST))
    return AskedItem(following, first, last, source_bytes, 1, rng.randrange(10) == 0, topic_id)


def draw_ranges(rng: random.Random, start: int) -> dict[tuple[int, int | None], int]:
    """Objects one behind the other, with a gap now and then, merged runs of them, and what zombies have put.

    By base, and `next` where the name tells it: where each ends.
    """
    position, plain = start, list[tuple[int, int]]()
    for _ in range(rng.randint(0, 6)):
        position += rng.choice((0, 0, 0, 0, 3))
        plain.append((position, position + rng.randint(1, 6)))
        position = plain[-1][1]
    found: dict[tuple[int, int | None], int] = {(base, None): stop for base, stop in plain}
    for _ in range(rng.choice((0, 0, 0, 1, 2)) if plain else 0):
        first, last = sorted(rng.randrange(len(plain)) for _ in range(2))
        found[plain[first][0], plain[last][1]] = plain[last][1]
        if rng.randrange(2):
            for base, _ in plain[first : last + 1]:
                found.pop((base, None), None)
    if rng.randrange(4) == 0:
        base = rng.randint(0, 40)
        found.setdefault((base, None), base + rng.randint(1, 9))
    return found


def draw_life(rng: random.Random, number: int, start: int, until: int | None, told: dict[str, Answer]) -> LifeItems:
    items = []
    ranges = draw_ranges(rng, start).items()
    for (base, named), stop in sorted(ranges, key=lambda one: (one[0][0], -one[1], one[0][1] is None)):
        key = f"{number}/{base}{'' if named is None else f'-{named}'}"
        put_ms = rng.choice((rng.randint(0, 300), 100 * rng.randint(0, 10), STORE_NOW + 5))
        size = rng.choice((1, 1, 1, 0, 2))
        items.append(ListedItem(life=number, key=key, base=base, named_next=named, size=size, put_ms=put_ms))
        told[key] = draw_answer(rng, stop)
    return LifeItems(life=number, items=items, until=until)


def draw_world(rng: random.Random) -> World:
    branches = sorted({rng.randint(1, 25) for _ in range(rng.randint(0, 2))})
    told: dict[str, Answer] = {}
    lineage = tuple(
        draw_life(rng, number, start, until, told)
        for number, (start, until) in enumerate(zip([0, *branches], [*branches, None], strict=True))
    )
    return World(
        lineage=lineage,
        told=told,
        terms=PartitionTerms(
            limits=Limits(
                ms=rng.choice((None, 0, MOST, rng.randint(0, 400), 100 * rng.randint(0, 12), 100 * rng.randint(0, 6))),
                bytes=rng.choice((None, 0, MOST, rng.randint(0, 30), rng.randint(0, 30), rng.randint(80, 420))),
                floor_ms=rng.choice((0, 0, 0, 100 * rng.randint(0, 12), rng.randint(0, 600), MOST)),
            ),
            now_ms=rng.choice((STORE_NOW, STORE_NOW, STORE_NOW - 300, STORE_NOW + 700)),
            store_now_ms=STORE_NOW,
            min_age_ms=rng.choice((0, 1, 100, 500)),
            log_start=rng.choice((None, rng.randint(0, 60))),
            holds=tuple(draw_held_times(rng) for _ in range(rng.choice((0, 0, 0, 1, 2)))),
            topic_id="" if rng.randrange(20) == 0 else "T",
            pinned=frozenset(rng.sample(sorted(told), min(len(told), rng.choice((0, 0, 1, 2))))),
        ),
    )
