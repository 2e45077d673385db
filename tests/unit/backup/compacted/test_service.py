"""What a process of an instance notes, whatever the store refuses, and for as long as it runs."""

import asyncio
import struct
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.copies.moments import NotedLimits, read_notes
from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import LAST_FACT_NUMBER, Layout
from archiver.backup.compacted.turn.events import CoordinationEvent
from archiver.backup.compacted.turn.turn_decisions import ACTIVATE
from archiver.backup.compacted.work.coordination import _batch_of, _places_in
from archiver.backup.compacted.work.instance_metrics import NOTHING_SEEN, InstanceMetrics
from archiver.backup.compacted.work.instance_service import InstanceRequest, InstanceService
from archiver.backup.reports.ledger import NO_LEDGER
from archiver.backup.reports.troubles import UNREADY_S, Troubles
from archiver.config.model import CompactedConfig, GroupProtocol
from archiver.errors import StoreError, StoreTemporaryError, StrangerError
from archiver.kafka.groups.group import GroupSettings
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.records.fetch import Fetched
from archiver.process.running.workers import Workers
from tests.support.memory_store import MemoryStore

DAY_MS = 86_400_000


class KeepsAll(MemoryStore):
    def delete(self, keys: Iterable[str]) -> None:
        if list(keys):
            raise StoreError("DeleteObject is denied")


def service_of(store: MemoryStore, clock: Callable[[], float] = lambda: 0.0) -> InstanceService:
    """No broker is asked before `run`. To be made on a loop."""
    sink = SimpleNamespace(archive=Archive(store, Layout()), troubles=Troubles(clock), ledger=NO_LEDGER)
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
            await service._note()

    asyncio.run(note())
    assert len(store.objects) == 5
    assert len([one for one in caplog.records if "DeleteObject is denied" in one.getMessage()]) == 1


def test_the_note_after_the_last_number_is_read_too() -> None:
    store = MemoryStore()
    archive = Archive(store, Layout())

    async def run() -> None:
        service = service_of(store)
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


def test_topics_that_cannot_be_looked_for_again_do_not_stop_puts() -> None:
    now_s, answers = (
        [0.0],
        iter([StoreTemporaryError("SlowDown"), StoreTemporaryError("SlowDown"), StrangerError("end")]),
    )

    async def refresh() -> None:
        now_s[0] += UNREADY_S
        raise next(answers)

    async def run() -> str | None:
        service = service_of(MemoryStore(), lambda: now_s[0])
        service.topics = cast("Any", SimpleNamespace(refresh=refresh))
        with pytest.raises(StrangerError):
            await service._keep_topics_fresh()
        return service.troubles.why_nothing_is_put()

    assert asyncio.run(run()) is None


def test_of_events_only_those_of_the_other_instance_wake_a_partition() -> None:
    told = [
        CoordinationEvent(kind=ACTIVATE, instance=name, place=RolePlace(topic="t", life=0, partition=at), generation=0, timestamp_ms=1)
        for at, name in enumerate(["a", "b", "c"])
    ]  # fmt: skip
    answer = Fetched(
        topic="c",
        partition=0,
        records=memoryview(b"".join(struct.pack(">q", at) + _batch_of(one)[8:] for at, one in enumerate(told))),
        aborted=(),
        high_watermark=3,
        last_stable_offset=3,
        log_start_offset=0,
        by_topic_id=True,
        error=None,
    )
    assert _places_in(answer, 0, ["b"]) == (frozenset({told[1].place}), 3)


def test_hints_wake_a_partition_once_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, woken = [100.0], list[float]()
    monkeypatch.setattr("archiver.backup.compacted.work.instance_service.since_boot_s", lambda: now_s[0])

    async def hear() -> None:
        service = service_of(MemoryStore())
        service.turns["t", 0] = cast("Any", SimpleNamespace(wake_by_hint=lambda: woken.append(now_s[0])))
        for at_s in (100.0, 100.1, 159.0, 160.0, 161.0):  # compacted.interval is a minute
            now_s[0] = at_s
            service._wake_by_hints(
                [RolePlace(topic="t", life=0, partition=0), RolePlace(topic="u", life=0, partition=0)]
            )

    asyncio.run(hear())
    assert woken == [100.0, 160.0]
