"""What `archiver status` makes of the notes of runs: what is late, and what is not; with a driven clock."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

import archiver.archive.format.handle
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.notes.run_notes import Outcome, RunKind, RunNote, put_run_note
from archiver.cli.main import main
from archiver.cli.status import status_lines, status_row
from archiver.store.port import ObjectKind, ObjectStore
from archiver.upkeep.run_status import RunStatus, read_status
from tests.support.memory_store import FIRST_MOMENT, MemoryStore

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
AGES = {"": HOUR_MS}
BEGIN_MS = epoch_ms(FIRST_MOMENT)


class CountingStore:
    """A store in memory that counts the calls of each of its methods."""

    def __init__(self) -> None:
        self._store, self.objects = (made := MemoryStore()), made.objects
        self.requests = Counter[str]()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method
        self.requests[name] += 1
        return getattr(self._store, name)


class World:
    """An archive, and notes put at times in ms since its beginning."""

    def __init__(self) -> None:
        self.store = CountingStore()
        self.archive = Archive(cast("ObjectStore", self.store), Layout("kafka"))

    def put(self, at_ms: int, kind: RunKind, outcome: Outcome, name: str = "all", **more: object) -> None:
        before = {one.key for one in self.store.list("")}
        note = RunNote(kind=kind, name=name, outcome=outcome, **more)  # type: ignore[arg-type]
        assert put_run_note(self.archive, note) == ""
        for key, one in self.store.objects.items():
            if key not in before:
                moment = FIRST_MOMENT + timedelta(milliseconds=at_ms)
                self.store.objects[key] = replace(one, last_modified=moment)

    def beat(
        self, at_ms: int, behind_ms: int | None = 5_000, name: str = "p", partitions: int = 6, **more: object
    ) -> None:
        through_ms = None if behind_ms is None else BEGIN_MS + at_ms - behind_ms
        more = {"took_ms": 2 * HOUR_MS, **more}
        self.put(
            at_ms, RunKind.BACKUP, Outcome.RUNNING, name, durable_through_ms=through_ms, partitions=partitions, **more
        )

    def status(self, at_ms: int, ages: Mapping[str, int] = AGES) -> RunStatus:
        self.store.requests.clear()
        return read_status(self.archive, BEGIN_MS + at_ms, ages)


@pytest.fixture
def world() -> World:
    return World()


def test_an_archive_without_notes_is_late(world: World) -> None:
    assert [line.partition(";")[0] for line in world.status(0).late] == ["backup: no run has left a note"]


def test_a_quiet_day_is_not_late(world: World) -> None:
    """No record comes for 24 h: the service alone says that it works."""
    for minute in range(24 * 60):
        world.beat(minute * MINUTE_MS)
    status = world.status(DAY_MS)
    assert status.late == []
    assert status.durable_through_ms == BEGIN_MS + DAY_MS - MINUTE_MS - 5_000


def test_a_dead_backup_is_late_after_the_largest_age(world: World) -> None:
    world.beat(0)
    assert world.status(HOUR_MS - MINUTE_MS).late == []
    (line,) = world.status(HOUR_MS + MINUTE_MS).late
    assert line == "backup: put its last note 2026-01-01T00:00:00.000Z, 1 h 1 min ago; start it again"


@pytest.mark.parametrize(("at_ms", "state"), [(3 * MINUTE_MS, "running"), (4 * MINUTE_MS, "silent")])
def test_a_backup_whose_notes_have_ended_is_not_shown_as_running(world: World, at_ms: int, state: str) -> None:
    world.beat(0)
    line = next(one for one in status_lines(status_row(world.status(at_ms), None)) if one.startswith("backup"))
    assert line.split()[2] == state


def test_a_backup_that_was_stopped_is_shown_as_ended_and_is_late_after_the_largest_age(world: World) -> None:
    world.beat(0)
    world.put(1000, RunKind.BACKUP, Outcome.DONE, "p", durable_through_ms=BEGIN_MS - 5_000, partitions=6)
    status = world.status(2000)
    line = next(one for one in status_lines(status_row(status, None)) if one.startswith("backup"))
    assert (line.split()[2], status.late) == ("done", [])
    (late,) = world.status(HOUR_MS + 2000).late
    assert late.startswith("backup: ended ")


def test_a_process_that_runs_counts_though_another_one_has_ended_since(world: World) -> None:
    world.beat(0, name="p")
    world.put(1000, RunKind.BACKUP, Outcome.DONE, "q", partitions=6)
    (backup,) = world.status(2000).kinds
    assert (backup.alive, backup.last.name, backup.partitions) == (1, "p", 6)


def test_a_backup_that_is_behind_is_late_with_its_problems(world: World) -> None:
    world.beat(DAY_MS, behind_ms=2 * HOUR_MS, problems=("cannot reach Kafka",))
    assert world.status(DAY_MS).late == ["backup: is 2 h 0 min behind: cannot reach Kafka"]


def test_the_slowest_process_decides_and_dead_ones_do_not(world: World) -> None:
    world.beat(0, behind_ms=5_000, name="dead")
    world.beat(DAY_MS, behind_ms=5_000, name="a")
    world.beat(DAY_MS, behind_ms=30 * MINUTE_MS, name="b")
    status = world.status(DAY_MS)
    kind = status.of(RunKind.BACKUP)
    assert kind is not None
    assert (kind.alive, kind.partitions) == (2, 12)
    assert status.durable_through_ms == BEGIN_MS + DAY_MS - 30 * MINUTE_MS
    assert status.late == []


@pytest.mark.parametrize(("took_ms", "is_late"), [(MINUTE_MS, False), (2 * HOUR_MS, True)])
def test_a_backup_without_a_partition_says_so(world: World, took_ms: int, is_late: bool) -> None:
    world.beat(0, behind_ms=None, partitions=0, took_ms=took_ms, problems=("not in the group yet",))
    assert world.status(MINUTE_MS).late == (["backup: has no partition: not in the group yet"] if is_late else [])


def test_a_process_that_does_not_know_how_far_it_is_makes_that_unknown(world: World) -> None:
    world.beat(0, name="a")
    world.beat(0, behind_ms=None, name="b")
    assert world.status(0).durable_through_ms is None
    assert world.status(0).late == ["backup: how far it is behind is unknown"]


def of_cron(world: World, days: int) -> None:
    world.beat(days * DAY_MS)
    for day in range(days):
        world.put(day * DAY_MS, RunKind.RETENTION, Outcome.DONE)


def test_a_cron_job_is_late_after_twice_its_interval(world: World) -> None:
    of_cron(world, 3)
    kind = world.status(3 * DAY_MS).of(RunKind.RETENTION)
    assert kind is not None
    assert kind.next_ms == BEGIN_MS + 3 * DAY_MS
    world.beat(4 * DAY_MS + MINUTE_MS)
    (line,) = world.status(4 * DAY_MS + MINUTE_MS).late
    assert line.startswith("retention: the last success was 2026-01-03T00:00:00.000Z, 48 h 1 min ago; run it, or")
    assert world.status(4 * DAY_MS + MINUTE_MS, {**AGES, "retention": 9 * DAY_MS}).late == []


@pytest.mark.parametrize(("ages", "has_service", "late"), [({}, False, 0), (AGES, False, 1), (AGES, True, 0)])
def test_the_age_of_a_backup_counts_for_a_schedule_without_a_service(
    world: World, ages: Mapping[str, int], has_service: bool, late: int
) -> None:
    """`--max-age 1h` is the most that a backup may be behind, also if a cron job is the backup."""
    world.put(0, RunKind.UNTIL_END, Outcome.DONE, durable_through_ms=BEGIN_MS, partitions=6)
    if has_service:
        world.beat(2 * HOUR_MS)
    assert len(world.status(2 * HOUR_MS, ages).late) == late


def test_a_deleted_success_of_a_cron_job_is_late(world: World) -> None:
    of_cron(world, 3)
    world.put(3 * DAY_MS - 1000, RunKind.RETENTION, Outcome.FAILED)
    world.put(3 * DAY_MS, RunKind.RETENTION, Outcome.DONE)
    assert world.status(3 * DAY_MS).late == []
    for key in [key for key in world.store.objects if "/retention/all/done/" in key]:
        del world.store.objects[key]
    (line,) = world.status(3 * DAY_MS).late
    assert line == "retention: the run that ended 2026-01-03T23:59:59.000Z failed"


def test_a_failed_job_is_late_until_one_succeeds(world: World) -> None:
    world.beat(HOUR_MS)
    world.put(0, RunKind.VERIFY, Outcome.FAILED, problems=("orders-0: gap",))
    assert world.status(HOUR_MS).late == ["verify: the run that ended 2026-01-01T00:00:00.000Z failed: orders-0: gap"]
    world.put(1000, RunKind.VERIFY, Outcome.DONE)
    assert world.status(HOUR_MS).late == []


def test_a_job_that_was_run_by_hand_once_is_late_only_where_asked(world: World) -> None:
    world.put(0, RunKind.VERIFY, Outcome.DONE)
    world.beat(30 * DAY_MS)
    assert world.status(30 * DAY_MS).late == []
    assert len(world.status(30 * DAY_MS, {**AGES, "verify": 26 * HOUR_MS}).late) == 1


def test_a_job_that_never_ran_is_late_where_asked(world: World) -> None:
    world.beat(0)
    assert world.status(0).late == []
    assert world.status(0, {**AGES, "verify": DAY_MS}).late == [
        "verify: no run has left a note, and --max-age verify=AGE expects one"
    ]


def test_unfinished_restores_are_named_and_not_late(world: World) -> None:
    world.beat(0)
    for name, outcomes in {"killed": [Outcome.RUNNING], "done": [Outcome.RUNNING, Outcome.DONE]}.items():
        for at, outcome in enumerate(outcomes):
            world.put(1000 * at, RunKind.RESTORE, outcome, name)
    status = world.status(0)
    assert list(status.unfinished) == ["killed"]
    assert status.late == []


@pytest.mark.parametrize("kind", [RunKind.BACKUP, RunKind.VERIFY])
def test_a_damaged_note_is_named_and_hides_no_other_one(world: World, kind: RunKind) -> None:
    world.beat(0)
    world.put(0, RunKind.VERIFY, Outcome.DONE)
    (key,) = (one for one in world.store.objects if f"/{kind}/" in one)
    world.store.objects[key] = replace(world.store.objects[key], body=b"{}")
    found = world.status(0)
    assert [line.partition(":")[0] for line in found.late] == [key]
    assert {one.kind for one in found.kinds if one.notes} == {RunKind.BACKUP, RunKind.VERIFY} - {kind}


def test_one_listing_and_five_reads_answer(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in range(3):
        for kind in RunKind:
            for outcome in Outcome:
                world.put(day * DAY_MS, kind, outcome)
    for number in range(1000):
        key = world.archive.layout.fact_key(f"topics/t{number}", 0)
        world.store.put_if_absent(key, b"{}", {}, kind=ObjectKind.FACT)
    monkeypatch.setattr(archiver.archive.format.handle, "open_archive", lambda _: world.archive)
    world.store.requests.clear()
    assert main(["status", "--url", "s3://bucket/kafka"]) == 3
    assert "durable through" in capsys.readouterr().out
    assert world.store.requests == {"list": 1, "get": 5}
