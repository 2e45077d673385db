"""What `archiver retention --last` tells of the report that the last sweep has left."""

import argparse
from dataclasses import replace

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.sweeps import SweepReport, SweptControl, SweptTopic, append_report, read_last_report
from archiver.cli.retention import add_options, run
from archiver.cli.retention_last import last_lines, last_row
from archiver.errors import UsageError
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


def test_the_newest_report_is_told() -> None:
    archive = Archive(MemoryStore(), Layout())
    assert read_last_report(archive) is None
    append_report(archive, replace(REPORT, refused=7))
    append_report(archive, REPORT)
    assert read_last_report(archive) == REPORT
    assert list(last_lines(read_last_report(archive))) == [
        "gone: nothing went: it was created again",
        "orders: 3 objects went: old",
        "orders: 1 object stayed: young",
        "stocks: 3 objects went: old",
        "stocks: 1 object stayed: young",
        "users: 3 objects went: old",
        "users: 1 object stayed: young",
        "topic   objects deleted  records  bytes  remark",
        "orders  3                30       300",
        "stocks  3                30       300    stopped: a hold was added",
        "users   0                30       300    waits for --yes",
        "control objects  groups deleted  objects deleted  bytes",
        "notes            1               5                50",
        "topics/orders/x: denied",
        "the last sweep began 2023-11-14T22:13:20Z, and took 4 s; the store refused 1 delete",
    ]


def test_a_sweep_that_asked_no_cluster_is_told_as_such() -> None:
    said = "the last sweep asked no cluster: it went by retention.fixed"
    for without_kafka in (False, True):
        report = replace(REPORT, without_kafka=without_kafka)
        assert (said in list(last_lines(report))) is last_row(report)["without_kafka"] is without_kafka


def test_an_archive_without_a_sweep() -> None:
    assert list(last_lines(None)) == ["no sweep has left a report yet"]
    assert last_row(None) == {"begun": None}


@pytest.mark.parametrize(
    "words", [["--dry-run"], ["--yes"], ["--topics", "t"], ["--metrics-file", "f"], ["--now", "1"], ["--without-kafka"]]
)
def test_it_sweeps_nothing_beside(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    with pytest.raises(UsageError, match=rf"^--last tells of a sweep that is over; {words[0]} cannot go with it$"):
        run(parser.parse_args(["--last", *words]))
