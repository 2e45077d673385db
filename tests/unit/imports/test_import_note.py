"""Positions of groups that an import adds to the newest snapshot."""

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.format.store_clock import machine_now_ms
from archiver.codec.selection import LAST_LONG
from archiver.groups.positions.snapshots import read_snapshots, snapshot_fact, stream_of, written_position
from archiver.imports.filling.import_note import note_positions
from tests.support.memory_store import MemoryStore
from tests.support.racing_store import RacingStore

LAYOUT = Layout("p")


def put_snapshot(store: MemoryStore, offset: int) -> None:
    fact = snapshot_fact("c", machine_now_ms(), 0, {"live": {"orders": {"0": written_position(offset)}}}, [])
    append_fact(Archive(store, LAYOUT), stream_of(machine_now_ms()), lambda _: fact)


def refuse(problem: str) -> None:
    raise AssertionError(problem)


def newest_offsets(archive: Archive) -> dict[str, int]:
    groups = read_snapshots(archive, LAST_LONG, refuse).groups
    return {f"{group}/{topic}": one[0].offset for group, held in groups.items() for topic, one in held.topics.items()}


def test_a_snapshot_that_is_put_meanwhile_keeps_its_positions() -> None:
    store = RacingStore()
    put_snapshot(store, 10)
    store.before.append(lambda: put_snapshot(store, 99))
    archive = Archive(store, LAYOUT)
    note_positions(archive, "c", {"imported": {"payments": {0: 5}}})
    assert newest_offsets(archive) == {"live/orders": 99, "imported/payments": 5}
    assert len(store.objects) == 3


def test_positions_are_added_once() -> None:
    archive = Archive(MemoryStore(), LAYOUT)
    for _ in range(2):
        note_positions(archive, "c", {"imported": {"payments": {0: 5}}})
    assert len(list(archive.store.list(""))) == 1
