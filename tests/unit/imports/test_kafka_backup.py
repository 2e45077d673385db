"""Target directories of kafka-backup, made byte by byte: which records are read, and what is damage."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from archiver.codec.foreign import kafka_backup as decoder
from archiver.codec.kernels.foreign import kafka_backup as kernels
from archiver.errors import UsageError
from archiver.imports.filling.foreign_import import ForeignPartition
from archiver.imports.filling.partition_fill import ImportHole
from archiver.imports.tools.kafka_backup import find_partitions
from tests.support.frames import records_of
from tests.support.kafka_backup_files import KafkaBackupFolder, Segment, all_kinds, stored
from tests.support.records import Rec

Found = tuple[list[Rec], list[tuple[int, str]]]


def rec(offset: int, value: bytes | None = None) -> Rec:
    return Rec(offset, 1000 + offset, 0, b"key", b"value %d" % offset if value is None else value)


def recs(first: int, end: int) -> list[Rec]:
    return [rec(offset) for offset in range(first, end)]


def only(folder: KafkaBackupFolder) -> ForeignPartition:
    (found,) = find_partitions([folder.path], lambda _: True)
    return found


def read(folder: KafkaBackupFolder) -> Found:
    records, holes = list[Rec](), list[tuple[int, str]]()
    for step in only(folder).steps():
        if isinstance(step, ImportHole):
            holes.append((step.until, step.why))
        else:
            records += records_of(step)
    return records, holes


@pytest.fixture
def folder(tmp_path: Path) -> KafkaBackupFolder:
    return KafkaBackupFolder(tmp_path / "target")


def test_records_of_every_kind_are_read(folder: KafkaBackupFolder) -> None:
    folder.write("orders", 3, Segment(0).add(*all_kinds()), Segment(20).add(*all_kinds(20)), groups={"g": 4, "h": 0})
    assert read(folder) == ([*all_kinds(), *all_kinds(20)], [])
    found = only(folder)
    assert (found.topic, found.partition, found.positions) == ("orders", 3, {"g": 4, "h": 0})
    assert [path.name for path in found.files] == [
        "segment_partition_003_from_offset_0000000000_records",
        "segment_partition_003_from_offset_0000000000_index",
        "segment_partition_003_from_offset_0000000020_records",
        "segment_partition_003_from_offset_0000000020_index",
        "index_partition_003",
        "consumer_offsets_partition_003",
    ]


@pytest.mark.parametrize(("rows", "frame_bytes"), [(1, 1 << 20), (3, 1 << 20), (100, 150)])
def test_frames_are_bounded(
    folder: KafkaBackupFolder, monkeypatch: pytest.MonkeyPatch, rows: int, frame_bytes: int
) -> None:
    monkeypatch.setattr(decoder, "MOST_FETCHED_ROWS", rows)
    monkeypatch.setattr(kernels, "FRAME_BYTES", frame_bytes)  # of the first header buffer
    folder.write("orders", 0, Segment(0).add(*all_kinds(), *recs(20, 40)).add(*recs(40, 50), confirmed=False))
    assert read(folder) == ([*all_kinds(), *recs(20, 50)], [])


def test_the_beginning_of_the_files_is_a_hole(folder: KafkaBackupFolder) -> None:
    folder.write("orders", 0, Segment(0).add(*recs(5, 8)))
    assert read(folder) == (recs(5, 8), [(5, "the files begin here")])


def test_unconfirmed_records_are_read_once(folder: KafkaBackupFolder) -> None:
    first = Segment(0).add(*recs(0, 3)).add(*recs(3, 5), confirmed=False)
    folder.write("orders", 0, first, Segment(3).add(*recs(3, 9)))
    assert read(folder) == (recs(0, 9), [])


def test_unconfirmed_records_at_the_end_are_read(folder: KafkaBackupFolder) -> None:
    folder.write("orders", 0, Segment(0).add(*recs(0, 3)).add(*recs(3, 5), confirmed=False))
    assert read(folder) == (recs(0, 5), [])


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_a_tool_that_was_killed_appends_behind_leftovers(folder: KafkaBackupFolder, cut: int) -> None:
    """Its next index entry begins at the end of the last one, or at the end of the file."""
    for begins_at_leftovers in (True, False):
        segment = Segment(0).add(*recs(0, 3))
        end = len(segment.records)
        segment.add(*recs(3, 5), confirmed=False)
        del segment.records[len(segment.records) - cut :]
        if begins_at_leftovers:
            segment.records += stored(rec(3))
            segment.index += struct.pack(">qqq", 3, end, len(segment.records) - end)
        else:
            segment.add(rec(3))
        folder.write("orders", 0, segment.add(*recs(4, 9)))
        assert read(folder) == (recs(0, 9), [])


def test_a_record_that_came_again_as_another_is_reported_and_the_confirmed_one_read(folder: KafkaBackupFolder) -> None:
    for again in ([Segment(3).add(*recs(3, 9))], []):
        first = Segment(0).add(*recs(0, 3)).add(rec(3, b"other"), rec(4), confirmed=False)
        folder.write("orders", 0, first.add(*([] if again else recs(3, 9))), *again)
        records, ((until, why),) = read(folder)
        assert (records, until) == (recs(0, 9), 0)
        assert why.startswith("an unconfirmed record at offset 3 of ")


def test_unconfirmed_records_that_never_came_again_are_read(folder: KafkaBackupFolder) -> None:
    def killed() -> Segment:
        return Segment(0).add(*recs(0, 3)).add(*recs(3, 6), confirmed=False)

    folder.write("orders", 0, killed(), Segment(3).add(rec(3)))
    assert read(folder) == (recs(0, 6), [])
    folder.write("orders", 0, killed().add(rec(3)))
    assert read(folder) == (recs(0, 6), [])
    folder.write("orders", 0, killed().add(rec(3), rec(5), rec(8)))
    assert read(folder) == ([*recs(0, 6), rec(8)], [])
    folder.write("orders", 0, killed(), Segment(3).add(rec(3), rec(8)), Segment(9).add(rec(9)))
    assert read(folder) == ([*recs(0, 6), *recs(8, 10)], [])


def test_a_tool_that_was_killed_twice_leaves_two_rows_of_records(folder: KafkaBackupFolder) -> None:
    for last in ([rec(3)], []):
        segment = Segment(0).add(*recs(0, 3)).add(*recs(3, 6), *recs(3, 8), confirmed=False).add(*last)
        folder.write("orders", 0, segment, Segment(9).add(rec(9)))
        assert read(folder) == ([*recs(0, 8), rec(9)], [])
    folder.write("orders", 0, Segment(0).add(*recs(0, 3)).add(*[rec(3)] * 20, confirmed=False), Segment(3).add(rec(3)))
    records, ((until, why),) = read(folder)
    assert (records, until) == (recs(0, 4), 0)
    assert why.endswith("offsets of unconfirmed records fall")


def test_unconfirmed_records_fill_the_place_of_a_missing_file(folder: KafkaBackupFolder) -> None:
    first = Segment(0).add(*recs(0, 3)).add(*recs(3, 6), confirmed=False)
    folder.write("orders", 0, first, Segment(3).add(*recs(3, 9)), Segment(9).add(rec(9)))
    (folder.path / "orders" / "segment_partition_000_from_offset_0000000003_records").unlink()
    records, ((until, _),) = read(folder)
    assert (records, until) == ([*recs(0, 6), rec(9)], 9)


def test_offsets_that_fall_are_damage(folder: KafkaBackupFolder) -> None:
    folder.write("orders", 0, Segment(0).add(*recs(0, 3)), Segment(3).add(*recs(1, 3), *recs(3, 5)))
    records, holes = read(folder)
    assert records == recs(0, 5)
    assert [until for until, _ in holes] == [0]


def test_behind_a_cut_record_at_the_end_nothing_was_confirmed(folder: KafkaBackupFolder) -> None:
    segment = Segment(0).add(*recs(0, 3)).add(rec(3), confirmed=False)
    size = len(segment.records)
    del segment.records[-1:]
    folder.write("orders", 0, segment)
    records, ((until, why),) = read(folder)
    assert (records, until) == (recs(0, 3), 0)
    assert f"to {size - 1:,} of" in why
    folder.write("orders", 0, segment, Segment(3).add(*recs(3, 5)))
    assert read(folder) == (recs(0, 5), [])


def damaged(change: Callable[[Segment, int], object]) -> tuple[Segment, Segment]:
    """Return a segment with a damage in its records 4 and 5, and the following one."""
    segment = Segment(0).add(*recs(0, 10))
    change(segment, struct.unpack_from(">q", segment.index, 1 + 4 * 24 + 8)[0])
    return segment, Segment(10).add(*recs(10, 13))


def zero(segment: Segment, at: int) -> None:
    segment.records[at : at + 50] = bytes(50)


def test_damage_is_a_hole_up_to_the_next_record_of_the_index(folder: KafkaBackupFolder) -> None:
    folder.write("orders", 0, *damaged(zero))
    records, ((until, why),) = read(folder)
    assert records == [*recs(0, 4), *recs(6, 13)]
    assert until == 6
    assert why.endswith("_records: not the records of the index")


def test_damage_of_the_last_records_is_one_hole(folder: KafkaBackupFolder) -> None:
    segment = Segment(0).add(*recs(0, 5))
    segment.records[-60:] = bytes(60)
    folder.write("orders", 0, segment)
    records, holes = read(folder)
    assert (records, [until for until, _ in holes]) == (recs(0, 3), [5])


def test_without_an_index_damage_reaches_to_the_next_file(folder: KafkaBackupFolder) -> None:
    first, second = damaged(zero)
    first.index = bytearray(b"\x01")
    folder.write("orders", 0, first, second)
    records, ((until, why),) = read(folder)
    assert records == [*recs(0, 4), *recs(10, 13)]
    assert until == 10
    assert "no whole record" in why
    folder.write("orders", 1, Segment(0).add(*recs(0, 3)))
    (folder.path / "orders" / "segment_partition_001_from_offset_0000000000_index").unlink()
    _, without = find_partitions([folder.path], lambda _: True)
    assert [records_of(step) for step in without.steps() if not isinstance(step, ImportHole)] == [recs(0, 3)]


@pytest.mark.parametrize("cuts_record", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_file_that_is_shorter_than_its_index(folder: KafkaBackupFolder, *, cuts_record: bool, is_last: bool) -> None:
    first, second = damaged(
        lambda segment, at: segment.records.__delitem__(slice(at + (3 if cuts_record else 0), None))
    )
    folder.write("orders", 0, *([first] if is_last else [first, second]))
    records, ((until, why),) = read(folder)
    assert records == [*recs(0, 4), *([] if is_last else recs(10, 13))]
    assert until == 10
    assert "records of the index are missing" in why


def test_a_damaged_index_is_left_aside(folder: KafkaBackupFolder) -> None:
    for at, size in ((1 + 4 * 24, 24), (1 + 4 * 24, 7), (1 + 10 * 24 - 5, 5)):
        first, second = damaged(lambda *_: None)
        del first.index[at : at + size]
        folder.write("orders", 0, first, second)
        assert read(folder) == (recs(0, 13), [])
    first, second = damaged(lambda *_: None)
    first.index[1 + 4 * 24 : 1 + 5 * 24] = b"\xff" * 24
    folder.write("orders", 0, first, second)
    assert read(folder) == (recs(0, 13), [])


def test_a_missing_file_is_a_hole(folder: KafkaBackupFolder) -> None:
    segments = [Segment(first).add(*recs(first, first + 5)) for first in (0, 5, 10)]
    folder.write("orders", 0, *segments)
    for kind in ("records", "index"):
        (folder.path / "orders" / f"segment_partition_000_from_offset_0000000005_{kind}").unlink()
    records, ((until, why),) = read(folder)
    assert (records, until) == ([*recs(0, 5), *recs(10, 15)], 10)
    assert why.endswith("_0000000005_records: the file is missing")
    (folder.path / "orders" / "index_partition_000").unlink()
    assert read(folder)[0] == records


def test_broken_positions_of_groups_are_reported(folder: KafkaBackupFolder) -> None:
    folder.write("orders", 0, Segment(0).add(rec(0)), groups={"g": -1})
    assert only(folder).positions == {}
    ((until, why),) = read(folder)[1]
    assert until == 0
    assert "positions of groups are left out" in why
    (folder.path / "orders" / "consumer_offsets_partition_000").write_bytes(b"[" * 200_000)
    assert "positions of groups are left out" in read(folder)[1][0][1]
    (folder.path / "orders" / "consumer_offsets_partition_000").write_bytes(b"")
    assert read(folder)[1] == []


def test_wrong_input_is_refused(folder: KafkaBackupFolder) -> None:
    with pytest.raises(UsageError, match="is no directory"):
        only(folder)
    folder.path.mkdir()
    with pytest.raises(UsageError, match="no folder in it has segment files"):
        only(folder)
    folder.write("orders", 0, Segment(0, records=bytearray(b"\x02")))
    with pytest.raises(UsageError, match="begins with byte 2"):
        only(folder)
    assert find_partitions([folder.path], lambda topic: topic != "orders") == []
    records = folder.path / "orders" / f"segment_partition_000_from_offset_{2**63 - 1}_records"
    records.write_bytes(b"\x01")
    with pytest.raises(UsageError, match="no offset is so high"):
        only(folder)


def test_broken_files_lose_nothing_silently(folder: KafkaBackupFolder, seed: int) -> None:
    """Whatever bytes change: no crash, rising offsets, a report of each missing record, and the next file whole."""
    source, right = random.Random(seed), [*all_kinds(), *recs(20, 40)]
    for _ in range(300):
        segment = Segment(0).add(*right)
        content = source.choice((segment.records, segment.index))
        for _ in range(source.randrange(1, 4)):
            at = source.randrange(1, len(content))
            match source.randrange(3):
                case 0:
                    content[at] ^= 1 << source.randrange(8)
                case 1:
                    del content[at : at + source.randrange(30)]
                case _:
                    content[at:at] = source.randbytes(source.randrange(30))
        folder.write("orders", 0, segment, Segment(40).add(*recs(40, 42)))
        records, holes = read(folder)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        assert records[-2:] == recs(40, 42)
        assert holes or {*offsets} >= {record.offset for record in right}
