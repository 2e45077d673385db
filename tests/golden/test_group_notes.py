"""The bytes of what an application notes of a group, as the first version that has them writes them: the files of `group-notes-1` are never made again (docs/format.md §8)."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from archiver.archive.format.control import append_fact, decode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.groups.target.application_notes import ApplicationNotes, GroupNote, NotedMove
from archiver.kafka.groups.group_positions import GroupPosition
from tests.support.memory_store import MemoryStore

EXPECTED = Path(__file__).parent / "group-notes-1"
GROUP = "facturation-é"
BELOW = f"restores/mine/@groups/{hashlib.sha256(GROUP.encode()).hexdigest()}"
AS_OF_MS = 1_800_000_000_000
IDS = {"orders": "A", "old": ""}
BEFORE = GroupPosition(offset=3, leader_epoch=2, metadata="b\n")
MOVES = {
    ("orders", 0): NotedMove.of(BEFORE, GroupPosition(offset=2**63 - 1, metadata="é"), AS_OF_MS),
    ("orders", 10): NotedMove.of(None, GroupPosition(offset=0), AS_OF_MS),
    ("old", 2): NotedMove.of(GroupPosition(offset=7), GroupPosition(offset=7), applied=True),
}
APPLIED = {("orders", 0): replace(MOVES["orders", 0], applied=True)}


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), Layout())


def notes_of(archive: Archive) -> ApplicationNotes:
    return ApplicationNotes(archive, "mine", "c")


def bodies(archive: Archive) -> dict[str, str]:
    return {
        item.key.removeprefix("control/"): (archive.store.get(item.key) or (b"", {}))[0].decode()
        for item in archive.store.list("")
    }


def expected() -> dict[str, str]:
    return {
        path.relative_to(EXPECTED).as_posix(): path.read_bytes().decode() for path in sorted(EXPECTED.rglob("*.json"))
    }


def test_notes_are_written_byte_for_byte_as_ever(archive: Archive) -> None:
    first = notes_of(archive).put(None, GROUP, "billing", MOVES, IDS)
    notes_of(archive).put(first, GROUP, "billing", APPLIED, IDS)
    assert bodies(archive) == expected()


def test_notes_say_what_was_noted(archive: Archive) -> None:
    assert [*expected()] == [f"{BELOW}/{number:06}.json" for number in range(2)]
    for number, (name, content) in enumerate(expected().items()):
        fact = decode_fact(content.encode(), name)
        append_fact(archive, BELOW, lambda _, fact=fact: fact)  # type: ignore[misc]
        note = notes_of(archive).read([GROUP])[0][GROUP]
        assert isinstance(note, GroupNote)
        assert (note.group, note.source_group, note.target_cluster_id) == (GROUP, "billing", "c")
        for place, move in ({**MOVES, **APPLIED} if number else MOVES).items():
            assert note.move(place, IDS[place[0]]) == move
