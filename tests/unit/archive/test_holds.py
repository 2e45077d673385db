"""docs/format.md §8: holds, and that none is lost, none is added twice, and none that cannot be read is passed over."""

import json
import random
from dataclasses import asdict, replace
from typing import Any

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.holds import Hold, add_hold, read_holds, release_hold
from archiver.errors import NotWholeError, UsageError
from archiver.store.port import ObjectKind
from tests.support.json_mutations import bend
from tests.support.memory_store import MemoryStore
from tests.support.racing_store import RacingStore

LAYOUT = Layout("p")
CASE = Hold(name="case-7", topics="orders*", from_ms=5, until_ms=9, reason="a case", by="Ann", added_ms=100)


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), LAYOUT)


def put_fact(store: MemoryStore, fact: object, stream: str = "holds/case-7", number: int = 0) -> None:
    content = fact if isinstance(fact, bytes) else json.dumps(fact).encode()
    assert store.put_if_absent(LAYOUT.fact_key(stream, number), content, {}, kind=ObjectKind.FACT)


def fact_of(**changed: object) -> dict[str, Any]:
    return {"format": 1, **asdict(CASE), **changed}


def test_all_holds_are_read_also_released_ones(archive: Archive) -> None:
    assert read_holds(archive) == {}
    other = replace(CASE, name="a.case", from_ms=None, until_ms=None)
    add_hold(archive, CASE)
    add_hold(archive, other)
    released = release_hold(archive, "case-7", by="Bob", now_ms=200)
    assert released == replace(CASE, released_ms=200, released_by="Bob")
    assert read_holds(archive) == {"a.case": other, "case-7": released}
    assert [one.is_in_force for one in (CASE, released)] == [True, False]


@pytest.mark.parametrize(
    ("names", "matching", "others"),
    [
        ("*", ["a", "__consumer_offsets"], []),
        ("a.b", ["a.b"], ["axb", "a.bc", "a"]),
        ("a,b*", ["a", "b", "bc"], ["ab", "a,b"]),
        ("a*a", ["aa", "aba"], ["a", "ab"]),
        ("*-eu-*.v1", ["x-eu-y.v1", "-eu-.v1", "-eu--eu-.v1"], ["x-eu.v1", "x-eu-y.v10"]),
        ("*ab*ab*", ["abab", "xabyabz"], ["ab", "aba"]),
    ],
)
def test_names_of_topics_have_stars_and_nothing_else(names: str, matching: list[str], others: list[str]) -> None:
    hold = replace(CASE, topics=names)
    assert [one for one in (*matching, *others) if hold.matches(one)] == matching


def test_no_name_takes_long_to_match() -> None:
    """A regular expression like that would not end before the sun does."""
    hold = replace(CASE, topics=",".join(["a*" * 100 + "b"] * 10))
    assert not any(hold.matches("a" * 249) for _ in range(1000))


def test_a_name_is_used_once(archive: Archive) -> None:
    add_hold(archive, CASE)
    add_hold(archive, replace(CASE, added_ms=101))  # the same again: somebody repeats what had no answer
    assert isinstance(archive.store, MemoryStore)
    assert len(archive.store.objects) == 1
    with pytest.raises(UsageError, match="case-7: there is, or was, a hold of this name"):
        add_hold(archive, replace(CASE, topics="payments"))
    release_hold(archive, "case-7", by="Bob", now_ms=200)
    with pytest.raises(UsageError, match="case-7: there is, or was, a hold of this name"):
        add_hold(archive, CASE)
    assert read_holds(archive)["case-7"].topics == "orders*"


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "a/b", "a b", "é", "x" * 65, "a\n"])
def test_a_name_that_cannot_stand_in_a_key_is_refused(archive: Archive, name: str) -> None:
    with pytest.raises(UsageError, match="a hold's name is"):
        add_hold(archive, replace(CASE, name=name))
    assert read_holds(archive) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"reason": "x" * 2049},
        {"from_ms": -(2**63), "until_ms": None},
        {"added_ms": -1},
    ],
)
def test_what_nobody_could_read_again_is_not_written(archive: Archive, changed: dict[str, Any]) -> None:
    """A fact that cannot be read ends all sweeps for ever."""
    with pytest.raises(UsageError, match=r"case-7: .* where .* was to come"):
        add_hold(archive, replace(CASE, **changed))
    add_hold(archive, CASE)
    for by, now_ms in (("x" * 2049, 200), ("Bob", -1)):
        with pytest.raises(UsageError, match=r"case-7: .* where .* was to come"):
            release_hold(archive, "case-7", by=by, now_ms=now_ms)
    assert read_holds(archive) == {"case-7": CASE}


