"""What both services do with partitions that the group takes away: revoked ones are put in time, lost ones are dropped."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import archiver.backup.compacted.work.instance_service
import archiver.backup.service.backup_service
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.segments.spool import Spool
from archiver.backup.compacted.work.instance_metrics import NOTHING_SEEN, InstanceMetrics
from archiver.backup.compacted.work.instance_service import InstanceRequest, InstanceService
from archiver.backup.partition.feed import LASTING_FAILURE_S, Feed
from archiver.backup.partition.pump import Pump
from archiver.backup.service.assignment import Assignment
from archiver.backup.service.backup_service import Service
from archiver.backup.service.group_worker import GroupWorker
from archiver.backup.service.request import BackupRequest, pump_of
from archiver.config.model import CompactedConfig, GroupProtocol, PositionKeeping, TopicsConfig
from archiver.errors import KafkaError, KafkaTemporaryError, StoreError
from archiver.groups.positions.keeper import PositionPolicy
from archiver.kafka.groups.group import GroupSettings
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.running.workers import Workers, workers
from archiver.store.port import Body, ObjectKind
from tests.support.feeds import sink_of, writer_of
from tests.support.memory_store import MemoryStore
from tests.support.segments import SOURCE
from tests.support.standing_copies import StandingCopies
from tests.unit.backup.compacted.test_partition_turn import turn_of
from tests.unit.backup.test_partition_writer import fetch_of

KEY = (SOURCE.topic, SOURCE.partition)
GROUP = GroupSettings(group="g", protocol=GroupProtocol.CLASSIC, session_timeout_ms=6000, refresh_ms=1000)

Make = Callable[[BackupRequest, Workers, Pump, Feed], GroupWorker]


class GatedStore(MemoryStore):
    """A store whose puts wait for the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.is_asked = threading.Event()
        self.denies = False

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        self.is_asked.set()
        self.gate.wait(30)
        if self.denies:
            raise StoreError("denied")
        return super().put_if_absent(key, body, metadata, kind=kind)


def a_backup(request: BackupRequest, pool: Workers, pump: Pump, feed: Feed) -> Service:
    service = Service(request, GROUP, pool)
    service._pump, service.feeds, pump._on_durable = pump, pump.feeds, service._note_durable
    service.held[feed.key] = Assignment(since_s=0.0)
    return service


def an_instance(request: BackupRequest, pool: Workers, pump: Pump, feed: Feed) -> InstanceService:
    service = InstanceService(
        InstanceRequest(
            backup=request,
            config=CompactedConfig(enabled=True, instances=("a", "b")),
            name="a",
            begins_first=True,
            pin_ms=0,
            counts=InstanceMetrics(lambda: (), lambda: NOTHING_SEEN, lambda: 0),
        ),
        GROUP,
        pool,
    )
    turn = turn_of(StandingCopies(), "a")
    turn._parts = replace(turn._parts, pumps=[pump], sink=request.sink)
    turn.readings[0] = cast("Any", SimpleNamespace(generation=0, feed=feed, wants_end=None, moment=lambda: None))
    service.turns[feed.key] = turn
    service.held.add(feed.key)
    return service


def begin_put(worker: GroupWorker) -> None:
    """Begin to put the held records of the partition, as if their segment was old."""
    pump = worker._pump if isinstance(worker, Service) else cast("Any", worker).turns[KEY]._parts.pumps[0]
    feed = pump.feeds[KEY]

    def put() -> None:
        feed.writer.close_early()
        pump.advance(feed)

    worker._loop.call_soon_threadsafe(put)


async def take_away(make: Make, store: GatedStore, spool: Path, how: Callable[[GroupWorker], Any]) -> GroupWorker:
    """Have a worker hold three unwritten records, and let the group take their partition away."""
    sink = sink_of(Archive(store, Layout()), Spool(spool), records=10)
    request = BackupRequest(
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        topics=TopicsConfig(),
        place_of_include=str,
        sink=sink,
        positions=PositionPolicy(keep=PositionKeeping.OFF, interval_ms=1),
        memory_bytes=1 << 20,
        spool_bytes=1 << 20,
    )
    with workers(2, "test") as pool:
        client: Any = SimpleNamespace()
        pump = pump_of(request, client, pool)  # not entered: nothing is fetched
        feed = Feed(writer=writer_of(sink))
        worker = make(request, pool, pump, feed)
        pump.add(feed)
        feed.fetches.queue.append(fetch_of(0, 3))
        pump.advance(feed)
        async with asyncio.timeout(30):
            while feed.writer.position < 3:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            await asyncio.to_thread(how, worker)
            if store.gate.is_set():
                await feed.ending.ended.wait()
        assert not pump.feeds
        assert not worker.held
        return worker


