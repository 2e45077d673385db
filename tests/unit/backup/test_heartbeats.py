"""When a service says how far it has come, and when it calls `backup.heartbeat.url`."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.notes.run_notes import Outcome, RunKind, RunNote, list_runs, read_run
from archiver.backup.reports.metrics import PartitionState
from archiver.backup.service import heartbeats
from archiver.backup.service.heartbeats import Heartbeats, behind_ms_of, call_heartbeat
from archiver.config.model import ArchiverConfig
from tests.support.memory_store import FIRST_MOMENT, MemoryStore

NOW_MS = 1_700_000_000_000
AT_END = PartitionState(
    topic="orders",
    partition=0,
    position=10,
    high_watermark=10,
    oldest_pending_ms=None,
    pending_since_s=None,
    retention_ms=None,
    is_failing=False,
)
BEHIND = replace(AT_END, high_watermark=12, oldest_pending_ms=NOW_MS - 90_000, pending_since_s=7.0)


@pytest.mark.parametrize(
    ("states", "behind_ms"),
    [
        ([], None),
        ([replace(AT_END, is_left=True)], None),
        ([AT_END], 5_000),
        ([AT_END, BEHIND], 90_000),
        ([replace(BEHIND, oldest_pending_ms=NOW_MS + 90_000)], 7_000),  # of the future: since when it waits
        ([replace(AT_END, pending_since_s=60.0)], 60_000),  # no answer for a minute
        ([AT_END, replace(AT_END, high_watermark=None)], None),  # no answer yet
        ([replace(AT_END, high_watermark=None, pending_since_s=30.0)], 30_000),
    ],
)
def test_how_far_behind(states: list[PartitionState], behind_ms: int | None) -> None:
    assert behind_ms_of(states, NOW_MS) == behind_ms


class StubVitals:
    """Tells what a test says."""

    def __init__(self) -> None:
        self.told = [AT_END]
        self.why: str | None = None

    def states(self) -> list[PartitionState]:
        return list(self.told)

    def why_not_ready(self) -> str | None:
        return self.why

    def gone_topics(self) -> list[str]:
        return ["payments"]

    def clock_ms(self) -> int:
        return NOW_MS


class Monitor:
    """An HTTP server that counts calls, and answers with a status."""

    def __init__(self) -> None:
        monitor = self
        self.calls, self.status = 0, 200

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                monitor.calls += 1
                self.send_response(monitor.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/secret"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    made = Monitor()
    yield made
    made.close()


class Site:
    """A service's heartbeats, with stub vitals and an archive in memory."""

    def __init__(self, url: str | None = None) -> None:
        self.vitals, self.archive = StubVitals(), Archive(MemoryStore(), Layout("kafka"))
        given: dict[str, Any] = {"storage": {"url": "s3://bucket/kafka"}}
        if url is not None:
            given["backup"] = {"heartbeat": {"url": url}}
        self.beats = Heartbeats(ArchiverConfig.model_validate(given), RunKind.BACKUP, self.vitals)  # type: ignore[arg-type]

    def beat(self) -> None:
        self.beats._beat(self.archive)

    def notes(self) -> list[RunNote]:
        return [read_run(self.archive, one) for one in list_runs(self.archive)]


def test_a_note_says_how_far_it_has_come() -> None:
    site = Site()
    site.vitals.told = [BEHIND, replace(AT_END, partition=1, is_failing=True)]
    site.vitals.why = "cannot reach Kafka since then"
    site.beat()
    (note,) = site.notes()
    assert note.durable_through_ms == epoch_ms(FIRST_MOMENT) - 90_000
    assert (note.outcome, note.partitions, note.gone) == (Outcome.RUNNING, 2, ("payments",))
    assert note.problems == ("cannot reach Kafka since then", "failing: orders-1")
    assert note.limits["backup.segment.age"] == "5min"


