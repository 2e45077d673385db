"""Entries of a role log: each says everything, and is read back as it was written; what cannot be is refused."""

from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.roles import (
    HISTORY,
    MOST_LEFT,
    CompleteCopy,
    EntryType,
    Generation,
    Left,
    RoleEntry,
    RolePlace,
    put_entry,
    read_newest_entry,
)
from archiver.archive.format.control import append_fact, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.errors import CorruptSegmentError
from tests.support.memory_store import MemoryStore

PLACE = RolePlace(topic="t", life=1, partition=2)
A0, B2 = Generation(instance="a", number=0), Generation(instance="b", number=2)
COPY = CompleteCopy(generation=A0, next=7, position=9, is_sure=True)


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), Layout())


def cycle() -> list[RoleEntry]:
    first = entries.begin(None, 0, "a", has_history=False)
    second = entries.switch(first, 1, COPY)
    third = entries.begin(second, 2, "b", has_history=False)
    fourth = entries.switch(third, 3, replace(COPY, generation=B2))
    return [first, second, third, fourth, entries.unsure(fourth, 4, "b"), entries.history(fourth, 5, "plain")]


def test_a_cycle() -> None:
    first, second, third, fourth, fifth, sixth = cycle()
    assert (first.holder, first.open_candidate, first.left) == (None, A0, ())
    assert (second.holder, second.open_candidate, second.switched, second.replaced) == (COPY, None, 1, HISTORY)
    assert (third.holder, third.open_candidate, third.switched) == (COPY, B2, 1)
    assert (fourth.replaced, fourth.switched, fourth.left) == (COPY, 3, (Left(generation=A0, since=3),))
    assert isinstance(fifth.holder, CompleteCopy)
    assert (fifth.holder.is_sure, fifth.broke, fifth.switched) == (False, 4, 3)
    assert (sixth.holder, sixth.replaced, sixth.candidate) == (HISTORY, fourth.holder, None)
    assert {one.generation for one in sixth.left} == {A0, B2}


def test_a_candidate_that_another_replaces_is_left() -> None:
    first = entries.begin(None, 0, "a", has_history=True)
    again = entries.begin(first, 1, "b", has_history=True)
    assert (first.holder, again.holder, again.left) == (HISTORY, HISTORY, (Left(generation=A0, since=1),))


def test_after_a_thousand_turns_entries_are_still_read(archive: Archive) -> None:
    entry = entries.begin(None, 0, "a", has_history=False)
    for number in range(1, 2 * MOST_LEFT + 20, 2):
        held = Generation(instance="a", number=number - 1)
        entry = entries.switch(entry, number, replace(COPY, generation=held))
        entry = entries.begin(entry, number + 1, "a", has_history=False)
    put_entry(archive, PLACE, number + 1, entry)
    found = read_newest_entry(archive, PLACE)
    assert found is not None
    assert (found.entry, len(found.entry.left)) == (entry, MOST_LEFT)
    assert found.entry.left[-1] == Left(generation=Generation(instance="a", number=number - 3), since=number)


def test_each_entry_is_read_as_it_was_written(archive: Archive) -> None:
    assert read_newest_entry(archive, PLACE) is None
    for number, entry in enumerate(cycle()):
        put_entry(archive, PLACE, number, entry)
        found = read_newest_entry(archive, PLACE)
        assert found is not None
        assert (found.number, found.entry, sorted(found.put_at)) == (number, entry, list(range(number + 1)))
    put_entry(archive, PLACE, 3, cycle()[0])  # the number is taken: nothing happens
    assert read_fact(archive, PLACE.stream, 3)["type"] == EntryType.SWITCH


@pytest.mark.parametrize(
    ("number", "member", "value"),
    [
        (0, "partition", 3),
        (0, "candidate", {"instance": "a", "number": 1}),
        (0, "candidate", {"instance": "../a", "number": 0}),
        (0, "candidate", None),
        (1, "switched", None),
        (1, "switched", 2),
        (1, "holder", {"generation": {"instance": "a", "number": 0}, "next": 9, "position": 7, "is_sure": True}),
        (1, "holder", {"generation": {"instance": "a", "number": 0}, "next": -1, "position": 7, "is_sure": True}),
        (1, "holder", "elsewhere/"),
        (1, "type", "swap"),
        (1, "left", [{"generation": {"instance": "a", "number": 5}, "since": 0}]),
        (1, "left", [{"generation": {"instance": "a", "number": 0}, "since": 0}] * 2_000),
    ],
)
def test_what_cannot_be_is_refused(archive: Archive, number: int, member: str, value: object) -> None:
    for one, entry in enumerate(cycle()[: number + 1]):
        put_entry(archive, PLACE, one, entry)
    fact: dict[str, Any] = {**read_fact(archive, PLACE.stream, number), member: value}
    other = Archive(MemoryStore(), Layout())
    for one in range(number):
        append_fact(other, PLACE.stream, lambda _, one=one: read_fact(archive, PLACE.stream, one))  # type: ignore[misc]
    append_fact(other, PLACE.stream, lambda _: fact)
    with pytest.raises(CorruptSegmentError, match="bring its older version back"):
        read_newest_entry(other, PLACE)