@pytest.mark.parametrize("topics", ["(a+)+b", ".*", "orders|payments", "a, b", "a,", "é", "a\n", "orders,.*"])
def test_topics_that_are_no_names_are_refused(topics: str) -> None:
    """A hold that cannot be evaluated keeps everything."""
    with pytest.raises(ValueError, match="no regular expression is taken"):
        replace(CASE, topics=topics)
    store = MemoryStore()
    put_fact(store, fact_of(topics=topics))
    with pytest.raises(NotWholeError, match=r"no regular expression is taken.*nothing is swept"):
        read_holds(Archive(store, LAYOUT))


def test_times_that_end_before_they_begin_are_refused() -> None:
    with pytest.raises(ValueError, match="it ends before it begins"):
        replace(CASE, from_ms=10)
    assert replace(CASE, from_ms=9).is_in_force


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (fact_of(name="case-8"), "it names something else than its key"),
        (fact_of(from_ms=10), "it ends before it begins"),
        (fact_of(released_ms=-1), "a number of at least"),
        ({name: value for name, value in fact_of().items() if name != "topics"}, "topics is missing"),
        (b"{", "not JSON"),
    ],
)
def test_a_hold_that_cannot_be_read_holds_everything_up(fact: object, why: str) -> None:
    store = MemoryStore()
    archive = Archive(store, LAYOUT)
    add_hold(archive, replace(CASE, name="another"))
    put_fact(store, fact)
    for use in (lambda: read_holds(archive), lambda: release_hold(archive, "case-7", by="Bob", now_ms=200)):
        with pytest.raises(NotWholeError, match=r"^p/control/holds/case-7/.*" + why):
            use()


def test_a_hold_is_never_released_by_damage(seed: int) -> None:
    """Members that have no default are there and are right, or the fact is refused. What may be left out, holds more."""
    rng = random.Random(seed)
    refused = 0
    for _ in range(200):
        store = MemoryStore()
        bent = bend(rng, {name: value for name, value in fact_of().items() if not name.startswith("released")})
        put_fact(store, bent.encode())
        try:
            (found,) = read_holds(Archive(store, LAYOUT)).values()
        except NotWholeError:
            refused += 1
        else:
            assert found.name == "case-7"
            assert found.is_in_force
    assert refused > 50


# --- releasing


def test_a_hold_that_is_not_there_cannot_be_released(archive: Archive) -> None:
    with pytest.raises(UsageError, match="case-7: there is no such hold"):
        release_hold(archive, "case-7", by="Bob", now_ms=200)
    assert read_holds(archive) == {}


def test_who_released_first_has_released_it(archive: Archive) -> None:
    add_hold(archive, CASE)
    first = release_hold(archive, "case-7", by="Bob", now_ms=200)
    assert release_hold(archive, "case-7", by="Eve", now_ms=300) == first
    store = RacingStore()
    raced = Archive(store, LAYOUT)
    add_hold(raced, CASE)
    store.before = [lambda: release_hold(raced, "case-7", by="Eve", now_ms=199)]
    assert release_hold(raced, "case-7", by="Bob", now_ms=200).released_by == "Eve"
    assert len(store.objects) == 2


def test_a_hold_of_no_topic_is_refused() -> None:
    """As a script gives it whose variable is not set: who wanted a hold would believe to have one."""
    archive = Archive(MemoryStore(), Layout())
    with pytest.raises(UsageError, match=r"^h: --topics is empty"):
        add_hold(archive, Hold(name="h", topics="", reason="r", by="b", added_ms=0))
    assert not read_holds(archive)
