"""docs/format.md §8: by which limits sweeps last deleted."""

import json
from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.applied_limits import AppliedLimits, LimitSource, change_applied, read_applied
from archiver.errors import NotWholeError
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("p")
WEEK = AppliedLimits(topic="orders", life=0, whose=LimitSource.TOPIC, ms=604_800_000, bytes=None, floor_ms=5)


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), LAYOUT)


def note(archive: Archive, applied: AppliedLimits) -> None:
    change_applied(archive, applied.stream, lambda _: applied)


def count(archive: Archive) -> int:
    assert isinstance(archive.store, MemoryStore)
    return len(archive.store.objects)


def test_the_newest_is_read_of_each_life_and_of_each_kind_of_limits(archive: Archive) -> None:
    assert read_applied(archive, "orders") == {}
    for one in (WEEK, WEEK, replace(WEEK, ms=7), replace(WEEK, whose=LimitSource.GONE), replace(WEEK, life=3), WEEK):
        note(archive, one)
    note(archive, replace(WEEK, topic="orders.x", ms=1))
    assert read_applied(archive, "orders") == {
        (0, LimitSource.TOPIC): WEEK,
        (0, LimitSource.GONE): replace(WEEK, whose=LimitSource.GONE),
        (3, LimitSource.TOPIC): replace(WEEK, life=3),
    }
    assert count(archive) == 6  # what is noted already is not noted again


def test_a_multiple_of_the_largest_number_can_be_read(archive: Archive) -> None:
    for _ in range(2):
        note(archive, replace(WEEK, ms=1000 * (2**63 - 1), bytes=2**63))
    (found,) = read_applied(archive, "orders").values()
    assert (found.ms, found.bytes) == (2**63 - 1, 2**63 - 1)
    assert count(archive) == 1


def fact_of(**changed: object) -> dict[str, Any]:
    fact = {"format": 1, "topic": "orders", "life": 0, "whose": "topic", "ms": 5, "bytes": None, "floor_ms": 0}
    return {**fact, **changed}


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (fact_of(topic="payments"), "it names something else than its key"),
        (fact_of(whose="mine"), "'mine' where something else was to come"),
        (fact_of(ms=-1), "a number of at least 0"),
    ],
)
def test_a_fact_that_cannot_be_is_refused_and_nothing_is_written_behind_it(
    archive: Archive, fact: object, why: str
) -> None:
    key = LAYOUT.fact_key("sweeps/limits/orders/0/topic", 0)
    assert archive.store.put_if_absent(key, json.dumps(fact).encode(), {}, kind=ObjectKind.FACT)
    with pytest.raises(NotWholeError, match=r"^p/control/sweeps/limits/orders/0/topic/.*" + why):
        read_applied(archive, "orders")
    with pytest.raises(NotWholeError, match=why):
        note(archive, WEEK)
    assert count(archive) == 1