def test_a_note_that_fails_is_reported_once_and_only_by_a_service_that_is_ready(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    monkeypatch.setattr(heartbeats, "put_run_note", lambda *_: "credentials refused")
    for why, lines in (("the store refuses", 0), (None, 1), (None, 1)):
        site.vitals.why = why
        site.beat()
        assert [one.message for one in caplog.records] == ["credentials refused"] * lines


def test_an_orderly_end_puts_the_last_note_again() -> None:
    site = Site()
    site.beats.end()
    assert site.notes() == []  # it ended before its first note
    site.vitals.told, site.vitals.why = [BEHIND], "cannot reach Kafka since then"
    site.beat()
    site.vitals.told = []  # partitions are given up before the end
    site.beats.end()
    running, done = site.notes()
    assert (running.outcome, done.outcome, done.problems) == (Outcome.RUNNING, Outcome.DONE, ())
    assert (done.name, done.partitions) == (running.name, 1)
    assert done.durable_through_ms == running.durable_through_ms == epoch_ms(FIRST_MOMENT) - 90_000


def test_a_store_that_hangs_at_the_end_gets_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    site, gate = Site(), threading.Event()
    site.beat()
    monkeypatch.setattr(site.archive.store, "put_if_absent", lambda *_, **__: gate.wait(60))
    began_s = time.monotonic()
    site.beats.end()
    took_s = time.monotonic() - began_s
    gate.set()
    assert took_s < 30


def test_many_failing_partitions_are_counted() -> None:
    site = Site()
    site.vitals.told = [replace(AT_END, partition=number, is_failing=True) for number in range(1000)]
    site.beat()
    (note,) = site.notes()
    (problem,) = note.problems
    assert problem.startswith("failing: orders-0, orders-1, ")
    assert problem.endswith(" and 980 more")


def test_a_service_without_a_partition_says_so() -> None:
    site = Site()
    site.vitals.told, site.vitals.why = [], "not in the group yet"
    site.beat()
    (note,) = site.notes()
    assert (note.partitions, note.durable_through_ms, note.problems) == (0, None, ("not in the group yet",))


def test_a_defect_of_the_notes_stops_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    monkeypatch.setattr(site.vitals, "states", lambda: 1 // 0)
    site.beat()
    site.beat()
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) <= 2


def test_the_url_is_called_when_what_was_known_is_durable(monitor: Monitor) -> None:
    site = Site(monitor.url)
    site.vitals.told = [BEHIND]
    site.beat()  # a round begins: up to 12
    site.vitals.told = [replace(BEHIND, position=11, high_watermark=20)]
    site.beat()
    assert monitor.calls == 0
    site.vitals.told = [replace(BEHIND, position=12, high_watermark=20)]
    site.beat()
    assert monitor.calls == 1
    site.beat()  # the next round is up to 20
    assert monitor.calls == 1


@pytest.mark.parametrize(
    "bad",
    [
        replace(AT_END, pending_since_s=9.0),  # without an answer
        replace(AT_END, is_failing=True),
        replace(AT_END, is_opening=True),
        replace(AT_END, high_watermark=None),
        replace(AT_END, is_left=True),
        replace(AT_END, partition=1),  # another one: the first has gone to another process
    ],
)
def test_the_url_is_not_called_while_something_is_unknown(monitor: Monitor, bad: PartitionState) -> None:
    site = Site(monitor.url)
    site.beat()
    site.vitals.told = [bad]
    site.beat()
    assert monitor.calls == 0
    site.vitals.told = [AT_END]
    site.beat()
    assert monitor.calls == 0  # a new round has begun
    site.beat()
    assert monitor.calls == 1


def test_the_url_is_not_called_while_kafka_is_away(monitor: Monitor) -> None:
    site = Site(monitor.url)
    site.beat()
    site.vitals.why = "cannot reach Kafka"
    site.beat()
    assert monitor.calls == 0


def test_a_failed_call_does_not_tell_the_secret(monitor: Monitor) -> None:
    monitor.status = 500
    told = call_heartbeat(monitor.url)
    assert told == "backup.heartbeat.url: the call failed: HTTP Error 500: Internal Server Error"
    monitor.close()
    assert "secret" not in call_heartbeat(monitor.url)


def test_notes_are_json_that_people_can_read() -> None:
    site = Site()
    site.beat()
    (body,) = (one.body for one in site.archive.store.objects.values())  # type: ignore[attr-defined]
    assert json.loads(body)["kind"] == "backup"
