"""What `archiver retention --last` tells of the report that the last sweep has left."""

import argparse
from dataclasses import replace

import pytest

from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.archive.sweeps import SweepReport, SweptControl, SweptTopic, append_report, read_last_report
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
)


def test_the_newest_report_is_told() -> None:
    archive = Archive(MemoryStore(), Layout())
    assert read_last_report(archive) is None
    append_report(archive, replace(REPORT, refused=7))
    append_report(archive, REPORT)
    assert read_last_report(archive) == REPORT
    assert list(last_lines(read_last_report(archive))) == [
        "gone: nothing went: it was created again",
        "topic   objects deleted  records  bytes  remark",
        "orders  3                30       300",
        "stocks  3                30       300    stopped: a hold was added",
        "users   0                30       300    waits for --yes",
        "topics/orders/x: denied",
        "the last sweep began 2023-11-14T22:13:20Z, and took 4 s; the store refused 1 delete",
    ]


def test_the_report_as_json() -> None:
    row = last_row(REPORT)
    assert (row["begun"], row["seconds"], row["complete"], row["refused"]) == ("2023-11-14T22:13:20Z", 4.5, False, 1)
    assert row["topics"][0] == {
        "topic": "orders",
        "deleted": 3,
        "deleted_records": 30,
        "deleted_bytes": 300,
        "because": {"old": 3},
        "kept_because": {"young": 1},
        "waits_for_yes": False,
        "stopped": None,
    }
    assert [one["waits_for_yes"] for one in row["topics"]] == [False, False, True]
    assert row["kept"] == [{"topic": "gone", "why": "it was created again"}]
    assert last_row(replace(REPORT, refused=0, topics={"orders": TOPIC}))["complete"]


def test_what_went_of_control_objects_is_told_and_that_no_cluster_was_asked() -> None:
    some = SweptControl(groups=2, objects=9, bytes=90, kept_because={"it is too young": 1})
    report = replace(REPORT, without_kafka=True, control={"notes": some, "other": replace(some, objects=0)})
    lines = list(last_lines(report))
    assert lines[0] == "it asked no cluster: it went by retention.fixed"
    assert [line for line in lines if line.startswith(("control", "notes", "other"))] == [
        "control objects  groups deleted  objects  bytes",
        "notes            2               9        90",
    ]
    row = last_row(report)
    assert row["without_kafka"]
    assert row["control"][0] == {
        "kind": "notes",
        "deleted_groups": 2,
        "deleted": 9,
        "deleted_bytes": 90,
        "kept_because": {"it is too young": 1},
    }


def test_an_archive_without_a_sweep() -> None:
    assert list(last_lines(None)) == ["no sweep has left a report yet"]
    assert last_row(None) == {"begun": None}


@pytest.mark.parametrize(
    "words",
    [["--dry-run"], ["--yes"], ["--topics", "t"], ["--metrics-file", "f"], ["--now", "1"], ["--without-kafka"]],
)
def test_it_sweeps_nothing_beside(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    with pytest.raises(UsageError, match=rf"^--last tells of a sweep that is over; {words[0]} cannot go with it$"):
        run(parser.parse_args(["--last", *words]))
