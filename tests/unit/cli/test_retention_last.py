"""What `archiver retention --last` tells of the report that the last sweep has left."""

import argparse
from dataclasses import replace

import pytest

from archiver.archive.format.control import encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.sweeps import SweepReport, SweptControl, SweptTopic, append_report, read_last_report
from archiver.cli.main import main
from archiver.cli.retention import add_options, run
from archiver.cli.retention_last import last_lines, last_row
from archiver.errors import UsageError
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore

TOPIC = SweptTopic(objects=3, records=30, bytes=300, deleted_because={"old": 3}, kept_because={"young": 1}, stopped="")
REPORT = SweepReport(
    begun_ms=1_700_000_000_000,
    topics={"orders": TOPIC, "stocks": replace(TOPIC, stopped="a hold was added"), "users": replace(TOPIC, objects=0)},
    kept={"gone": "it was created again"},
    refused=1,
    problems=["topics/orders/x: denied"],
    took_ms=4_500,
    waiting=["users"],
    control={
        "notes": SweptControl(groups=1, objects=5, bytes=50, kept_because={"young": 2}),
        "days": SweptControl(groups=0, objects=0, bytes=0, kept_because={}),
    },
)
LATER = {
    "format": 1,
    "begun_ms": REPORT.begun_ms + 86_400_000,
    "took_ms": 1_000,
    "topics": {},
    "kept": {},
    "refused": 0,
    "problems": [],
}


def test_the_newest_report_is_shown() -> None:
    archive = Archive(MemoryStore(), Layout())
    assert read_last_report(archive) is None
    append_report(archive, replace(REPORT, refused=7))
    append_report(archive, REPORT)
    assert read_last_report(archive) == REPORT
    assert list(last_lines(read_last_report(archive))) == [
        "gone: nothing was deleted: it was created again",
        "orders: 3 objects were deleted: old",
        "orders: 1 object was kept: young",
        "stocks: 3 objects were deleted: old",
        "stocks: 1 object was kept: young",
        "users: 3 objects were deleted: old",
        "users: 1 object was kept: young",
        "topic   objects deleted  records  bytes  remark",
        "orders  3                30       300",
        "stocks  3                30       300    stopped: a hold was added",
        "users   0                30       300    waits for --yes",
        "control objects  groups deleted  objects deleted  bytes",
        "notes            1               5                50",
        "topics/orders/x: denied",
        "the last sweep began 2023-11-14T22:13:20Z, and took 4 s; the store refused 1 delete",
    ]


def test_an_archive_without_a_sweep() -> None:
    assert list(last_lines(None)) == ["no sweep has put a report yet"]
    assert last_row(None) == {"begun": None}


@pytest.mark.parametrize(
    "words", [["--dry-run"], ["--yes"], ["--topics", "t"], ["--metrics-file", "f"], ["--now", "1"], ["--without-kafka"]]
)
def test_it_sweeps_nothing_beside(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    with pytest.raises(UsageError, match=rf"^--last only shows earlier sweeps; {words[0]} cannot go with it$"):
        run(parser.parse_args(["--last", *words]))


def test_a_sweep_needs_more_than_an_address() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    with pytest.raises(UsageError, match=r"^--url goes with --last or --history: a sweep needs the limits of a config"):
        run(parser.parse_args(["--url", "s3://bucket/prefix"]))


def test_all_reports_are_shown_and_an_unreadable_one_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = Archive(MemoryStore(), Layout())
    monkeypatch.setattr("archiver.archive.format.handle.open_archive", lambda _: archive)
    history = ["retention", "--history", "--url", "s3://bucket"]
    assert main(history) == 0
    assert capsys.readouterr().out == "no sweep has put a report yet\n"
    append_report(archive, REPORT)
    archive.store.put_if_absent("control/sweeps/reports/000001.json", b"junk", {}, kind=ObjectKind.FACT)
    archive.store.put_if_absent("control/sweeps/reports/000002.json", encode_fact(LATER), {}, kind=ObjectKind.FACT)
    assert main(history) == 3
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "begun                 took  objects deleted  records  bytes  control objects  remark",
        "2023-11-14T22:13:20Z  4 s   6                90       900 B  5                1 topic waits for --yes, 1 topic stopped, 1 delete refused",
        "2023-11-15T22:13:20Z  1 s   0                0        0 B    0",
    ]
    assert "control/sweeps/reports/000001.json: not JSON" in said.err
    assert main([*history, "--history", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main([*history, "--history", "0"]) == 3
