"""The bytes of what a process tells of its generations, as the first version that has them writes them: the files of `moments-1` are never made again (docs/format.md §8)."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from archiver.archive.copies.moments import HeardMoment, Moment, MomentNote, put_moments, read_notes
from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore, StoredObject

EXPECTED = Path(__file__).parent / "moments-1"
NAME = "moments/blue/0123456789abcdef/000000.json"
AT_MS = 1_800_000_000_000
PUT_AT = datetime.fromtimestamp(AT_MS // 1000 + 5, UTC)
NOTES = [
    MomentNote(topic="orders", life=0, partition=10, generation=7, at_ms=AT_MS, last_stable=2**63 - 1),
    MomentNote(topic="orders", life=2, partition=0, generation=12, at_ms=None, last_stable=0),
    MomentNote(topic="_schemas", life=0, partition=0, generation=0, at_ms=AT_MS - 60_000, last_stable=0),
]


def test_moments_are_written_byte_for_byte_as_ever() -> None:
    store = MemoryStore()
    assert put_moments(Archive(store, Layout()), "blue", "0123456789abcdef", 0, NOTES)
    written = {key.removeprefix("control/"): found.body.decode() for key, found in store.objects.items()}
    assert written == {
        path.relative_to(EXPECTED).as_posix(): path.read_bytes().decode() for path in EXPECTED.rglob("*.json")
    }


def test_moments_say_what_was_told() -> None:
    store = MemoryStore()
    content = (EXPECTED / NAME).read_bytes()
    store.put_if_absent(f"control/{NAME}", content, {}, kind=ObjectKind.FACT)
    store.objects[f"control/{NAME}"] = StoredObject(content, {}, PUT_AT)
    assert read_notes(Archive(store, Layout()), "blue", pytest.fail).heard == {
        (RolePlace(topic="orders", life=0, partition=10), 7): HeardMoment(Moment(AT_MS, 2**63 - 1), PUT_AT),
        (RolePlace(topic="orders", life=2, partition=0), 12): HeardMoment(None, PUT_AT),
        (RolePlace(topic="_schemas", life=0, partition=0), 0): HeardMoment(Moment(AT_MS - 60_000, 0), PUT_AT),
    }
