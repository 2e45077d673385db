"""Exports to kafka-backup's files, read by a reader of its own; and export after import, and import after export, give the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from archiver.archive.format.handle import Archive
from archiver.codec.selection import LAST_LONG
from archiver.config.model import IndexUse
from archiver.errors import UsageError
from archiver.groups.positions.archived_position import ArchivedPosition, State
from archiver.groups.positions.snapshots import SnapshotReader
from archiver.imports.filling.foreign_import import ForeignPartition, plan_foreign
from archiver.imports.filling.import_run import ImportRequest, run_import
from archiver.imports.tools import kafka_backup_export
from archiver.imports.tools.kafka_backup import RECORDS, find_partitions
from archiver.imports.tools.kafka_backup_export import ExportRequest, ExportResult, run_export
from tests.support.frames import frame_of
from tests.support.import_sites import ARCHIVE, Died, small_sink
from tests.support.kafka_backup_files import KafkaBackupFolder, Segment, all_kinds, read_topic
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec, generate


class Site:
    """An archive in memory, and folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.target = folder / "out"
        self.positions: list[ArchivedPosition] = []

    def fill(self, *found: ForeignPartition) -> None:
        request = ImportRequest(sources=[self.folder], cluster_id="C1")
        plan = plan_foreign("kafka-backup", found, request, lambda _: None, reads_all=False)
        done = run_import(plan, request, small_sink(self.store, self.folder / "spool"), lambda _: None, lambda _: None)
        assert [one.error for one in done.partitions] == [""] * len(found)

    def fill_with(self, records: Sequence[Rec], partition: int = 0) -> None:
        file = self.folder / "file"
        file.write_bytes(b"")
        frame = frame_of(records)
        self.fill(ForeignPartition(topic="orders", partition=partition, files=[file], steps=lambda: iter([frame])))

    def export(self, **asked: Any) -> ExportResult:  # noqa: ANN401 - of a request
        request = ExportRequest(**({"target": self.target} | asked))
        archive = Archive(self.store, ARCHIVE)
        return run_export(archive, request, self.positions, IndexUse.CHECK, lambda _: None)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def position(group: str, state: State = State.SET, **fields: Any) -> ArchivedPosition:  # noqa: ANN401 - of its
    own: dict[str, Any] = {"group": group, "topic": "orders", "life": 0, "partition": 1, "offset": 3}
    return ArchivedPosition(**(own | fields), state=state)


def test_the_tool_s_reader_finds_every_record(site: Site) -> None:
    site.fill_with(all_kinds(), partition=1)
    (empty, done) = site.export().partitions
    assert (empty.records, empty.segments, done.records, done.segments) == (0, 1, 5, 1)
    assert read_topic(site.target / "orders", 1) == all_kinds()
    assert read_topic(site.target / "orders", 0) == []
    names = {path.name.replace("001", "000") for path in (site.target / "orders").iterdir()}
    assert names == {
        "consumer_offsets_partition_000",
        "index_partition_000",
        "segment_partition_000_from_offset_0000000000_index",
        "segment_partition_000_from_offset_0000000000_records",
    }


def test_a_time_of_unknown_type_is_kept(site: Site) -> None:
    site.fill_with([Rec(0, 5, -1, b"k", b"v")])
    site.export()
    assert read_topic(site.target / "orders", 0) == [Rec(0, 5, 0, b"k", b"v")]


@pytest.mark.parametrize(("segment_bytes", "buffer_bytes"), [(2, 1 << 20), (200, 1 << 20), (1 << 30, 60)])
def test_segments_and_buffers_are_bounded(
    site: Site, monkeypatch: pytest.MonkeyPatch, segment_bytes: int, buffer_bytes: int
) -> None:
    monkeypatch.setattr(kafka_backup_export, "_BUFFER_BYTES", buffer_bytes)
    right = [*all_kinds(), *all_kinds(1 << 40)]
    site.fill_with(right)
    (done,) = site.export(segment_bytes=segment_bytes).partitions
    assert read_topic(site.target / "orders", 0) == right
    assert done.segments == {2: 5, 200: 3, 1 << 30: 1}[segment_bytes]


