"""The bytes of a topic's fact with the configs that hold, as the first version that has them writes them: the files of `topic-policies-1` are never made again (docs/format.md §8)."""

from pathlib import Path

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import read_topic_history
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore

EXPECTED = Path(__file__).parent / "topic-policies-1"
POLICIES = [
    None,
    {"cleanup.policy": "compact,delete", "delete.retention.ms": "86400000"},
    {"cleanup.policy": "compact"},
]


def test_policies_are_written_byte_for_byte_as_ever() -> None:
    store = MemoryStore()
    for effective in POLICIES:
        record_topic(
            Archive(store, Layout()),
            topic="t",
            topic_id="A",
            cluster_id="c",
            partitions=2,
            configs={"retention.ms": "5"},
            effective=effective,
        )
    written = {key.removeprefix("control/"): found.body.decode() for key, found in store.objects.items()}
    assert written == {
        path.relative_to(EXPECTED).as_posix(): path.read_bytes().decode() for path in EXPECTED.rglob("*.json")
    }


def test_policies_say_what_was_recorded() -> None:
    store = MemoryStore()
    for path in EXPECTED.rglob("*.json"):
        store.put_if_absent(f"control/{path.relative_to(EXPECTED)}", path.read_bytes(), {}, kind=ObjectKind.FACT)
    history = read_topic_history(Archive(store, Layout()), "t")
    assert [fact.effective for fact in history] == POLICIES
