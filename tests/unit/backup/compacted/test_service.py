"""What a process of an instance notes, whatever the store refuses, and for as long as it runs."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.backup.compacted.instance_metrics import NOTHING_SEEN, InstanceMetrics
from archiver.backup.compacted.service import InstanceRequest, InstanceService
from archiver.config.model import CompactedConfig, GroupProtocol
from archiver.errors import StoreError
from archiver.kafka.group import GroupSettings
from archiver.kafka.settings import KafkaSettings
from archiver.process.workers import Workers
from tests.support.memory_store import MemoryStore


class KeepsAll(MemoryStore):
    def delete(self, keys: Iterable[str]) -> None:
        if list(keys):
            raise StoreError("DeleteObject is denied")


def service_of(store: MemoryStore) -> InstanceService:
    """No broker is asked before `run`. To be made on a loop."""
    sink = SimpleNamespace(archive=Archive(store, Layout()))
    return InstanceService(
        InstanceRequest(
            backup=cast(
                "Any",
                SimpleNamespace(sink=sink, kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1")),
            ),
            config=CompactedConfig(enabled=True, instances=("a", "b")),
            name="a",
            begins_first=True,
            pin_ms=0,
            counts=InstanceMetrics(lambda: (), lambda: NOTHING_SEEN, lambda: 0),
        ),
        GroupSettings(group="g", protocol=GroupProtocol.CLASSIC, session_timeout_ms=1, refresh_ms=1),
        Workers(1, "test"),
    )


def test_a_denied_delete_blocks_no_moment(caplog: pytest.LogCaptureFixture) -> None:
    store = KeepsAll()

    async def note() -> None:
        service = service_of(store)
        for _ in range(5):
            await service._note_moments()

    asyncio.run(note())
    assert len(store.objects) == 5
    assert len([one for one in caplog.records if "DeleteObject is denied" in one.getMessage()]) == 1
