"""Counts read as a person would say them, of one thing, too."""

import pytest

from archiver.cli.restore_report import restore_lines
from archiver.cli.spelling import table_lines
from archiver.cli.verify import verify_lines
from archiver.process.output.text import spell_count
from archiver.restore.plan.task import TaskReport
from archiver.restore.report.restore_report import RestoreResult, TopicReport
from archiver.restore.targets.target_configs import Finish
from archiver.spark.verify import VerifyResult
from archiver.upkeep.object_check import Level
from archiver.upkeep.verify import ListingReport


@pytest.mark.parametrize(
    ("count", "spelled"), [(0, "0 topics"), (1, "1 topic"), (2, "2 topics"), (12_345, "12,345 topics")]
)
def test_a_noun_follows_its_count(count: int, spelled: str) -> None:
    assert spell_count(count, "topic") == spelled


def test_what_takes_more_than_an_s_is_given() -> None:
    found = [spell_count(count, "object is", "objects are") for count in (1, 3)]
    assert found == ["1 object is", "3 objects are"]


def test_results_of_one_topic() -> None:
    listing = ListingReport(topics=1, partitions=1, segments=(), problems=("it is gone",), notes=())
    verified = VerifyResult(
        level=Level.LISTING,
        listing=listing,
        checked=0,
        compared=1,
        problems=listing.problems,
        notes=(),
        errors=(),
        seconds=1.0,
    )
    assert list(verify_lines(verified)) == [
        "finding: it is gone",
        "1 topic, 1 partition, 0 records in 0 objects: 1.0 s",
        "1 record that Kafka still has was compared",
        "NOT WHOLE: 1 finding",
    ]
    topic = TopicReport(
        source="t",
        life=0,
        target="t",
        partitions=(TaskReport(target_topic="t", partition=0, records=1, bytes=5),),
        retention_command="",
        is_finished=True,
        finish=Finish(oversized=1),
    )
    restored = RestoreResult(restore_id="r", seconds=2.0, filling_seconds=1.0, topics=[topic])
    assert list(restore_lines(restored))[2:] == [
        "restore r: 1 record of 5 B, 1 of them filled and read back in 1.0 s, 1 a second; 2.0 s with Spark's start",
        "t: 1 partition may be larger than that; the brokers then delete the oldest records there",
    ]


def test_tables_cut_cells_and_quote_those_with_spaces_at_their_ends() -> None:
    rows = [("x" * 32_000, "1"), ("good ", "2"), ("", "3")]
    assert list(table_lines(("group", "n"), rows)) == [
        f"{'group':60}  n",
        f"{'x' * 255}…  1",
        '"good "'.ljust(60) + "  2",
        f"{'':60}  3",
    ]
