"""`verify` of compacted topics: what is read by their role logs is checked, and nothing else of their copies."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.reading.gone_objects import gone_error
from archiver.archive.segments.segment_facts import facts_from_metadata
from archiver.errors import SweptError
from archiver.store.port import ObjectInfo
from archiver.upkeep.verify import ListingReport, check_listing
from tests.support.copied_bench import Bench, T
from tests.support.copied_topic import complete_copy
from tests.support.memory_store import MemoryStore

OTHERS = "compacted/: copies that no role log names as the holder, or as what it replaced, are not verified"


def _turned() -> Bench:
    """A topic of two partitions, of which b/4 has taken over from a/1; a/6 is being filled."""
    bench = Bench(partitions=2)
    for number in range(2):
        bench.copy("a", 1, [(0, 5), (5, 8)], number)
        bench.copy("b", 4, [(0, 6)], number)
        bench.copy("a", 6, [(2, 3)], number)
        former, holder = complete_copy("a", 1, 5), complete_copy("b", 4, 6)
        bench.entry(0, number, holder=None, candidate=("a", 0))  # given up
        bench.entry(1, number, holder=None, candidate=("a", 1))
        bench.entry(2, number, holder=former, candidate=("a", 1))
        bench.entry(3, number, holder=former, switched=2, candidate=("b", 3))
        bench.entry(4, number, holder=former, switched=2, candidate=("b", 4))
        bench.entry(5, number, holder=holder, replaced=former, candidate=("b", 4))
        bench.entry(6, number, holder=holder, replaced=former, switched=5, candidate=("a", 6))
    return bench


def _keys(found: ListingReport) -> list[str]:
    return sorted(one.object_key.removeprefix("compacted/") for one in found.segments)


def test_the_holder_and_its_tail_are_checked() -> None:
    found = check_listing(_turned().archive)
    assert found.problems == []
    assert (found.topics, found.partitions, found.records) == (1, 2, 4)
    assert [note for note in found.notes if "compacted" in note] == [OTHERS]
    for number in range(2):
        assert f"b/topics/t/partition={number}/generation=4/t+{number}-{0:020}.data" in _keys(found)
        assert f"a/topics/t/partition={number}/generation=1/t+{number}-{5:020}.data" in _keys(found)
    assert len(_keys(found)) == 4


def test_what_is_missing_is_a_problem() -> None:
    bench = _turned()
    bench.store.delete([f"compacted/b/topics/t/partition=1/generation=4/t+1-{0:020}.data"])
    (problem,) = check_listing(bench.archive).problems
    assert "t-1: offsets 0-5 are missing from the archive" in problem


def test_each_life_with_a_role_log_is_checked() -> None:
    bench = _turned()
    bench.create("B", partitions=2)
    bench.copy("a", 0, [(0, 4)], life=1)
    bench.entry(0, holder=None, candidate=("a", 0), life=1)
    bench.entry(1, holder=complete_copy("a", 0, 5), life=1)
    bench.entry(0, 1, holder=None, candidate=("a", 0), life=1)
    found = check_listing(bench.archive)
    assert len(found.problems) == 2
    assert "t@1-0: offsets 4-4 are missing from the archive" in found.problems[0]
    assert found.problems[1].startswith("t-1: no copy of this partition is complete")
    assert len(_keys(found)) == 5


def test_an_entry_that_cannot_be_read_is_a_problem() -> None:
    bench = _turned()
    key = bench.entry(7, holder=complete_copy("b", 9, 6))
    (problem,) = check_listing(bench.archive).problems
    assert problem.startswith(key)


def test_an_object_of_another_topic_id_is_a_problem() -> None:
    bench = _turned()
    key = f"compacted/b/topics/t/partition=0/generation=4/t+0-{0:020}.data"
    found = bench.store.objects[key]
    facts = facts_from_metadata(found.metadata, key)
    assert facts is not None
    bench.store.objects[key] = replace(found, metadata=replace(facts, topic_id="Z").to_metadata())
    assert "1 object is of topic id Z" in " ".join(check_listing(bench.archive).problems)


def _roles(bench: Bench, partition: int) -> list[str]:
    return sorted(key for key in bench.store.objects if key.startswith(f"control/roles/{T}/0/{partition}/"))


def test_a_newest_entry_that_is_gone_shows_by_what_it_began() -> None:
    bench = _turned()
    bench.store.delete([_roles(bench, 0)[-1], *_roles(bench, 1)])
    assert [one.partition(": which")[0] for one in check_listing(bench.archive).problems if "roles" in one] == [
        "control/roles/t/0/0/: entry 5 is the newest that is there, and entry 6 began compacted/a/topics/t/partition=0/generation=6/",
        "control/roles/t/0/1/: no entry is there, and entry 6 began compacted/a/topics/t/partition=1/generation=6/",
    ]
    assert not any("roles" in one for one in check_listing(bench.archive, "other".__eq__).problems)


class _Cleared(MemoryStore):
    """The instances turn, and clear the former copy, while its objects are asked: of each partition the last one still answered."""

    gone: Callable[[], None] | None = None

    def head(self, key: str) -> ObjectInfo | None:
        if "generation=1/" not in key or self.gone is None:
            return super().head(key)
        if key.endswith("8.data"):
            return super().head(key)
        if "partition=1/" in key:
            clear, self.gone = self.gone, None
            clear()
        return None


def _clearing(bench: Bench) -> Callable[[], None]:
    holder = complete_copy("b", 4, 10)

    def clear() -> None:
        for number in range(2):
            bench.copy("b", 4, [(6, 10)], number)
            bench.entry(7, number, holder=holder, replaced=complete_copy("a", 1, 5), switched=5, candidate=("a", 6))
            bench.store.delete([key for key in bench.store.objects if f"={number}/generation=1/" in key])

    return clear


def test_a_clearing_meanwhile_is_no_problem() -> None:
    bench = _turned()
    for number in range(2):
        bench.copy("a", 1, [(8, 10)], number)
    store = _Cleared()
    store.objects = bench.store.objects
    store.gone = _clearing(bench)
    found = check_listing(Archive(store, Layout()))
    assert found.problems == []
    assert [key.partition("/")[0] for key in _keys(found)] == ["b"] * 4


@pytest.mark.parametrize("is_cleared", [True, False])
def test_an_object_of_a_copy_that_is_cleared_while_objects_are_read_cannot_be_wrong(*, is_cleared: bool) -> None:
    """Unless the copy that is read does not reach as far."""
    bench = _turned()
    clear = _clearing(bench)
    if is_cleared:
        clear()
    key = f"compacted/a/topics/t/partition=0/generation=1/t+0-{5:020}.data"
    assert isinstance(gone_error(bench.store, key, 8), SweptError) == is_cleared
