"""What metrics say of a process of an instance, of which a partition fails."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.format.store_clock import since_boot_s
from archiver.backup.compacted.work.instance_vitals import InstanceVitals
from archiver.backup.compacted.work.partition_turn import PartitionTurn
from archiver.backup.reports.troubles import Troubles
from archiver.config.model import ArchiverConfig
from archiver.errors import ArchiverError, StoreTemporaryError, TopicGoneError
from tests.support.standing_copies import StandingCopies
from tests.unit.backup.compacted.test_partition_turn import turn_of

KEY = ("t", 0)


def vitals_of(turn: PartitionTurn) -> InstanceVitals:
    vitals = InstanceVitals(cast("ArchiverConfig", SimpleNamespace(compacted=SimpleNamespace(interval_ms=1000))))
    membership = SimpleNamespace(shut_out_s=0.0)
    vitals.attend(cast("Any", SimpleNamespace(turns={KEY: turn}, membership=membership)))
    return vitals


def is_failing(turn: PartitionTurn) -> bool:
    (state,) = vitals_of(turn).states()
    return state.is_failing


def fail_looks(turn: PartitionTurn, monkeypatch: pytest.MonkeyPatch, error: ArchiverError) -> None:
    """Run the turn until its first look has failed."""
    failed = asyncio.Event()

    async def look() -> None:
        raise error

    async def run() -> None:
        sink: Any = turn._parts.sink
        sink.troubles, sink.clock = Troubles(), since_boot_s
        monkeypatch.setattr(turn, "_look_until_quiet", look)
        monkeypatch.setattr(turn, "_report_end", lambda *_: failed.set())
        running = asyncio.create_task(turn.run())
        await failed.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(run())


def test_a_partition_fails_from_its_first_failure_until_something_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = turn_of(StandingCopies(), "a")
    assert not is_failing(turn)
    fail_looks(turn, monkeypatch, StoreTemporaryError("s3 is away"))
    assert is_failing(turn)  # no time has gone by
    feed: Any = object()
    turn.readings[0] = cast("Any", SimpleNamespace(feed=feed))
    turn.note_durable(feed)
    turn.readings.clear()
    assert not is_failing(turn)


def test_a_partition_of_a_deleted_topic_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = turn_of(StandingCopies(), "a")
    fail_looks(turn, monkeypatch, TopicGoneError("deleted"))
    assert not is_failing(turn)
