"""The bytes of what a user has accepted of logs, as the first version that has them writes them: the files of `accepted-1` are never made again (docs/format.md §8)."""

from pathlib import Path

import pytest

from archiver.archive.accepted_logs import AcceptedEnd, AcceptedLog, accept_logs, read_accepted
from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.errors import CorruptSegmentError
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore

EXPECTED = Path(__file__).parent / "accepted-1"
FIRST = {3: AcceptedLog(log_start=5), 10: AcceptedLog(end=AcceptedEnd(log_end=2**63 - 2, position=2**63 - 1))}
THEN = {3: AcceptedLog(end=AcceptedEnd(log_end=7, position=9)), 0: AcceptedLog(log_start=0)}


def test_what_is_accepted_is_written_byte_for_byte_as_ever() -> None:
    store = MemoryStore()
    archive = Archive(store, Layout())
    accept_logs(archive, "orders", 2, FIRST)
    accept_logs(archive, "orders", 2, FIRST)  # says nothing new
    accept_logs(archive, "orders", 2, THEN)
    written = {key.removeprefix("control/"): found.body.decode() for key, found in store.objects.items()}
    assert written == {
        path.relative_to(EXPECTED).as_posix(): path.read_bytes().decode() for path in EXPECTED.rglob("*.json")
    }


def test_the_newest_says_all_that_was_accepted() -> None:
    archive = _archive_with("accepted/orders/2/000001.json", "accepted/orders/2/000001.json")
    assert read_accepted(archive, "orders", 2) == {
        **FIRST,
        0: AcceptedLog(log_start=0),
        3: AcceptedLog(log_start=5, end=AcceptedEnd(log_end=7, position=9)),
    }


def test_a_fact_of_another_life_is_refused() -> None:
    archive = _archive_with("accepted/orders/2/000001.json", "accepted/orders/1/000001.json")
    with pytest.raises(CorruptSegmentError, match="it speaks of another topic than its key"):
        read_accepted(archive, "orders", 1)


def _archive_with(name: str, put_as: str) -> Archive:
    store = MemoryStore()
    store.put_if_absent(f"control/{put_as}", (EXPECTED / name).read_bytes(), {}, kind=ObjectKind.FACT)
    return Archive(store, Layout())
