"""Which copies unfinished restores read, by the notes that restores themselves write."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from archiver.archive.handle import Archive
from archiver.archive.layout import CopyKey, Layout
from archiver.archive.parts import PART_COLUMNS, FactsOfParts, ObjectPart, ObjectParts
from archiver.archive.restore_pins import RestorePins
from archiver.archive.segment_facts import PartFacts
from archiver.codec.selection import Selection
from archiver.restore.notes import RestoreNotes
from archiver.restore.plan import PartitionPlan, TopicPlan
from archiver.restore.request import RestoreRequest
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("p")
COPY = CopyKey(instance="a", topic="orders", life=1, partition=3, generation=7)
OTHER = replace(COPY, partition=4)
FACTS = PartFacts(True, *range(len(PartFacts._fields) - 1))


def key_in(copy: CopyKey, base: int) -> str:
    return LAYOUT.copied_segment_key(copy, base)


def plan_of(*partitions: Sequence[ObjectPart]) -> TopicPlan:
    return TopicPlan(
        source="orders",
        life=1,
        target="back",
        partitions=tuple(
            PartitionPlan(
                partition=number,
                records=1,
                stored_bytes=1,
                selection=Selection(),
                selection_digest="d" * 64,
                parts=parts,
                facts=FactsOfParts.of([FACTS] * len(parts)),
                problem="",
                missing=(),
            )
            for number, parts in enumerate(partitions)
        ),
        final_configs={},
        archived_retention={},
        appends=False,
        repartition=None,
    )


def columns_of(copy: CopyKey, count: int) -> ObjectParts:
    base = np.arange(count, dtype=np.int64)
    columns = dict.fromkeys(PART_COLUMNS, base) | {"named_next": base * 0}
    return ObjectParts(key_in(copy, 0)[: -len("00000000000000000000.data")], *columns.values())


def noted(plan: TopicPlan, *, is_finished: bool = False) -> Archive:
    archive = Archive(MemoryStore(), LAYOUT)
    notes = RestoreNotes(archive, "mine", "c")
    notes.note_plans([plan], {"back": "T"}, RestoreRequest().terms)
    if is_finished:
        notes.note_finished({"back": "T"})
    return archive


@pytest.mark.parametrize(
    "parts",
    [
        [[ObjectPart(key_in(COPY, 0), 0), ObjectPart(key_in(COPY, 9), 9)], [ObjectPart(key_in(OTHER, 0), 0)]],
        [columns_of(COPY, 6_000), columns_of(OTHER, 21_000)],
    ],
    ids=["rows", "pieces"],
)
def test_the_copies_of_a_plan_are_found(parts: Sequence[Sequence[ObjectPart]]) -> None:
    found = RestorePins(noted(plan_of(*parts))).read(0)
    assert (found.restores, found.unreadable) == ({COPY: ("mine",), OTHER: ("mine",)}, ())


def test_a_finished_restore_pins_nothing_and_one_of_history_neither() -> None:
    plan = plan_of([ObjectPart(key_in(COPY, 0), 0)])
    assert RestorePins(noted(plan, is_finished=True)).read(0).restores == {}
    assert RestorePins(noted(plan_of([ObjectPart("p/topics/orders/partition=3/x", 0)]))).read(0).restores == {}


def test_a_plan_is_read_once_and_only_while_it_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = noted(plan_of([ObjectPart(key_in(COPY, 0), 0)]))
    pins, asked, get = RestorePins(archive), list[str](), archive.store.get

    def count(key: str, most_bytes: int = 2**30) -> object:
        asked.append(key)
        return get(key, most_bytes)

    monkeypatch.setattr(archive.store, "get", count)
    assert pins.read(2**50).restores == {}
    assert asked == []
    assert [len(pins.read(0).restores) for _ in range(3)] == [1, 1, 1]
    assert len(asked) == 1


def test_a_piece_that_is_gone_is_told() -> None:
    archive = noted(plan_of(columns_of(COPY, 6_000)))
    archive.store.delete([item.key for item in archive.store.list("p/control/restores/mine/back/plan/0-")])
    found = RestorePins(archive).read(0)
    assert found.restores == {}
    assert "was listed, and is gone" in found.unreadable[0]
