"""Where partitions without an archive begin, when notes about that were put by somebody else."""

import asyncio
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.format.control import encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topics import PartitionSource
from archiver.backup.opening.start_offsets import StartOffset, StartOffsets
from archiver.process.running.workers import Workers
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore

SOURCE = PartitionSource(topic="t", partition=0, life=0, topic_id="T", cluster_id="c")
AT_MS = 1000
PRESENT = {"format": 1, "at_ms": AT_MS, "topics": {"t": {"topic_id": "T", "ends": {"0": [40, 0]}}}}


class Cluster:
    """One topic, whose log ended at `end` when it was asked, and reached the wanted time at `at_time`."""

    def __init__(self, *, end: int | None = 10, at_time: int = 10) -> None:
        self.end, self.at_time = end, at_time

    async def describe_topics(self, _: object) -> Mapping[str, Any]:
        return {"t": SimpleNamespace(topic_id="T", partitions=[0])}

    async def offsets_each(self, _: object) -> tuple[Mapping[tuple[str, int], Any], Mapping[tuple[str, int], Any]]:
        return ({} if self.end is None else {("t", 0): SimpleNamespace(last_stable=self.end, leader_epoch=0)}), {}

    async def offset_at(self, *_: object) -> tuple[int, int]:
        return self.at_time, 0


class Scene:
    def __init__(self, cluster: Cluster) -> None:
        self.archive = Archive(MemoryStore(), Layout("p"))
        self.cluster = cluster

    def begin(self) -> StartOffset:
        """Where a backup begins."""
        starts = StartOffsets(
            cast("Any", self.cluster),
            cast("Any", SimpleNamespace(archive=self.archive)),
            Workers(1, "test"),
            "latest",
            clock_ms=lambda: AT_MS,
        )

        async def run() -> StartOffset:
            await starts.note_present()
            return await starts.first(SOURCE)

        return asyncio.run(run())

    def forge(self, stream: str, number: int, fact: Mapping[str, object]) -> None:
        key = self.archive.layout.fact_key(stream, number)
        assert self.archive.store.put_if_absent(key, encode_fact(fact), {}, kind=ObjectKind.FACT)


def start_at(offset: int) -> Mapping[str, object]:
    return {"format": 1, "topic_id": "T", "offset": offset, "leader_epoch": 0}


@pytest.mark.parametrize("known", [True, False])
def test_a_later_note_of_what_was_present_hides_no_record(known: bool) -> None:
    scene = Scene(Cluster())
    if known:
        assert scene.begin() == StartOffset(10, 0, "T")
    scene.forge("present", 1, PRESENT)
    assert scene.begin() == StartOffset(10, 0, "T")


@pytest.mark.parametrize("end", [10, None])
@pytest.mark.parametrize("number", [0, 1])
def test_a_later_start_than_the_first_one_hides_no_record(
    end: int | None, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(Cluster(end=end))
    if number:
        scene.begin()
        if end is not None:
            scene.forge("starts/t/0", 0, start_at(10))
    scene.forge("starts/t/0", number, start_at(40))
    with caplog.at_level(logging.WARNING):
        assert scene.begin() == StartOffset(10, 0, "T")
    assert "control/starts/t/0 says that it begins at offset 40, and" in caplog.text


@pytest.mark.parametrize("end", [10, None])
def test_an_earlier_start_holds_as_after_a_cut(end: int | None) -> None:
    scene = Scene(Cluster(end=end))
    scene.begin()
    scene.forge("starts/t/0", 0 if end is not None else 1, start_at(4))
    scene.cluster.at_time = 90  # what lay between has expired
    assert scene.begin() == StartOffset(4, 0, "T")


def test_the_first_start_holds_when_the_log_has_grown() -> None:
    scene = Scene(Cluster(end=10))
    assert scene.begin() == StartOffset(10, 0, "T")
    scene.cluster.end = 50
    assert scene.begin() == StartOffset(10, 0, "T")


def test_the_first_start_holds_when_the_log_has_lost_its_beginning() -> None:
    scene = Scene(Cluster(end=None))
    assert scene.begin() == StartOffset(10, 0, "T")
    scene.cluster.at_time = 90
    assert scene.begin() == StartOffset(10, 0, "T")