@pytest.mark.parametrize("make", [a_backup, an_instance])
def test_revoked_partitions_are_put_before_they_are_given_back(make: Make, tmp_path: Path) -> None:
    store, put = GatedStore(), list[int]()

    def revoke(worker: GroupWorker) -> None:
        worker.revoked([KEY])
        put.append(len(store.objects))

    asyncio.run(take_away(make, store, tmp_path, revoke))
    assert put == [1]


@pytest.mark.parametrize("make", [a_backup, an_instance])
def test_a_store_that_hangs_does_not_keep_revoked_partitions(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in (archiver.backup.service.backup_service, archiver.backup.compacted.work.instance_service):
        monkeypatch.setattr(service, "RELEASE_S", 0.2)
    store = GatedStore()
    store.gate.clear()
    try:
        asyncio.run(take_away(make, store, tmp_path, lambda worker: worker.revoked([KEY])))
        assert not store.objects
    finally:
        store.gate.set()


@pytest.mark.parametrize("make", [a_backup, an_instance])
def test_lost_partitions_are_dropped_without_a_put(make: Make, tmp_path: Path) -> None:
    store = GatedStore()
    asyncio.run(take_away(make, store, tmp_path, lambda worker: worker.lost([KEY])))
    assert not store.objects


def test_a_put_that_ends_after_its_partition_was_lost_is_not_committed(tmp_path: Path) -> None:
    """Its new owner commits: an older position would take the place of a later one."""
    store = GatedStore()
    store.gate.clear()

    def lose(worker: GroupWorker) -> None:
        begin_put(worker)
        assert store.is_asked.wait(30)
        worker.lost([KEY])
        worker._loop.call_soon_threadsafe(store.gate.set)
        while not store.objects:
            time.sleep(0.01)

    service = asyncio.run(take_away(a_backup, store, tmp_path, lose))
    assert isinstance(service, Service)
    assert (len(store.objects), service.commits.all_hints()) == (1, [])


def test_a_partition_that_is_lost_during_a_put_and_gained_again_is_archived_once(tmp_path: Path) -> None:
    """Both puts have one name. The new feed was opened before the old put ended, and goes on where the winner ends."""
    store, feeds = GatedStore(), list[Feed]()
    store.gate.clear()

    async def regain(service: Service) -> None:
        (old,) = service.feeds.values()
        service.lose([KEY])
        feeds.append(Feed(writer=writer_of(service._sink)))
        service.held[KEY] = Assignment(since_s=0.0)
        service._add(feeds[0], service.held[KEY])
        feeds[0].fetches.queue.append(fetch_of(0, 5))
        service._pump.advance(feeds[0])
        while feeds[0].writer.position < 5:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        store.gate.set()
        await old.ending.ended.wait()
        await service.release([KEY])

    def lose_and_regain(worker: GroupWorker) -> None:
        assert isinstance(worker, Service)
        begin_put(worker)
        assert store.is_asked.wait(30)
        asyncio.run_coroutine_threadsafe(regain(worker), worker._loop).result(30)

    asyncio.run(take_away(a_backup, store, tmp_path, lose_and_regain))
    assert len(store.objects) == 1
    assert feeds[0].writer.durable_position == 3
    assert feeds[0].ending.dropped is None


@pytest.mark.parametrize(
    ("shut_out_s", "told"), [(1.0, ["denied"]), (LASTING_FAILURE_S, ["denied", "not in the group"])]
)
def test_a_stop_tells_what_fails_for_good_once(shut_out_s: float, told: list[str]) -> None:
    held = {("t", number): Assignment(since_s=0.0) for number in range(4)}
    for number, error in enumerate([StoreError("denied"), StoreError("denied"), KafkaTemporaryError("no leader")]):
        held["t", number].fail(error, 0.0, None)
    membership = SimpleNamespace(error=KafkaError("not in the group"), shut_out_s=shut_out_s)
    service: Any = SimpleNamespace(membership=membership, _opener=SimpleNamespace(findings={}))
    assert [str(error) for error in Service._lasting_problems(service, held.values())] == told


@pytest.mark.parametrize("is_put_at_last", [False, True])
def test_a_stop_does_not_tell_of_a_failure_that_its_own_puts_show_to_be_over(
    tmp_path: Path, *, is_put_at_last: bool
) -> None:
    """A partition that failed and was opened again holds its records for a while before their put shows that the store works."""
    store = GatedStore()

    async def finish() -> None:
        return

    def stop(worker: GroupWorker) -> None:
        service: Any = worker
        service.held[KEY].fail(StoreError("denied"), 0.0, None)
        service._opener, service._indexer = SimpleNamespace(findings={}), SimpleNamespace(finish=finish)
        if not is_put_at_last:
            store.denies = True
        asyncio.run_coroutine_threadsafe(service._leave(), service._loop).result(30)

    service = asyncio.run(take_away(a_backup, store, tmp_path, stop))
    assert isinstance(service, Service)
    assert [str(error) for error in service.problems] == ([] if is_put_at_last else ["denied"])
    assert len(service.dropped) == (0 if is_put_at_last else 1)
