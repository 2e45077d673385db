"""`archiver compacted clear`: what it takes."""

from datetime import timedelta
from pathlib import Path

import pytest

import archiver.archive.copies.role_logs
import archiver.archive.format.handle
from archiver.archive.copies.roles import Generation, RolePlace
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.backup.compacted.clearing import clearing_run
from archiver.backup.compacted.clearing.clearing_run import Cleared, ClearingReport, Kept
from archiver.cli.main import main
from tests.support.memory_store import MemoryStore


@pytest.mark.parametrize("rest", [[], ["orders", "--yes"], ["--yes", "-c", "archive.yaml", "orders"]])
def test_accept_is_refused_with_the_command_that_replaces_it(
    rest: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compacted", "accept", *rest]) == 2
    told = capsys.readouterr().err
    assert "compacted accept is no command any more" in told
    assert "`archiver compacted clear --force TOPIC-PARTITION` deletes" in told


@pytest.mark.parametrize("place", ["orders", "orders-", "orders-x", "-3"])
def test_a_place_is_a_topic_and_a_partition(place: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "archive.yaml"
    config.write_text("storage: {url: s3://bucket/prefix}\nkafka: {bootstrap.servers: 127.0.0.1:1}\n")
    assert main(["compacted", "clear", "--force", "-c", str(config), "--", place]) == 2
    assert "give TOPIC-PARTITION, as in orders-0" in capsys.readouterr().err


@pytest.mark.parametrize(("apart", "exit_code"), [(timedelta(hours=1), 1), (timedelta(), 0)], ids=["apart", "agreed"])
def test_nothing_is_cleared_by_a_clock_that_is_far_from_the_machines(
    apart: timedelta,
    exit_code: int,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = tmp_path / "archive.yaml"
    config.write_text("storage: {url: s3://bucket/prefix}\nkafka: {bootstrap.servers: 127.0.0.1:1}\n")
    store = MemoryStore()
    store.ahead = apart
    monkeypatch.setattr(archiver.archive.format.handle, "open_archive", lambda _: Archive(store, Layout()))
    places = [RolePlace(topic="orders", life=0, partition=0)]
    monkeypatch.setattr(archiver.archive.copies.role_logs, "read_role_logs", lambda *_: places)
    assert main(["compacted", "clear", "--force", "-c", str(config), "orders-0"]) == exit_code
    assert ("they differ by more than 15 minutes" in capsys.readouterr().err) is (exit_code != 0)


def test_each_deleted_generation_is_logged(
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = tmp_path / "archive.yaml"
    config.write_text("storage: {url: s3://bucket/prefix}\nkafka: {bootstrap.servers: 127.0.0.1:1}\n")
    place = RolePlace(topic="orders", life=0, partition=0)
    cleared = [
        Cleared(place=place, generation=Generation(instance="a", number=number), objects=2, bytes=700)
        for number in (0, 1)
    ]
    kept = Kept(place=place, generation=Generation(instance="a", number=2), why=("it is the current copy",))
    report = ClearingReport(cleared=cleared, kept=[kept])
    monkeypatch.setattr(archiver.archive.format.handle, "open_archive", lambda _: Archive(MemoryStore(), Layout()))
    monkeypatch.setattr(archiver.archive.copies.role_logs, "read_role_logs", lambda *_: [place])
    monkeypatch.setattr(clearing_run, "clear_copies", lambda *_: report)
    assert main(["compacted", "clear", "--force", "-c", str(config), "orders-0"]) == 0
    lines = [f"orders-0: generation {one.generation} was deleted by force: 2 objects of 700 B" for one in cleared]
    assert [(one.levelname, one.message) for one in caplog.records] == [("WARNING", line) for line in lines]
    assert capsys.readouterr().out.splitlines() == [
        *lines,
        f"orders-0: generation {kept.generation} stays: {kept.why[0]}",
    ]
