"""Imports into a store in memory: what is chosen, refused, left out, and what comes after a death."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import read_topic
from archiver.archive.segments.segment_facts import SegmentFacts, facts_from_metadata
from archiver.archive.segments.segment_writer import MOST_HOLES
from archiver.cli.import_ import exit_code, import_lines, import_row
from archiver.codec.foreign.damage import NO_OFFSETS
from archiver.codec.selection import LAST_LONG
from archiver.errors import StoreTemporaryError, StrangerError, TemporaryError, UsageError
from archiver.imports.filling import import_note
from archiver.imports.filling.import_note import (
    ImportNote,
    describe_file,
    is_same_import,
    note_import,
    refuse_too_many_files,
)
from archiver.imports.filling.import_run import ImportResult, check_archive, run_import
from archiver.imports.logs.log_import import LogImportRequest, plan_import
from tests.support.codec_fuzz import with_crc
from tests.support.import_sites import ARCHIVE, Died, MortalStore, bases, index_files, small_sink
from tests.support.log_directories import LogDirectory, batch, flipped, in_transaction, marker
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.reference_batch import Oddities, batch_of, encode


class Site:
    """An archive, and two brokers' directories."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = LogDirectory(folder / "first"), LogDirectory(folder / "second")
        self.store = MemoryStore()
        self.spool = folder / "spool"

    def run(self, *sources: LogDirectory, **asked: Any) -> ImportResult:  # noqa: ANN401 - of a request
        request = LogImportRequest(sources=[one.path for one in sources or (self.first,)], **asked)
        sink = small_sink(self.store, self.spool)
        return run_import(plan_import(request, lambda _: None), request, sink, lambda _: None, lambda _: None)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    site.first.write(0, *(batch(offset) for offset in range(6)))
    site.first.note_cluster("C1")
    site.first.note_topic("T1")
    return site


def test_a_log_becomes_segments_of_its_topic(site: Site) -> None:
    (done,) = site.run().partitions
    assert (done.written.records, done.from_offset, done.next, done.error) == (6, 0, 6, "")
    assert bases(site.store) == [0, 2, 4]
    fact = read_topic(Archive(site.store, ARCHIVE), "orders")
    assert fact is not None
    assert (fact.cluster_id, fact.current.topic_id, fact.partitions) == ("C1", "T1", 1)


@pytest.mark.parametrize("is_put", [False, True])
def test_a_killed_import_is_continued(site: Site, *, is_put: bool) -> None:
    site.run()
    whole = site.store.objects
    for number in range(1, 20):
        site.store = MortalStore(number, is_put=is_put)
        try:
            site.run()
        except Died:
            site.run()
        assert site.store.objects.keys() - index_files(site.store) == whole.keys() - index_files(MemoryStore()) - {
            key for key in whole if "/index/" in key
        }


def test_the_replica_of_the_highest_epoch_is_chosen_then_the_longest(site: Site) -> None:
    site.second.write(0, batch(0), batch(1, leader_epoch=3))
    assert site.run(site.first, site.second).partitions[0].next == 2
    third = LogDirectory(site.second.path.parent / "third")
    third.write(0, batch(0), batch(1, leader_epoch=3), batch(2, leader_epoch=3))
    site.store = MemoryStore()
    assert site.run(site.first, site.second, third).partitions[0].next == 3


def test_records_above_the_checkpoint_are_kept_by_default(site: Site) -> None:
    site.first.note_replicated(4)
    assert site.run().partitions[0].next == 6
    site.store = MemoryStore()
    assert site.run(committed_only=True).partitions[0].next == 4


@pytest.mark.parametrize(("replicated", "expected"), [(2, []), (3, [3]), (4, [4]), (5, [4])])
def test_damage_above_the_checkpoint_is_no_hole_of_the_committed_records(
    site: Site, replicated: int, expected: list[int]
) -> None:
    site.first.write(0, batch(0), batch(1), flipped(batch(2, 2)), batch(4))
    site.first.note_replicated(replicated)
    result = site.run(committed_only=True)
    assert [hole.until for hole in result.plan.partitions[0].holes] == expected
    assert [hole.until for hole in result.partitions[0].holes] == expected
    assert result.partitions[0].written.records == (3 if replicated == 5 else 2)


