"""Damage of the copy that holds: what counts as damage, since when it is known, and what it costs to look."""

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.copies.roles import CompleteCopy, RoleEntry
from archiver.backup.compacted.turn.current_copy_check import CurrentCopyCheck
from tests.support.memory_store import CountingStore
from tests.support.standing_copies import PLACE, StandingCopies, copy_of

DAY_MS = 86_400_000


class Bench:
    """b2 holds, with three objects, and has taken the place of a0."""

    def __init__(self) -> None:
        self.bucket = StandingCopies()
        self.store = self.bucket.store = CountingStore()
        self.bucket.archive = self.bucket.archive._replace(store=self.store)
        log = entries.begin(None, 0, "a", has_history=False)
        log = entries.switch(log, 1, copy_of("a0", 20))
        self.put(2, entries.begin(log, 2, "b", has_history=False))
        self.put(3, entries.switch(self.entry, 3, copy_of("b2", 30, 33)))
        self.keys = self.bucket.fill("b2", [(0, 10), (10, 20), (20, 30)])
        self.watch = CurrentCopyCheck(CopyCatalog(self.bucket.archive), PLACE, first_s=5.0, every_s=100.0)

    @property
    def since_ms(self) -> int | None:
        return self.watch.since_ms

    def put(self, number: int, entry: RoleEntry) -> None:
        self.entry = entry
        self.bucket.note(number, entry, number)

    def look(self, now_s: float = 5.0, now_ms: int = DAY_MS) -> str:
        self.watch.note_holder(self.entry)
        assert isinstance(self.entry.holder, CompleteCopy)
        self.watch.look(self.entry.holder, now_s, now_ms)
        return self.watch.problem


def test_the_copy_is_checked_regularly_and_on_request() -> None:
    bench = Bench()
    assert [bench.watch.is_due(at) for at in (4.9, 5.0)] == [False, True]
    bench.look()
    assert [bench.watch.is_due(at) for at in (104.9, 105.0)] == [False, True]
    bench.watch.hasten(7.0)
    assert bench.watch.is_due(7.0)
    bench.look(7.0)
    assert not bench.watch.is_due(8.0)


@pytest.mark.parametrize(
    ("gone", "told"),
    [(0, "has a gap at offset 0"), (1, "has a gap at offset 10"), (2, "has a gap at offset 20")],
)
@pytest.mark.parametrize("was_seen", [False, True])
def test_an_object_that_is_gone_is_damage(gone: int, told: str, was_seen: bool) -> None:
    bench = Bench()
    if was_seen:
        assert bench.look() == ""
    bench.store.delete([bench.keys[gone]])
    assert told in bench.look(now_ms=DAY_MS)
    assert told in bench.look(now_ms=2 * DAY_MS)
    assert bench.since_ms == DAY_MS


def test_that_records_expired_before_it_had_them_makes_the_next_copy_due_unless_it_is_noted_as_unsure() -> None:
    bench = Bench()
    assert bench.look() == ""
    bench.bucket.fill("b2", [(30, 40)], expired=[30])
    for _ in range(2):
        assert "lacks records that expired in Kafka before it had them" in bench.look()
    bench.put(4, entries.unsure(bench.entry, 4, "b"))
    assert bench.look() == ""


def test_a_process_that_saw_the_last_object_notices_its_loss() -> None:
    """Readers know nothing of what came after the switch; a process that has seen it does."""
    bench = Bench()
    keys = bench.bucket.fill("b2", [(30, 40)])
    assert bench.look() == ""
    bench.store.delete(keys)
    assert "ends at offset 30, and has reached 40" in bench.look()


def test_an_object_that_tells_nothing_is_damage_until_it_is_brought_back() -> None:
    bench = Bench()
    good = bench.store.objects[bench.keys[1]]
    bench.bucket.fill("b2", [(10, 20)], damaged=[10])
    assert "facts that cannot be" in bench.look()
    bench.store.objects[bench.keys[1]] = good
    assert bench.look() == ""
    assert bench.since_ms is None


def test_what_was_found_of_a_former_holder_is_forgotten() -> None:
    bench = Bench()
    bench.store.delete(bench.keys[:1])
    assert bench.look()
    bench.put(4, entries.begin(bench.entry, 4, "a", has_history=False))
    bench.watch.note_holder(bench.entry)
    known = [bench.since_ms]
    bench.put(5, entries.switch(bench.entry, 5, copy_of("a4", 33)))
    bench.watch.note_holder(bench.entry)
    assert [*known, bench.since_ms] == [DAY_MS, None]
    bench.bucket.fill("a4", [(0, 33)])
    assert bench.look() == ""


def test_a_copy_without_an_object_is_whole() -> None:
    bench = Bench()
    bench.put(4, entries.begin(bench.entry, 4, "a", has_history=False))
    bench.put(5, entries.switch(bench.entry, 5, copy_of("a4", 0, 33)))
    assert bench.look() == ""
