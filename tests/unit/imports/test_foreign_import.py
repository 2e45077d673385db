"""Imports of other tools' partitions into a store in memory: what is taken, refused, left out, and what comes after a death."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.segments.segment_facts import HoleCause
from archiver.codec.foreign.damage import NO_OFFSETS
from archiver.codec.frame import Column, Frame
from archiver.codec.selection import LAST_LONG
from archiver.errors import UsageError
from archiver.groups.positions.snapshots import SnapshotReader
from archiver.imports.filling.foreign_import import ForeignPartition, plan_foreign
from archiver.imports.filling.import_run import ImportRequest, ImportResult, run_import
from archiver.imports.filling.mapped_file import MappedFile
from archiver.imports.filling.partition_fill import ImportHole
from tests.support.frames import frame_of
from tests.support.import_sites import ARCHIVE, Died, MortalStore, bases, index_files, small_sink
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec


def records(*offsets: int) -> Frame:
    return frame_of([Rec(offset, 1000 + offset, 0, None, b"v") for offset in offsets])


UNREADABLE = HoleCause.UNREADABLE


class Site:
    """An archive, and a tool's file of one partition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.file = folder / "orders-0.bin"
        self.file.write_bytes(b"1")

    def partition(self, steps: Sequence[Frame | ImportHole], **fields: Any) -> ForeignPartition:  # noqa: ANN401 - of its
        own: dict[str, Any] = {"topic": "orders", "partition": 0, "files": [self.file]}
        return ForeignPartition(**(own | fields), steps=lambda: iter(steps))

    def run(self, *found: ForeignPartition, **asked: Any) -> ImportResult:  # noqa: ANN401 - of a request
        request = ImportRequest(**({"sources": [self.folder], "cluster_id": "C1"} | asked))
        plan = plan_foreign("tool", found, request, lambda _: None, reads_all=False)
        sink = small_sink(self.store, self.folder / "spool")
        return run_import(plan, request, sink, lambda _: None, lambda _: None)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


STEPS = (
    ImportHole(3, HoleCause.EXPIRED, "begins here"),
    records(3, 4, 6),
    ImportHole(9, UNREADABLE, "bytes 7 to 9 of it"),
    records(10, 11, 12, 13),
    ImportHole(NO_OFFSETS, UNREADABLE, "its end is cut"),
)


def test_records_and_holes_become_segments(site: Site) -> None:
    (done,) = site.run(site.partition(STEPS)).partitions
    assert (done.written.records, done.next, done.error) == (7, 14, "")
    assert [(hole.until, str(hole.cause)) for hole in done.holes] == [
        (3, "expired"),
        (9, "unreadable"),
        (0, "unreadable"),
    ]
    assert bases(site.store) == [0, 5, 11, 13]
    noted = [(hole.first_offset, hole.last_offset, hole.cause) for hole in done.written.holes]
    assert noted == [(0, 2, HoleCause.EXPIRED), (7, 8, UNREADABLE)]


@pytest.mark.parametrize("is_put", [False, True])
def test_a_killed_import_is_continued(site: Site, *, is_put: bool) -> None:
    site.run(site.partition(STEPS))
    whole = site.store.objects.keys() - index_files(site.store)
    died = 0
    for number in range(1, 12):
        site.store = MortalStore(number, is_put=is_put)
        try:
            site.run(site.partition(STEPS))
        except Died:
            died += 1
            (done,) = site.run(site.partition(STEPS)).partitions
            assert len(done.holes) == 3  # told again, also those that the archive has
        assert site.store.objects.keys() - index_files(site.store) == whole
    assert died > 6


@pytest.mark.parametrize("steps", [(records(5, 4),), (records(4, 5), records(5, 6)), (records(4, 5), records(2, 6))])
def test_offsets_that_do_not_rise_end_the_partition(site: Site, steps: Sequence[Frame]) -> None:
    (done,) = site.run(site.partition(steps)).partitions
    assert "offsets do not rise" in done.error


def test_a_record_that_is_too_large_for_the_archive_is_a_hole(site: Site) -> None:
    frame = records(0, 1, 2, 3)
    frame.table[Column.HEADER_LENGTH, 1:3] = 2**28
    (done,) = site.run(site.partition([frame])).partitions
    assert [(hole.until, hole.why) for hole in done.holes] == [
        (2, "record 1 is too large"),
        (3, "record 2 is too large"),
    ]
    assert done.written.records == 2