def test_bytes_without_offsets_between_batches_are_reported(site: Site) -> None:
    site.first.write(0, batch(0), bytes(100), batch(1))
    result = site.run()
    assert [hole.until for hole in result.plan.partitions[0].holes] == [NO_OFFSETS]
    assert result.partitions[0].written.records == 2


def test_the_begin_of_a_log_is_a_hole(site: Site) -> None:
    (site.first.path / "orders-0" / f"{0:020}.log").unlink()
    site.first.write(40, batch(40))
    (done,) = site.run().partitions
    assert [(hole.until, str(hole.cause)) for hole in done.holes] == [(40, "expired")]
    assert bases(site.store) == [0]


def test_damage_and_missing_files_are_holes(site: Site) -> None:
    site.first.write(6, batch(6), batch(7)[:-1] + b"?", batch(9))
    site.first.write(20, batch(20))
    (done,) = site.run().partitions
    assert [(hole.until, str(hole.cause)) for hole in done.holes] == [(9, "unreadable"), (20, "unreadable")]
    assert "are damaged" in done.holes[0].why
    assert "no file in" in done.holes[1].why
    assert done.written.records == 9


def test_gaps_of_a_compacted_log_are_no_holes(site: Site) -> None:
    site.first.write(6, batch(6), batch(9))
    site.first.write(20, batch(20))
    assert site.run().partitions[0].holes == []


def test_a_compacted_file_may_begin_or_end_anywhere(site: Site) -> None:
    site.first.write(6, batch(8), batch(9))
    assert site.run().partitions[0].holes == []
    site.store = MemoryStore()
    site.first.write(6, batch(6))
    site.first.write(9, batch(9))
    site.first.note_replicated(8, file="cleaner-offset-checkpoint")
    assert site.run().partitions[0].holes == []


def test_a_batch_that_its_producer_wrote_wrong_is_a_hole(site: Site) -> None:
    wrong = encode(batch_of([Rec(6, 1, 0, None, b"v")]), Oddities(count=2))
    site.first.write(6, wrong, batch(7))
    (done,) = site.run().partitions
    assert [(hole.until, str(hole.cause)) for hole in done.holes] == [(7, "unreadable")]
    assert done.written.records == 7


def test_transactions_are_decided_by_their_markers(site: Site) -> None:
    site.first.write(6, in_transaction(6, 1), in_transaction(7, 2), batch(8), in_transaction(9, 3))
    site.first.write(10, marker(10, 1, commit=True), marker(11, 2, commit=False), batch(12))
    (done,) = site.run().partitions
    assert done.written.records == 6 + 3  # those of producer 1, and two outside of transactions
    assert [(hole.until, str(hole.cause)) for hole in done.holes] == [(10, "undecided")]
    site.store = MemoryStore()
    (done,) = site.run(takes_undecided=True).partitions
    assert (done.written.records, done.holes) == (6 + 4, [])


def test_the_report_counts_transactions_and_has_all_notes(site: Site) -> None:
    other = bytearray(marker(8, 9, commit=True))
    other[61 + 8] = 2  # the type in its key
    site.first.write(6, in_transaction(6, 1), in_transaction(7, 2), with_crc(bytes(other)))
    site.first.note_replicated(4)
    (row,) = import_row(site.run(), 0)["planned"]
    assert (row["undecided"], row["other_markers"]) == (2, 1)
    assert ["not known to be committed" in note for note in row["notes"]] == [True]


def test_a_shard_without_partitions_is_no_dry_run(site: Site) -> None:
    result = site.run(shard=4, shards=4)
    assert next(import_lines(result)).split()[:4] == ["topic", "partition", "offsets", "records"]
    dry = ImportResult(plan=result.plan, is_dry_run=True)
    assert next(import_lines(dry)).split()[:4] == ["topic", "partition", "offsets", "files"]


