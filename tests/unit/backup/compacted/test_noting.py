"""A process of an instance notes what it has read for as long as it runs."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from archiver.archive.copies.moments import NotedLimits, read_notes
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import LAST_FACT_NUMBER, Layout
from archiver.backup.compacted.work.instance_metrics import NOTHING_SEEN, InstanceMetrics
from archiver.backup.compacted.work.instance_service import InstanceRequest, InstanceService
from archiver.backup.reports.troubles import Troubles
from archiver.config.model import CompactedConfig, GroupProtocol
from archiver.kafka.groups.group import GroupSettings
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.running.workers import Workers
from tests.support.memory_store import MemoryStore

DAY_MS = 86_400_000


def _service(archive: Archive) -> InstanceService:
    backup = SimpleNamespace(
        kafka=KafkaSettings.parse({"bootstrap.servers": "127.0.0.1:1"}),
        sink=SimpleNamespace(archive=archive, troubles=Troubles()),
    )
    group = GroupSettings(group="g-a", protocol=GroupProtocol.CLASSIC, session_timeout_ms=6000, refresh_ms=1000)
    request = InstanceRequest(
        backup=cast("Any", backup),
        config=CompactedConfig(enabled=True, instances=("a", "b")),
        name="a",
        begins_first=True,
        pin_ms=0,
        counts=InstanceMetrics(lambda: (), lambda: NOTHING_SEEN, lambda: 0),
    )
    return InstanceService(request, group, Workers(1, "pool"))


def test_the_note_after_the_last_number_is_heard_as_well() -> None:
    archive = Archive(MemoryStore(), Layout())

    async def run() -> None:
        service = _service(archive)
        service._notes._next_note = service._notes._next_note._replace(number=LAST_FACT_NUMBER - 1)
        before = None
        for _ in range(4):
            await service._note()
            heard = read_notes(archive, "a").heard_at
            assert heard is not None
            assert before is None or heard > before
            before = heard
        told = read_notes(archive, "a").limits
        assert told is not None
        assert told.limits == NotedLimits(
            length_ms=7 * DAY_MS, takeover_ms=DAY_MS // 24, margin_ms=None, clear_delay_ms=DAY_MS, keep_generations=0
        )

    asyncio.run(run())
