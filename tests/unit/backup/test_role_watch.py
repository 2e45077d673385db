"""Which partitions a plain backup leaves, and when what it archives is read again: told by role logs and objects in memory."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.roles import (
    HISTORY,
    CompleteCopy,
    Generation,
    RoleEntry,
    RolePlace,
    put_entry,
    read_newest_entry,
)
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey, Layout, SegmentKey, offsets_name
from archiver.archive.notes.swept import OffsetRanges, SweptPlace, add_swept
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch, TopicFact
from archiver.backup.opening import history_return, role_watch
from archiver.backup.opening.history_return import ReturnOutcome, take_back
from archiver.backup.opening.role_watch import RoleWatch
from archiver.errors import StoreError, StoreTemporaryError
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

A0, B2 = Generation(instance="a", number=0), Generation(instance="b", number=2)
COPY = CompleteCopy(generation=A0, next=7, position=9, is_sure=True)
BEGUN = entries.begin(None, 0, "a", has_history=True)
SWITCHED = entries.switch(BEGUN, 1, COPY)
NEXT_BEGUN = entries.begin(SWITCHED, 2, "b", has_history=True)
RETURNED = entries.history(SWITCHED, 2, "topics/")
LOGGER = "archiver.backup.opening.role_watch"


class Here:
    async def call(self, work: Callable[..., Any], *given: Any) -> Any:  # noqa: ANN401
        return work(*given)


class RefusingStore(MemoryStore):
    error: Exception | None = None

    def list(self, prefix: str, start_after: str = "") -> Iterator[Any]:
        if self.error is not None and "/roles/" in f"/{prefix}":
            raise self.error
        return super().list(prefix, start_after)


@dataclass
class Site:
    store: RefusingStore = field(default_factory=RefusingStore)

    def __post_init__(self) -> None:
        self.archive = Archive(self.store, Layout())

    def watch(self, *, is_enabled: bool = True) -> RoleWatch:
        return RoleWatch(self.archive, cast("Any", Here()), is_enabled=is_enabled)

    def log(self, partition: int, *logged: RoleEntry, life: int = 0, topic: str = "t") -> None:
        """Put entries; the last one decides."""
        for number, entry in enumerate(logged):
            put_entry(self.archive, RolePlace(topic=topic, life=life, partition=partition), number, entry)

    def record(self, policy: str | None = "compact", topic_id: str = "A") -> TopicFact:
        effective = {} if policy is None else {"cleanup.policy": policy}
        return record_topic(
            self.archive, topic="t", topic_id=topic_id, cluster_id="c", partitions=4, configs={}, effective=effective
        )

    def put(self, base: int, following: int, *, life: int = 0, copy: Generation | None = None, **facts: Any) -> str:  # noqa: ANN401
        layout = self.archive.layout
        key = layout.segment_key(SegmentKey(topic="t", life=life, partition=0, base=base))
        if copy is not None:
            of = CopyKey(instance=copy.instance, topic="t", life=life, partition=0, generation=copy.number)
            key = f"{layout.copy_prefix(of)}t+0-{offsets_name(base, None)}"
        metadata = replace(facts_of(base, following), **facts).to_metadata()
        assert self.store.put_if_absent(key, b"x", metadata, kind=ObjectKind.SEGMENT)
        return key

    def left(self, watch: RoleWatch, fact: TopicFact, topic_id: str = "A") -> set[int]:
        return set(asyncio.run(watch.find_left(fact, topic_id, range(4))))


# --- who archives a partition


@pytest.mark.parametrize(
    ("policy", "left", "returning"),
    [("compact", {2, 3, 4}, set()), (None, {2, 3, 4}, set()), ("delete", set(), {2, 3, 4})],
    ids=["compacted", "unknown, which is no change", "compacted no longer"],
)
def test_whose_a_partition_is(policy: str | None, left: set[int], returning: set[int]) -> None:
    site = Site()
    site.log(1, BEGUN)  # nothing has switched yet
    site.log(2, BEGUN, SWITCHED)
    site.log(3, BEGUN, SWITCHED, NEXT_BEGUN)
    site.log(4, BEGUN, SWITCHED, entries.unsure(SWITCHED, 2, "a"))
    site.log(5, BEGUN, SWITCHED, RETURNED)
    watch = site.watch()
    assert set(asyncio.run(watch.find_left(site.record(policy), "A", range(6)))) == left
    assert {place.partition for place in watch._returning} == returning


def test_partitions_with_a_copy_are_skipped_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    caplog.set_level(logging.INFO, logger=LOGGER)
    site.log(0, BEGUN)
    site.log(1, BEGUN, SWITCHED)
    site.log(2, BEGUN, SWITCHED, NEXT_BEGUN)
    watch, fact = site.watch(), site.record()
    assert asyncio.run(watch.list_topics()) == frozenset({"t"})
    assert [site.left(watch, fact) for _ in range(3)] == [{1, 2}] * 3
    assert [record.levelname for record in caplog.records if record.name == LOGGER] == ["INFO"]
    assert "a complete copy of 2 of 4 partitions is read now" in caplog.text
    site.log(3, BEGUN, SWITCHED)
    assert site.left(watch, fact) == {1, 2, 3}
    put_entry(site.archive, RolePlace(topic="t", life=0, partition=1), 2, RETURNED)
    assert site.left(watch, fact) == {2, 3}
    assert len([record for record in caplog.records if record.name == LOGGER]) == 1


def test_only_the_life_that_is_live_counts() -> None:
    site = Site()
    site.log(0, BEGUN, SWITCHED)
    site.log(1, BEGUN, SWITCHED)
    watch = site.watch()
    assert site.left(watch, site.record()) == {0, 1}
    record_branch(site.archive, topic="t", partition=1, parent=0, branch=Branch(offset=5))
    fact = site.record()
    assert site.left(watch, fact) == {0}, "partition 1 goes on in a life without a role log"
    fact = site.record(topic_id="B")
    assert site.left(watch, fact, "B") == set()
    site.log(2, BEGUN, SWITCHED, life=2)
    assert site.left(watch, fact, "B") == {2}
    assert site.left(watch, fact, "not recorded yet") == set()


def test_an_entry_that_cannot_be_read_leaves_nothing_to_anybody(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.log(0, BEGUN, SWITCHED)
    site.log(1, BEGUN, SWITCHED)
    key = site.archive.layout.fact_key("roles/t/0/0", 2)
    site.store.put_if_absent(key, b"no entry", {}, kind=ObjectKind.FACT)
    watch, fact = site.watch(), site.record()
    assert [site.left(watch, fact) for _ in range(2)] == [{1}] * 2
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert key in warnings[0].message
    assert "t-0: it is archived under topics/" in warnings[0].message


def test_a_store_that_refuses_leaves_nothing_and_one_that_fails_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    site.log(0, BEGUN, SWITCHED)
    watch, fact = site.watch(), site.record()
    site.store.error = StoreTemporaryError("throttled")
    with pytest.raises(StoreTemporaryError):
        site.left(watch, fact)
    site.store.error = StoreError("denied")
    assert site.left(watch, fact) == set()
    assert "denied; t-0: it is archived under topics/" in caplog.text
    site.store.error = None
    assert site.left(watch, fact) == {0}


def test_with_the_switch_off_nothing_is_left() -> None:
    site = Site()
    site.log(2, BEGUN, SWITCHED)
    watch = site.watch(is_enabled=False)
    assert site.left(watch, site.record()) == set()
    assert asyncio.run(watch.list_topics()) == frozenset()


def test_the_offsets_topic_is_never_left() -> None:
    site = Site()
    site.log(0, BEGUN, SWITCHED, topic="__consumer_offsets")
    fact = replace(site.record(), topic="__consumer_offsets")
    assert site.left(site.watch(), fact) == set()


# --- when `topics/` is read again


PLACE = RolePlace(topic="t", life=0, partition=0)


def holder_of(site: Site) -> object:
    newest = read_newest_entry(site.archive, PLACE)
    assert newest is not None
    return newest.entry.holder


def test_the_entry_is_put_behind_the_newest_one(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.record("delete")
    site.log(0, BEGUN, SWITCHED, NEXT_BEGUN)
    site.put(0, 7, copy=A0)
    site.put(0, 4)
    assert take_back(site.archive, PLACE, 8) is ReturnOutcome.NOT_YET
    site.put(4, 8)
    assert take_back(site.archive, PLACE, 8) is ReturnOutcome.NOT_YET, "the holder was read to 9"
    site.put(8, 12)
    assert take_back(site.archive, PLACE, 12) is ReturnOutcome.DONE
    newest = read_newest_entry(site.archive, PLACE)
    assert newest is not None
    assert (newest.number, newest.entry.holder, newest.entry.replaced) == (3, HISTORY, COPY)
    assert {one.generation for one in newest.entry.left} == {A0, B2}
    assert "compacted/a/topics/t/partition=0/generation=0/" in caplog.text
    assert take_back(site.archive, PLACE, 12) is ReturnOutcome.NOT_YET


@pytest.mark.parametrize("of", [A0, B2])
def test_objects_of_the_holder_and_of_its_tail_are_waited_for(of: Generation) -> None:
    site = Site()
    site.record("delete")
    second = entries.switch(NEXT_BEGUN, 3, replace(COPY, generation=B2))
    site.log(0, BEGUN, SWITCHED, NEXT_BEGUN, second)
    site.put(0, 9)
    site.put(9, 20, copy=of)
    assert take_back(site.archive, PLACE, 9) is ReturnOutcome.NOT_YET
    site.put(9, 20)
    assert take_back(site.archive, PLACE, 20) is ReturnOutcome.DONE


def test_a_gap_under_topics_is_reported_and_readers_keep_the_copy(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.record("delete")
    site.log(0, BEGUN, SWITCHED)
    site.put(0, 3)
    site.put(5, 12)
    assert take_back(site.archive, PLACE, 12) is ReturnOutcome.GAP
    assert holder_of(site) == COPY
    assert "from offset 3 on" in caplog.text


def test_what_topics_lacks_and_the_copy_has_is_waited_for() -> None:
    """Offsets that no batch served are replaced by records up to where the log was stable then."""
    site = Site()
    site.record("delete")
    site.log(0, BEGUN, SWITCHED)
    site.put(0, 9, unserved=1, stable_end=12)
    assert take_back(site.archive, PLACE, 9) is ReturnOutcome.NOT_YET
    site.put(9, 12)
    assert take_back(site.archive, PLACE, 12) is ReturnOutcome.DONE


def test_what_a_sweep_took_from_topics_is_no_gap() -> None:
    site = Site()
    site.record("delete")
    site.log(0, BEGUN, SWITCHED)
    site.put(0, 3)
    site.put(5, 12)
    add_swept(site.archive, SweptPlace(PLACE.topic, PLACE.life, PLACE.partition), OffsetRanges.of([(0, 12)]))
    assert take_back(site.archive, PLACE, 12) is ReturnOutcome.DONE


def test_earlier_lives_of_a_branch_count() -> None:
    """The copy is of life 1, into which the log was cut back at offset 4: below that, the history is in life 0."""
    site = Site()
    site.record("delete")
    site.put(0, 6)
    record_branch(site.archive, topic="t", partition=0, parent=0, branch=Branch(offset=4))
    site.log(0, BEGUN, SWITCHED, life=1)
    place = replace(PLACE, life=1)
    assert take_back(site.archive, place, 9) is ReturnOutcome.NOT_YET
    site.put(4, 9, life=1)
    assert take_back(site.archive, place, 9) is ReturnOutcome.DONE


@pytest.mark.parametrize("policy", ["compact", "compact,delete", None])
def test_a_topic_that_may_be_compacted_is_not_taken_back(policy: str | None) -> None:
    site = Site()
    site.record(policy)
    site.log(0, BEGUN, SWITCHED)
    site.put(0, 12)
    assert take_back(site.archive, PLACE, 12) is ReturnOutcome.NOT_YET
    assert holder_of(site) == COPY


@pytest.mark.parametrize("at", ["history.decided", "history.put"])
def test_an_entry_counts_only_when_a_look_shows_it(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Another copy takes over while this backup sleeps: between its decision and its put, and, with numbers freed, behind that."""
    site = Site()
    site.record("delete")
    site.log(0, BEGUN, SWITCHED, NEXT_BEGUN)
    site.put(0, 12)
    number = 3 if at == "history.decided" else 8
    later = entries.switch(NEXT_BEGUN, number, replace(COPY, generation=B2))

    def wake_up(name: str) -> None:
        if name == at:
            put_entry(site.archive, PLACE, number, later)

    monkeypatch.setattr(history_return, "reach", wake_up)
    assert take_back(site.archive, PLACE, 12) is ReturnOutcome.NOT_YET
    assert holder_of(site) == later.holder
    monkeypatch.undo()
    assert take_back(site.archive, PLACE, 12) is ReturnOutcome.DONE


