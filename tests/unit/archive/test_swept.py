"""docs/format.md §14: which offsets a sweep took; ranges against sets of single offsets, and the facts that name them."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_OFFSET, Layout
from archiver.archive.notes.swept import (
    MOST_RANGES,
    NOTHING_SWEPT,
    OffsetRanges,
    Range,
    SweptPlace,
    add_swept,
    read_swept,
    spell_ranges,
    take_back_swept,
)
from archiver.errors import ArchiverError, NotWholeError
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("p")
PLACE = SweptPlace("orders", 2, 3)
OFFSETS = 40
pairs = st.tuples(st.integers(0, OFFSETS), st.integers(0, OFFSETS))
piles = st.lists(pairs, max_size=6)


def ranges(*found: Range) -> OffsetRanges:
    return OffsetRanges.of(found)


def offsets(found: Iterable[Range]) -> list[int]:
    return [offset for start, stop in found for offset in range(start, stop)]


def is_normal(found: OffsetRanges) -> bool:
    """In order, none empty, and no two that meet or touch."""
    edges = [edge for one in found.ranges for edge in one]
    return edges == sorted(set(edges))


@given(piles, piles)
def test_ranges_are_sets_of_offsets(some: list[Range], others: list[Range]) -> None:
    first, second = OffsetRanges.of(some), OffsetRanges.of(others)
    one, other = set(offsets(some)), set(offsets(others))
    for found, wanted in (
        (first, one),
        (first.plus(second), one | other),
        (first.minus(second), one - other),
        (second.minus(first), other - one),
    ):
        assert offsets(found.ranges) == sorted(wanted)
        assert is_normal(found)
        assert bool(found) == bool(wanted)
    assert first.plus(second) == second.plus(first)
    assert first.plus(NOTHING_SWEPT) == first.minus(NOTHING_SWEPT) == first


@given(piles, pairs.filter(lambda pair: pair[0] <= pair[1]))
def test_what_lies_within_and_what_lies_outside(some: list[Range], ends: Range) -> None:
    found, window = OffsetRanges.of(some), set(range(*ends))
    assert offsets(found.within(*ends)) == sorted(set(offsets(some)) & window)
    assert offsets(found.outside(*ends)) == sorted(window - set(offsets(some)))


def test_the_largest_offsets_are_offsets() -> None:
    last = ranges((MOST_OFFSET - 1, MOST_OFFSET))
    assert list(last.within(0, MOST_OFFSET)) == [(MOST_OFFSET - 1, MOST_OFFSET)]
    assert list(last.within(MOST_OFFSET - 1, MOST_OFFSET)) == [(MOST_OFFSET - 1, MOST_OFFSET)]
    assert ranges((0, MOST_OFFSET)).minus(last) == ranges((0, MOST_OFFSET - 1))
    assert spell_ranges(ranges((0, 1), (5, 7)).ranges) == "0-0, 5-6"


# --- facts


def test_what_was_swept_is_read_as_it_was_written() -> None:
    archive = Archive(MemoryStore(), LAYOUT)
    assert read_swept(archive, "orders") == {}
    assert add_swept(archive, PLACE, ranges((0, 5), (7, 9))) == ranges((0, 5), (7, 9))
    assert add_swept(archive, PLACE, ranges((5, 7), (20, MOST_OFFSET))) == ranges((0, 9), (20, MOST_OFFSET))
    other = SweptPlace("orders", 0, 3)
    add_swept(archive, other, ranges((1, 2)))
    add_swept(archive, SweptPlace("orders.x", 2, 3), ranges((3, 4)))
    add_swept(archive, SweptPlace("order", 2, 3), ranges((3, 4)))
    assert read_swept(archive, "orders") == {PLACE: ranges((0, 9), (20, MOST_OFFSET)), other: ranges((1, 2))}
    assert take_back_swept(archive, PLACE, ranges((3, 30))) == ranges((0, 3), (30, MOST_OFFSET))
    assert take_back_swept(archive, other, ranges((0, 9))) == NOTHING_SWEPT
    assert read_swept(archive, "orders") == {PLACE: ranges((0, 3), (30, MOST_OFFSET)), other: NOTHING_SWEPT}


def test_what_says_nothing_new_is_not_written() -> None:
    store = MemoryStore()
    archive = Archive(store, LAYOUT)
    assert take_back_swept(archive, PLACE, ranges((3, 30))) == NOTHING_SWEPT
    assert add_swept(archive, PLACE, NOTHING_SWEPT) == NOTHING_SWEPT
    assert store.objects == {}
    for _ in range(3):
        assert add_swept(archive, PLACE, ranges((3, 30))) == ranges((3, 30))
    assert add_swept(archive, PLACE, ranges((4, 9))) == take_back_swept(archive, PLACE, ranges((30, 50)))
    assert list(store.objects) == ["p/control/swept/orders/2/3/000000.json"]


@given(st.lists(st.tuples(st.booleans(), piles), max_size=6))
def test_the_newest_fact_says_all(steps: list[tuple[bool, list[Range]]]) -> None:
    archive, wanted = Archive(MemoryStore(), LAYOUT), set[int]()
    for is_added, pile in steps:
        wanted = wanted | set(offsets(pile)) if is_added else wanted - set(offsets(pile))
        told = (add_swept if is_added else take_back_swept)(archive, PLACE, OffsetRanges.of(pile))
        assert offsets(told.ranges) == sorted(wanted)
    assert offsets(read_swept(archive, "orders").get(PLACE, NOTHING_SWEPT).ranges) == sorted(wanted)


def put_fact(store: MemoryStore, fact: Any, number: int = 0, stream: str = PLACE.stream) -> None:  # noqa: ANN401
    content = fact if isinstance(fact, bytes) else json.dumps(fact).encode()
    store.objects.pop(LAYOUT.fact_key(stream, number), None)
    assert store.put_if_absent(LAYOUT.fact_key(stream, number), content, {}, kind=ObjectKind.FACT)


def fact_of(*found: object, **changed: object) -> dict[str, object]:
    return {"format": 1, "topic": "orders", "life": 2, "partition": 3, "ranges": found, **changed}


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (fact_of([5, 5]), "not in order"),
        (fact_of([0, 5], [5, 9]), "not in order"),
        (fact_of([7, 9], [0, 5]), "not in order"),
        (fact_of([-1, 5]), "a number of at least 0"),
        (fact_of([0, 2**63]), "a number of at most"),
        (fact_of([0, 5], partition=30), "it names something else than its key"),
        (b"{", "not JSON"),
    ],
)
def test_a_fact_that_cannot_be_is_refused_and_nothing_is_written_behind_it(fact: object, why: str) -> None:
    store = MemoryStore()
    put_fact(store, fact)
    archive = Archive(store, LAYOUT)
    for use in (
        lambda: read_swept(archive, "orders"),
        lambda: add_swept(archive, PLACE, ranges((0, 5))),
        lambda: take_back_swept(archive, PLACE, ranges((0, 5))),
    ):
        with pytest.raises(NotWholeError, match=r"^p/control/swept/orders/2/3/.*" + why):
            use()
    assert len(store.objects) == 1


def test_what_others_put_there_is_no_partition() -> None:
    store = MemoryStore()
    archive = Archive(store, LAYOUT)
    add_swept(archive, PLACE, ranges((0, 5)))
    for stream in (
        "swept/orders/2",
        "swept/orders/2/3/4",
        "swept/orders/02/3",
        "swept/orders/2/x",
        "swept/orders/-1/3",
    ):
        put_fact(store, b"{", stream=stream)
    assert read_swept(archive, "orders") == {PLACE: ranges((0, 5))}


def test_as_many_ranges_as_may_be_are_written_and_read() -> None:
    archive = Archive(MemoryStore(), LAYOUT)
    first = MOST_OFFSET - 2 * MOST_RANGES
    most = OffsetRanges(tuple((first + 2 * at, first + 2 * at + 1) for at in range(MOST_RANGES)))
    add_swept(archive, PLACE, most)
    with pytest.raises(ArchiverError, match=r"orders/2/3/: would name 100,001 ranges"):
        add_swept(archive, PLACE, ranges((0, 1)))
    assert read_swept(archive, "orders") == {PLACE: most}