def test_a_dry_run_reads_all(site: Site) -> None:
    request = ImportRequest(sources=[site.folder], cluster_id="C1")
    plan = plan_foreign("tool", [site.partition(STEPS)], request, lambda _: None, reads_all=True)
    (planned,) = plan.partitions
    assert (planned.offsets, planned.details, len(planned.holes)) == ((3, 14), {"records": 7}, 3)


REFUSALS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str]] = {
    "no cluster": ({"cluster_id": ""}, [{}], "--cluster-id"),
    "two clusters": (
        {"cluster_id": ""},
        [{"cluster_id": "A"}, {"partition": 1, "cluster_id": "B"}],
        "several clusters",
    ),
    "nothing": ({"wanted": lambda _: False}, [{}], "no topic there matches"),
    "twice": ({}, [{}, {}], "is there twice"),
    "one name for two": ({"renames": {"a": "orders"}}, [{}, {"topic": "a"}], "two topics"),
    "no topic's name": ({}, [{"topic": "a b"}], "is no partition of a topic"),
    "no partition": ({}, [{"partition": -1}], "is no partition of a topic"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_wrong_input_is_refused_before_anything_is_written(site: Site, name: str) -> None:
    asked, found, says = REFUSALS[name]
    with pytest.raises(UsageError, match=says):
        site.run(*(site.partition(STEPS, **fields) for fields in found), **asked)
    assert not site.store.objects


def test_other_input_does_not_continue_an_import(site: Site) -> None:
    site.run(site.partition(STEPS))
    site.file.write_bytes(b"2")
    with pytest.raises(UsageError, match="filled this topic from other input"):
        site.run(site.partition(STEPS))
    site.run(site.partition(STEPS), renames={"orders": "orders.other"})


def test_files_that_cannot_be_read_end_their_partition_alone(site: Site) -> None:
    def steps() -> Iterator[Frame]:
        yield records(0, 1)
        MappedFile(site.folder)

    broken = ForeignPartition(topic="orders", partition=0, files=[site.file], steps=steps)
    first, second = site.run(broken, site.partition(STEPS, partition=1)).partitions
    assert "cannot be read: Is a directory" in first.error
    assert (first.written.records, second.error, second.written.records) == (2, "", 7)


def test_an_input_that_cannot_be_read_is_refused(site: Site) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        site.run(site.partition(STEPS, files=[site.folder]))
    assert not site.store.objects


def test_other_options_do_not_continue_an_import(site: Site) -> None:
    site.run(site.partition(STEPS, options=["--way a"]))
    before = dict(site.store.objects)
    for options in ([], ["--way b"]):
        with pytest.raises(UsageError, match=r"had other options \(--way a\)"):
            site.run(site.partition(STEPS, options=options))
    assert site.store.objects == before
    site.run(site.partition(STEPS, options=["--way a"]))


def test_frames_are_asked_for_one_by_one(site: Site) -> None:
    asked: list[int] = []

    def steps() -> Iterator[Frame]:
        for number in range(3):
            asked.append(number)
            yield records(2 * number, 2 * number + 1)

    site.run(ForeignPartition(topic="orders", partition=0, files=[site.file], steps=steps))
    assert asked == [0, 1, 2]
    assert bases(site.store) == [0, 2, 4]


def snapshot(site: Site) -> Any:  # noqa: ANN401 - of groups, as it is written
    archive = Archive(site.store, ARCHIVE)
    return next(SnapshotReader(archive, LAST_LONG, pytest.fail).newest_first())


def test_positions_of_groups_become_a_snapshot(site: Site) -> None:
    frames = [records(0, 1)]
    other = site.partition(frames, partition=1, positions={"g": 7, "h": 2})
    site.run(site.partition(frames, positions={"g": 5}), other)
    site.run(site.partition(frames, topic="a", positions={"g": 1}), renames={"a": "b"}, shard=1, shards=2)
    site.run(site.partition(frames, topic="c", positions={"g": 1}), shard=2, shards=2)
    before = site.store.objects.keys() - index_files(site.store)
    site.run(site.partition(frames, topic="a", positions={"g": 1}), renames={"a": "b"})
    assert site.store.objects.keys() - index_files(site.store) == before  # the same again adds nothing
    found = {
        group: {(topic, number): one.offset for topic, some in topics.items() for number, one in some.items()}
        for group, topics in snapshot(site).groups.items()
    }
    assert found == {"g": {("orders", 0): 5, ("orders", 1): 7, ("b", 0): 1}, "h": {("orders", 1): 2}}