def test_export_and_import_give_the_same(site: Site, seed: int) -> None:
    right = {
        number: generate(seed + number, 300, timestamp_type=number % 2, first_offset=number) for number in range(3)
    }
    folder = KafkaBackupFolder(site.folder / "in")
    for number, records in right.items():
        groups = {"g": 5, "ü\n": 7} if number else None
        folder.write(
            "orders",
            number,
            Segment(0).add(*records[:100]),
            Segment(records[100].offset).add(*records[100:]),
            groups=groups,
        )
    site.fill(*find_partitions([folder.path], lambda _: True))
    snapshot = next(SnapshotReader(Archive(site.store, ARCHIVE), LAST_LONG, pytest.fail).newest_first())
    site.positions = [
        position(group, partition=number, offset=one.offset)
        for group, topics in snapshot.groups.items()
        for number, one in topics["orders"].items()
    ]
    site.export(segment_bytes=4096)
    assert {number: read_topic(site.target / "orders", number) for number in right} == right
    again = Site(site.folder / "again")
    again.folder.mkdir()
    found = find_partitions([site.target], lambda _: True)
    assert [one.positions for one in found] == [{}, {"g": 5, "ü\n": 7}, {"g": 5, "ü\n": 7}]
    again.fill(*found)
    again.export()
    assert {number: read_topic(again.target / "orders", number) for number in right} == right


def test_positions_that_are_not_known_are_left_out(site: Site) -> None:
    site.fill_with(all_kinds(), partition=1)
    site.positions = [
        position("a"),
        position("b", State.UNKNOWN),
        position("c", State.AMBIGUOUS, life=-2),
        position("d", State.REMOVED),
        position("e", life=5),
        position("f", topic="other"),
    ]
    found = site.export()
    assert (site.target / "orders" / "consumer_offsets_partition_001").read_text() == '{"a": 3}'
    assert (site.target / "orders" / "consumer_offsets_partition_000").read_text() == "{}"
    assert [problem.partition(" is ")[0].split()[-1] for problem in found.problems] == ["b", "c"]


def test_damage_is_reported_and_the_rest_is_written(site: Site) -> None:
    site.fill_with(all_kinds())
    keys = sorted(key for key in site.store.objects if key.endswith(".data"))
    del site.store.objects[keys[1]]
    found = site.export()
    assert read_topic(site.target / "orders", 0) == [*all_kinds()[:2], *all_kinds()[4:]]
    assert len(found.problems) == 1


@pytest.mark.parametrize("dies_at", [1, 2])
def test_the_files_of_a_killed_export_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch, dies_at: int) -> None:
    """Also between two partitions, when all files have their names."""
    site.fill_with(all_kinds(), partition=1)
    left = dies_at

    def die(*_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(kafka_backup_export, "_groups", die)
        patched.setattr(kafka_backup_export, "_export", lambda *_: None)
        with pytest.raises(Died):
            site.export()
    site.target.joinpath("orders", RECORDS.format(0, 0)).write_bytes(b"\x01")
    with pytest.raises(UsageError, match="has not ended"):
        find_partitions([site.target], lambda _: True)


def test_an_export_that_has_ended_leaves_nothing_beside_its_files(site: Site) -> None:
    site.fill_with(all_kinds(), partition=1)
    site.export()
    assert [path.name for path in site.target.iterdir()] == ["orders"]
    assert len(find_partitions([site.target], lambda _: True)) == 2
    (site.target / "orders" / "index_partition_000.partial").touch()
    with pytest.raises(UsageError, match="has not ended"):
        find_partitions([site.target], lambda _: True)


def test_what_is_there_is_not_touched(site: Site) -> None:
    site.fill_with(all_kinds())
    site.target.mkdir()
    (site.target / "mine").write_text("1")
    with pytest.raises(UsageError, match="is not empty"):
        site.export()
    with pytest.raises(UsageError, match="is no directory"):
        site.export(target=site.target / "mine")
    with pytest.raises(UsageError, match="no topic of the archive matches"):
        site.export(topics="other")
