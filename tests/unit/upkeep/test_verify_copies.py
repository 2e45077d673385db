"""`verify` of compacted topics: what is read by their role logs is checked, and nothing else of their copies."""

from dataclasses import replace

from archiver.archive.control_census import count_control_objects
from archiver.archive.index_file import SeenControl
from archiver.archive.index_generations import append_to_index
from archiver.upkeep.verify import ListingReport, check_listing
from tests.support.copied_bench import Bench, T
from tests.support.copied_topic import complete_copy

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
    metadata = {name: value for name, value in found.metadata.items() if name != "archiver-facts-sha256"}
    bench.store.objects[key] = replace(found, metadata={**metadata, "archiver-topic-id": "Z"})
    assert "1 object is of topic id Z" in " ".join(check_listing(bench.archive).problems)


def test_only_wanted_topics_are_checked() -> None:
    found = check_listing(_turned().archive, "other".__eq__)
    assert (found.topics, found.problems, found.notes) == (0, [], [])


def _roles(bench: Bench, partition: int) -> list[str]:
    return sorted(key for key in bench.store.objects if key.startswith(f"control/roles/{T}/0/{partition}/"))


def test_older_entries_of_a_role_log_may_go() -> None:
    """Also where the index has seen all control objects."""
    bench = _turned()
    append_to_index(bench.archive, [], SeenControl(counts=count_control_objects(bench.archive)))
    bench.store.delete(_roles(bench, 0)[:-1])
    assert check_listing(bench.archive).problems == []


def test_a_newest_entry_that_is_gone_shows_by_what_it_began() -> None:
    bench = _turned()
    bench.store.delete([_roles(bench, 0)[-1], *_roles(bench, 1)])
    assert [one.partition(": which")[0] for one in check_listing(bench.archive).problems if "roles" in one] == [
        "control/roles/t/0/0/: entry 5 is the newest that is there, and entry 6 began compacted/a/topics/t/partition=0/generation=6/",
        "control/roles/t/0/1/: no entry is there, and entry 6 began compacted/a/topics/t/partition=1/generation=6/",
    ]
    assert not any("roles" in one for one in check_listing(bench.archive, "other".__eq__).problems)
