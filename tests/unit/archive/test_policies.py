"""docs/format.md §8: what topics kept, and since when that was seen."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.policies import NotedPolicy, note_policy, read_policies
from archiver.errors import NotWholeError
from archiver.store.port import ObjectKind, ObjectStore
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("p")
WEEK = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}
PURGE = {**WEEK, "retention.ms": "1000"}
FIRST_MS = 1_767_225_600_000  # of the store's clock; each put is a second later
HOUR_MS = 3_600_000


def seen(effective: dict[str, str], since_ms: int, topic_id: str = "T1") -> NotedPolicy:
    """`since_ms`: counted from after all puts of these tests."""
    return NotedPolicy(topic="orders", topic_id=topic_id, effective=effective, since_ms=FIRST_MS + HOUR_MS + since_ms)


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), LAYOUT)


def history(archive: Archive, topic_id: str = "T1") -> list[NotedPolicy]:
    return list(read_policies(archive, "orders", topic_id))


def count(archive: Archive) -> int:
    assert isinstance(archive.store, MemoryStore)
    return len(archive.store.objects)


def test_a_policy_is_noted_when_it_changes(archive: Archive) -> None:
    assert history(archive) == []
    for effective, since_ms in ((WEEK, 100), (WEEK, 200), (PURGE, 300), (PURGE, 400), (WEEK, 500)):
        note_policy(archive, seen(effective, since_ms))
    assert history(archive) == [seen(WEEK, 100), seen(PURGE, 300), seen(WEEK, 500)]
    assert count(archive) == 3


def test_a_topic_that_was_recreated_has_a_history_of_its_own(archive: Archive) -> None:
    note_policy(archive, seen(WEEK, 100))
    note_policy(archive, seen(PURGE, 200, "T2"))
    assert history(archive) == [seen(WEEK, 100)]
    assert history(archive, "T2") == [seen(PURGE, 200, "T2")]
    assert history(archive, "T3") == []
    assert list(read_policies(archive, "orders.x", "T1")) == []
    note_policy(archive, replace(seen(WEEK, 1), topic="orders.x"))
    assert len(history(archive)) == 1


def test_a_clock_that_was_put_back_makes_no_policy_older(archive: Archive) -> None:
    note_policy(archive, seen(WEEK, 100))
    note_policy(archive, seen(PURGE, 50))
    assert history(archive) == [seen(WEEK, 100), seen(PURGE, 100)]


def test_a_policy_counts_from_no_earlier_than_it_was_put(archive: Archive) -> None:
    """Else whoever may put one could say that the grace is over. One that says later is believed: more is kept."""
    for effective, since_ms in ((WEEK, -HOUR_MS - FIRST_MS), (PURGE, -10 * HOUR_MS), (WEEK, 5), (PURGE, -HOUR_MS)):
        put_fact(archive.store, fact_of(effective=effective, since_ms=seen(WEEK, since_ms).since_ms), count(archive))
    told = [one.since_ms - FIRST_MS for one in history(archive)]
    assert told == [1000, 2000, HOUR_MS + 5, 4000]


def test_a_policy_counts_from_the_second_in_which_it_was_put(archive: Archive) -> None:
    """A sweep later in this second must not find that it begins in the future: the store's clock has whole seconds."""
    assert isinstance(archive.store, MemoryStore)
    put_fact(archive.store, fact_of(since_ms=0))
    ((key, found),) = archive.store.objects.items()
    archive.store.objects[key] = replace(found, last_modified=found.last_modified + timedelta(milliseconds=999))
    assert [one.since_ms - FIRST_MS for one in history(archive)] == [1000]


def test_a_policy_counts_from_no_earlier_than_those_before_it_were_put(archive: Archive) -> None:
    """A number that is free may be put before a lower one."""
    put_fact(archive.store, fact_of(effective=PURGE, since_ms=0), 7)
    put_fact(archive.store, fact_of(since_ms=0), 6)
    assert [one.since_ms - FIRST_MS for one in history(archive)] == [2000, 2000]


def fact_of(**changed: object) -> dict[str, Any]:
    return {
        "format": 1,
        "topic": "orders",
        "topic_id": "T1",
        "effective": WEEK,
        "since_ms": seen(WEEK, 100).since_ms,
        **changed,
    }


def put_fact(store: ObjectStore, fact: object, number: int = 0) -> None:
    content = fact if isinstance(fact, bytes) else json.dumps(fact).encode()
    assert store.put_if_absent(LAYOUT.fact_key("policies/orders", number), content, {}, kind=ObjectKind.FACT)


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (fact_of(topic="payments"), "it names something else than its key"),
        (fact_of(since_ms=-1), "a number of at least 0"),
        (fact_of(effective={"retention.ms": 1}), "a text"),
        (fact_of(effective={str(number): "1" for number in range(11)}), "was to come"),
        (b"{", "not JSON"),
    ],
)
@pytest.mark.parametrize("is_newest", [True, False])
def test_a_fact_that_cannot_be_is_refused(fact: object, why: str, is_newest: bool) -> None:
    """Also one from before: what it kept may still count. Nothing is written behind one that is the newest."""
    store = MemoryStore()
    put_fact(store, fact, 0)
    if not is_newest:
        put_fact(store, fact_of(), 1)
    archive = Archive(store, LAYOUT)
    with pytest.raises(NotWholeError, match=r"^p/control/policies/orders/.*" + why):
        read_policies(archive, "orders", "T1")
    if is_newest:
        with pytest.raises(NotWholeError, match=why):
            note_policy(archive, seen(PURGE, 300))
        assert len(store.objects) == 1
