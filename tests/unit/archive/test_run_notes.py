"""Notes of runs: what is kept of them, and that no failure of theirs fails a run."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.run_notes import (
    ListedRun,
    Outcome,
    RunKind,
    RunNote,
    list_runs,
    put_run_note,
    read_run,
    stream_of,
)
from archiver.archive.reading.lost_control import lost_control_objects
from archiver.errors import CorruptSegmentError, StoreError
from archiver.store.port import ObjectKind
from archiver.upkeep.control_check import check_control
from tests.support.memory_store import MemoryStore

NOTE = RunNote(
    kind=RunKind.BACKUP,
    name="0123456789abcdef",
    outcome=Outcome.RUNNING,
    took_ms=61_000,
    durable_through_ms=1_700_000_000_000,
    partitions=26,
    problems=("orders-3 fails",),
    limits={"backup.segment.age": "10min"},
    gone=("payments",),
)


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), Layout("kafka"))


def test_a_note_comes_back_as_it_was_put(archive: Archive) -> None:
    assert put_run_note(archive, NOTE) == ""
    (listed,) = list_runs(archive)
    assert read_run(archive, listed) == NOTE
    assert [one.key for one in archive.store.list("")] == [
        "kafka/control/runs/backup/0123456789abcdef/running/000000.json"
    ]


def test_the_last_two_of_each_stream_are_kept(archive: Archive) -> None:
    drills = [replace(NOTE, kind=RunKind.DRILL, name="all", outcome=one) for one in (Outcome.DONE, Outcome.FAILED)]
    for number in range(400):
        put_run_note(archive, drills[number % 7 == 0])
    numbers = sorted((str(one.outcome), one.number) for one in list_runs(archive))
    assert numbers == [("done", 340), ("done", 341), ("failed", 56), ("failed", 57)]


def test_the_processes_heard_of_last_are_kept(archive: Archive) -> None:
    for number in range(120):
        put_run_note(archive, replace(NOTE, name=f"{number:016x}"))
    assert sorted({one.name for one in list_runs(archive)}) == [f"{number:016x}" for number in range(70, 120)]


def test_verify_finds_no_fault_with_them(archive: Archive) -> None:
    for _ in range(5):
        put_run_note(archive, NOTE)
    assert check_control(archive) == []
    assert lost_control_objects(archive, {}) == []


@pytest.mark.parametrize("stream", ["runs/backup/a/b/running", "runs/other/a/running", "runs/backup/a/other", "runs/a"])
def test_other_objects_there_are_skipped(archive: Archive, stream: str) -> None:
    archive.store.put_if_absent(archive.layout.fact_key(stream, 0), b"{}", {}, kind=ObjectKind.FACT)
    assert list_runs(archive) == []


def test_a_note_of_another_stream_is_refused(archive: Archive) -> None:
    put_run_note(archive, NOTE)
    (body, _) = archive.store.get(archive.layout.fact_key(stream_of(NOTE), 0)) or (b"", {})
    other = stream_of(replace(NOTE, name="a"))
    archive.store.put_if_absent(archive.layout.fact_key(other, 0), body, {}, kind=ObjectKind.FACT)
    listed = ListedRun(kind=RunKind.BACKUP, name="a", outcome=Outcome.RUNNING, number=0, put_ms=0)
    with pytest.raises(CorruptSegmentError, match="names something else"):
        read_run(archive, listed)


class DenyingStore(MemoryStore):
    """Denies one operation."""

    def __init__(self, denied: str) -> None:
        super().__init__()
        self.denied = denied

    def put_if_absent(self, *given: object, **more: object) -> str | None:
        if self.denied == "put":
            raise StoreError("PutObject was denied")
        return super().put_if_absent(*given, **more)  # type: ignore[arg-type]

    def delete(self, keys: Iterable[str]) -> None:
        if self.denied == "delete" and list(keys):
            raise StoreError("DeleteObjects was denied")


def test_a_refused_note_is_reported_and_fails_nothing() -> None:
    assert "`archiver status` will not show this run" in put_run_note(
        Archive(DenyingStore("put"), Layout("kafka")), NOTE
    )


def test_a_refused_delete_is_reported_and_the_note_stays() -> None:
    archive = Archive(DenyingStore("delete"), Layout("kafka"))
    told = [put_run_note(archive, NOTE) for _ in range(3)]
    assert told == ["", "", "DeleteObjects was denied; old notes of runs are not deleted"]
    assert len(list_runs(archive)) == 3
