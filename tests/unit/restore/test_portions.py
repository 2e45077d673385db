"""In which portions the topics of a restore are purged, created and filled."""

from typing import Any, cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.kafka.login.settings import KafkaSettings
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.purge.purge_checks import Purge
from archiver.restore.targets.targets import Targets
from tests.support.memory_store import MemoryStore


def topic(name: str) -> TopicPlan:
    return TopicPlan(source=name, life=0, target=name, partitions=(), final_configs={}, archived_retention={})


@pytest.mark.parametrize(("purged", "others", "sizes"), [(0, 1000, [1000]), (8, 16, [24]), (17, 3, [11, 8, 1])])
def test_few_topics_are_purged_in_each_portion(purged: int, others: int, sizes: list[int]) -> None:
    names = [f"p{number:02}" for number in range(purged)]
    notes = RestoreNotes(Archive(MemoryStore(), Layout("p")), "mine", "c")
    request = RestoreRequest(first="p16")
    targets = Targets(KafkaSettings.parse({"bootstrap.servers": "none:9092"}), notes, request, cast("Any", None))
    targets.purge = Purge(dict.fromkeys(names, "A"))
    portions = targets.portions([*map(topic, names), *(topic(f"o{number}") for number in range(others))])
    assert [len(some) for some in portions] == sizes
    assert all(sum(one.target in names for one in some) <= 8 for some in portions)
    assert "p16" not in names or "p16" in [one.target for one in portions[0]]
    assert len(notes.replaced(names)) == (purged if len(sizes) > 1 else 0)