def test_options_that_change_what_is_imported_must_stay(site: Site) -> None:
    site.run()
    for options in ({"committed_only": True}, {"takes_undecided": True}):
        with pytest.raises(UsageError, match="had other options"):
            site.run(**options)


def remove_logs(site: Site) -> None:
    for one in (site.first, site.second):
        (one.path / "orders-0" / f"{0:020}.log").unlink()


REFUSALS: dict[str, tuple[Callable[[Site], object], str]] = {
    "two clusters": (lambda site: site.second.note_cluster("C2"), "are of several clusters"),
    "two topic ids": (lambda site: site.second.note_topic("T2"), "are of topics of several ids"),
    "another cluster than given": (lambda site: site.second.note_cluster("C2"), "are of several clusters"),
    "no log file": (remove_logs, "has a log file"),
    "no topic id": (lambda site: site.second.note_topic("../ x"), "cannot be a topic_id"),
    "no cluster id": (lambda site: site.second.note_cluster("C1 \x01"), "cannot be a cluster.id"),
    "no cluster": (lambda site: (site.first.path / "meta.properties").unlink(), "--cluster-id"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_input_that_contradicts_itself_is_refused(site: Site, name: str) -> None:
    change, says = REFUSALS[name]
    site.second.write(0, batch(0))
    change(site)
    given = {"cluster_id": "C1"} if name == "another cluster than given" else {}
    with pytest.raises(UsageError, match=says):
        site.run(site.first, site.second, **given)
    assert not site.store.objects


def test_a_topic_of_the_archive_is_refused(site: Site) -> None:
    site.run()
    before = dict(site.store.objects)
    site.first.write(6, batch(6))
    with pytest.raises(UsageError, match="filled this topic from other input"):
        site.run()
    for key in [key for key in before if "/control/imports/" in key]:
        del site.store.objects[key]
    with pytest.raises(UsageError, match="is in the archive already"):
        site.run()
    site.run(renames={"orders": "orders.disk"})


def many_files(site: Site, count: int) -> ImportNote:
    file = describe_file(site.first.path / "orders-0" / f"{0:020}.log", f"orders-10000/{0:020}.log")
    return ImportNote(kind="kafka-log", topic="orders", files=(file,) * count)


def test_the_files_of_a_large_topic_are_noted(site: Site) -> None:
    note, archive = many_files(site, 10_000), Archive(site.store, ARCHIVE)
    refuse_too_many_files(note)
    note_import(archive, note)
    assert is_same_import(archive, note)


def test_a_topic_of_too_many_files_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_note, "is_readable", lambda *_: False)
    plan = plan_import(LogImportRequest(sources=[site.first.path]), lambda _: None)
    with pytest.raises(UsageError, match="orders: has 1 files, more than"):
        check_archive(Archive(site.store, ARCHIVE), plan)  # also of a dry run


def test_another_cluster_s_archive_is_refused(site: Site) -> None:
    site.run()
    site.first.note_cluster("C2")
    with pytest.raises(StrangerError, match="belongs to cluster C1"):
        site.run(renames={"orders": "orders.disk"})


def test_a_topic_without_an_id_gets_the_same_one_each_time(site: Site) -> None:
    (site.first.path / "orders-0" / "partition.metadata").unlink()
    first = site.run().plan.partitions[0].topic_id
    assert site.run().plan.partitions[0].topic_id == first
    assert len(first) == 22


def test_shards_share_the_partitions(site: Site) -> None:
    for partition in range(1, 5):
        site.first.write(0, batch(0), partition=partition)
    done = [site.run(shard=shard, shards=2).partitions for shard in (1, 2)]
    assert [[one.source.partition for one in some] for some in done] == [[0, 2, 4], [1, 3]]


class BusyStore(MemoryStore):
    """Refuses some puts of segments for now."""

    def __init__(self, *refused: int) -> None:
        super().__init__()
        self._refused = refused
        self._puts = 0

    def put_if_absent(self, key: str, *arguments: Any, **named: Any) -> str | None:  # noqa: ANN401 - as the store's
        if "/topics/orders/" in key and "/control/" not in key:
            self._puts += 1
            if self._puts in self._refused:
                raise StoreTemporaryError("503", cause="busy")
        return super().put_if_absent(key, *arguments, **named)


class RefusingStore(MemoryStore):
    """Fails at the first put of a segment."""

    def put_if_absent(self, key: str, *arguments: Any, **named: Any) -> str | None:  # noqa: ANN401 - as the store's
        if "/topics/orders/" in key and "/control/" not in key:
            raise TemporaryError("503", cause="away")
        return super().put_if_absent(key, *arguments, **named)


def test_a_busy_store_costs_no_record(site: Site) -> None:
    site.store = BusyStore(2, 3, 5)
    (done,) = site.run().partitions
    assert (done.written.records, done.holes, done.error) == (6, [], "")
    assert bases(site.store) == [0, 2, 4]


def test_a_partition_that_failed_leaves_nothing_in_the_spool(site: Site) -> None:
    site.store = RefusingStore()
    result = site.run()
    (done,) = result.partitions
    assert (done.error, done.next, exit_code(result, [done.error])) == ("503", 0, 4)
    assert [path for path in site.spool.rglob("*") if path.is_file()] == []


def test_each_damage_is_a_hole(site: Site) -> None:
    site.first.write(6, batch(6), flipped(batch(7, 3)))
    site.first.write(10, flipped(batch(10, 3)), batch(13))
    site.first.write(14, flipped(batch(14, 2)))
    site.first.write(16)
    (done,) = site.run().partitions
    assert [(hole.until, str(hole.cause)) for hole in done.holes] == [
        (10, "unreadable"),
        (13, "unreadable"),
        (16, "unreadable"),
    ]
    assert done.written.records == 8


@pytest.mark.parametrize("has_records", [False, True])
def test_a_segment_has_few_holes(site: Site, *, has_records: bool) -> None:
    """Without a record there is no segment to put: later holes join."""
    first = 1 if has_records else 0
    holes = [flipped(batch(offset)) if offset % 2 else in_transaction(offset, 7) for offset in range(first, 120)]
    site.first.write(0, *([batch(0)] if has_records else []), *holes, batch(120))
    site.run()
    assert max(len(one.holes) for one in facts_of(site)) == MOST_HOLES
    assert sum(one.records for one in facts_of(site)) == 1 + first
    spans = [(hole.first_offset, hole.last_offset) for one in facts_of(site) for hole in one.holes]
    assert [offset for begin, end in spans for offset in range(begin, end + 1)] == [*range(first, 120)]
    joined = facts_of(site)[-1].holes[-1]
    assert (str(joined.cause), joined.last_offset) == ("unreadable", 119)


def test_a_compacted_batch_behind_damage_is_kept(site: Site) -> None:
    kept = encode(batch_of([Rec(12, 1, 0, None, b"v")], base_offset=10, last_offset=14))
    site.first.write(6, flipped(batch(6, 4)), kept, batch(15))
    (done,) = site.run().partitions
    assert [hole.until for hole in done.holes] == [10]
    assert done.written.records == 6 + 2


def test_an_aborted_transaction_before_an_unreadable_batch_takes_no_later_one(site: Site) -> None:
    wrong = encode(batch_of([Rec(8, 1, 0, None, b"v")]), Oddities(count=2))
    site.first.write(6, in_transaction(6, 7), marker(7, 7, commit=False), wrong)
    site.first.write(9, in_transaction(9, 7), marker(10, 7, commit=True), batch(11))
    (done,) = site.run().partitions
    assert [hole.until for hole in done.holes] == [9]
    assert done.written.records == 6 + 2


def test_a_transaction_before_a_missing_file_is_undecided(site: Site) -> None:
    site.first.write(6, in_transaction(6, 7))
    site.first.write(20, in_transaction(20, 7), marker(21, 7, commit=True))
    (done,) = site.run().partitions
    assert [(hole.until, str(hole.cause)) for hole in done.holes] == [(7, "undecided"), (20, "unreadable")]
    assert done.written.records == 6 + 1


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_transaction_before_a_missing_file_of_a_compacted_log_is_undecided(site: Site, *, is_lost: bool) -> None:
    """The missing file shows by its index; else the offsets were compacted, and the last marker aborts both."""
    site.first.note_replicated(10, file="cleaner-offset-checkpoint")
    site.first.write(6, in_transaction(7, 7))
    if is_lost:
        (site.first.path / "orders-0" / f"{10:020}.index").touch()
    site.first.write(20, in_transaction(20, 7), marker(21, 7, commit=False), batch(22))
    (done,) = site.run().partitions
    expected = [(8, "undecided"), (20, "unreadable")] if is_lost else []
    assert [(hole.until, str(hole.cause)) for hole in done.holes] == expected
    assert done.written.records == 6 + 1


def test_of_equal_replicas_the_whole_one_is_chosen(site: Site) -> None:
    site.second.write(0, batch(0), flipped(batch(1)), *(batch(offset) for offset in range(2, 6)))
    for sources in ((site.first, site.second), (site.second, site.first)):
        site.store = MemoryStore()
        assert site.run(*sources).partitions[0].holes == []


def test_each_deleted_topic_needs_another_name(site: Site) -> None:
    for name in ("a", "c"):
        (site.first.path / f"{name}-0.{'0' * 32}-delete").mkdir()
    with pytest.raises(UsageError, match="topic c needs another name"):
        site.run(deleted=True, renames={"a": "b"})


def facts_of(site: Site) -> list[SegmentFacts]:
    found = [(ARCHIVE.parse_segment(key), one.metadata) for key, one in sorted(site.store.objects.items())]
    facts = [facts_from_metadata(metadata, "") for key, metadata in found if key is not None]
    return [one for one in facts if one is not None]


@pytest.mark.parametrize(
    ("replicated", "cleaned", "expected"), [(4, 0, 4), (4, 5, 5), (900, 0, 900), (None, 5, LAST_LONG)]
)
def test_the_stable_end_is_what_the_disk_tells(site: Site, replicated: int | None, cleaned: int, expected: int) -> None:
    if replicated is not None:
        site.first.note_replicated(replicated)
    site.first.note_replicated(cleaned, file="cleaner-offset-checkpoint")
    site.run()
    assert {one.stable_end for one in facts_of(site)} == {expected}


@pytest.mark.parametrize("name", [f"{90:020}.index", f"{90:020}.timeindex"])
def test_a_missing_file_shows_by_its_index(site: Site, name: str) -> None:
    site.first.note_replicated(6)
    for kept in (f"{0:020}.index", f"{2:020}.index", f"{2:020}.log.deleted"):
        (site.first.path / "orders-0" / kept).touch()
    assert site.run().plan.partitions[0].details["lost"] == []
    site.store = MemoryStore()
    (site.first.path / "orders-0" / name).touch()
    assert [Path(path).name for path in site.run().plan.partitions[0].details["lost"]] == [name]
    assert {one.stable_end for one in facts_of(site)} == {LAST_LONG}


def test_the_input_of_a_rerun_includes_what_filled_a_hole(site: Site) -> None:
    site.first.write(0, batch(0), flipped(batch(1)), batch(2), batch(3))
    site.second.write(0, batch(0), batch(1), batch(2))
    for one in (site.first, site.second):
        one.note_epochs((0, 0))
    (done,) = site.run(site.first, site.second).partitions
    assert (done.written.records, done.holes) == (4, [])
    with pytest.raises(UsageError, match="filled this topic from other input"):
        site.run(site.first)
    assert site.run(site.second, site.first).partitions[0].written.records == 0