def test_a_watch_tries_what_has_caught_up_and_forgets_what_is_done() -> None:
    site = Site()
    fact = site.record("delete")
    site.log(0, BEGUN, SWITCHED)
    site.put(0, 12)
    watch = site.watch()
    asyncio.run(watch.take_back({PLACE: 12}))
    assert holder_of(site) == COPY, "nobody has looked at its role log yet"
    assert site.left(watch, fact) == set()
    asyncio.run(watch.take_back({PLACE: 8}))
    assert holder_of(site) == COPY
    asyncio.run(watch.take_back({PLACE: 12, replace(PLACE, partition=3): 99}))
    assert holder_of(site) == HISTORY
    assert site.left(watch, fact) == set()


def test_a_watch_looks_at_what_is_not_whole_once(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    fact = site.record("delete")
    site.log(0, BEGUN, SWITCHED)
    site.put(5, 12)
    watch, tries = site.watch(), list[ReturnOutcome]()

    def noted(archive: Archive, place: RolePlace, durable: int) -> ReturnOutcome:
        tries.append(take_back(archive, place, durable))
        return tries[-1]

    monkeypatch.setattr(role_watch, "take_back", noted)
    for _ in range(3):
        site.left(watch, fact)
        asyncio.run(watch.take_back({PLACE: 12}))
    assert tries == [ReturnOutcome.GAP]


def test_a_failing_partition_does_not_block_the_others(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    fact = site.record("delete")
    site.log(0, BEGUN, SWITCHED)
    watch = site.watch()
    site.left(watch, fact)
    key = max(key for key in site.store.objects if key.startswith(f"control/{PLACE.stream}/"))
    entry = site.store.objects[key]
    site.store.objects[key] = replace(entry, body=b"{}")
    asyncio.run(watch.take_back({PLACE: 99}))
    site.store.objects[key] = entry
    assert holder_of(site) == COPY
    assert key in caplog.text
