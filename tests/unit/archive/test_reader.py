"""Parts of objects read one after the other, past damage."""

from pathlib import Path

import pytest

from archiver.archive.reading.reader import read_parts
from archiver.archive.segments.parts import ObjectPart
from archiver.codec.avro import BLOCK_BYTES
from archiver.errors import NotWholeError
from archiver.store.port import ObjectKind
from tests.support.frames import records_of
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.segments import written
from tests.unit.archive.test_segment import with_facts

KEY = "topics/orders/partition=3/orders+3-00000000000000000000.data"
RECORDS = [Rec(offset, 0, 0, None, bytes(BLOCK_BYTES)) for offset in range(4)]  # each in a block of its own


@pytest.mark.parametrize("changes", [{"records": 3, "unserved": 0}, {"last": 5}])
def test_a_damaged_copy_without_metadata_gives_no_record(tmp_path: Path, changes: dict[str, int]) -> None:
    """Nothing covers its header: only the last block shows that the facts there are wrong."""
    store = MemoryStore()
    content, facts = written(tmp_path, RECORDS)
    forged, _ = with_facts(content, facts, **changes)
    assert store.put_if_absent(KEY, forged, {}, kind=ObjectKind.SEGMENT)
    skipped: list[tuple[ObjectPart, NotWholeError]] = []
    part = ObjectPart(object_key=KEY, from_offset=0)
    frames = read_parts(store, "orders", 3, [part], skip=lambda *damage: skipped.append(damage))
    assert records_of(*frames) == []
    ((left_out, error),) = skipped
    assert left_out is part
    assert "the object was cut" in str(error)


def test_a_copy_without_metadata_is_read_by_its_header(tmp_path: Path) -> None:
    store = MemoryStore()
    content, _ = written(tmp_path, RECORDS)
    assert store.put_if_absent(KEY, content, {}, kind=ObjectKind.SEGMENT)
    skipped: list[tuple[ObjectPart, NotWholeError]] = []
    part = ObjectPart(object_key=KEY, from_offset=2)
    frames = read_parts(store, "orders", 3, [part], skip=lambda *damage: skipped.append(damage))
    assert records_of(*frames) == RECORDS[2:]
    assert not skipped
