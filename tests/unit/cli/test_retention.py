"""What `archiver retention` agrees to, and what it prints of lives and of a run that asks no cluster."""

import argparse
from dataclasses import replace

import pytest

from archiver.archive.applied_limits import Whose
from archiver.cli.retention import add_options, agreement, retention_lines, retention_row
from archiver.errors import UsageError
from archiver.spark.retention import SweepResult, report_of
from archiver.upkeep.retention.limits import Limits
from archiver.upkeep.retention.partition_plan import AskedItem, Going, GoingItem, ListedItem
from archiver.upkeep.retention.plan import SweepPlan, TopicSweep
from archiver.upkeep.retention.survey import PartitionSweep
from archiver.upkeep.retention.sweep import Swept
from archiver.upkeep.retention.topic_terms import TopicTerms

DIGEST = "0123456789abcdef" * 2


def parse(*words: str) -> tuple[bool, str]:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return agreement(parser.parse_args(words).yes)


def test_what_is_agreed_to() -> None:
    assert parse() == (False, "")
    assert parse("--yes") == (True, "")
    assert parse("--yes", "--topics", "t") == (True, "")
    assert parse("--yes", DIGEST) == (False, DIGEST)


@pytest.mark.parametrize("words", [("--yes", ""), ("--yes=",)])
def test_an_empty_digest_agrees_to_nothing(words: tuple[str, ...]) -> None:
    """As a script gives it whose dry run failed, or found nothing that goes."""
    with pytest.raises(UsageError, match=r"^--yes: the digest is empty"):
        parse(*words)


def sweep_of(name: str, root: int, count: int) -> TopicSweep:
    terms = TopicTerms(
        topic="t", name=name, topic_id="T", root=root, newest=root, whose=Whose.GONE, limits=Limits(ms=1, floor_ms=2)
    )
    told = AskedItem(next=1, min_timestamp=0, max_timestamp=0, source_bytes=1, records=3)
    going = (GoingItem(item=ListedItem(life=root, key="k", base=0, put_ms=0), told=told, why=Going.TIME),) * count
    return TopicSweep(terms=terms, partitions=[PartitionSweep(topic="t", partition=0, root=root, going=going)])


def result_of(*, without_kafka: bool = False) -> SweepResult:
    former, current = sweep_of("t@0", 0, 2), sweep_of("t", 1, 5)
    plan = SweepPlan(made_ms=0, now_ms=0, topics=[former, current], kept=(), without_kafka=without_kafka)
    return SweepResult(plan=plan, swept=[Swept("t@0", deleted=list(former.going))], waiting=[current])


def test_lives_of_a_topic_are_told_apart() -> None:
    row = retention_row(result_of())
    assert [(one["topic"], one["to_delete"], one["deleted"], one["waits_for_yes"]) for one in row["topics"]] == [
        ("t@0", 2, 2, False),
        ("t", 5, 0, True),
    ]
    assert (row["topics"][0]["limits_of"], row["topics"][0]["floor_ms"]) == ("gone", 2)
    lines = list(retention_lines(result_of()))
    assert "t@0: 2 objects go: older than what the topic keeps" in lines
    assert "t: 5 objects go: older than what the topic keeps" in lines
    assert any(line.startswith("t: 0% of it would go") for line in lines)
    report = report_of(result_of())
    assert {name: one.records for name, one in report.topics.items()} == {"t@0": 6, "t": 0}


@pytest.mark.parametrize("without_kafka", [False, True])
def test_a_run_that_asked_no_cluster_says_so(without_kafka: bool) -> None:
    result = result_of(without_kafka=without_kafka)
    said = "this run asked no cluster: it goes by retention.fixed, and takes also what the brokers still have"
    assert (said in list(retention_lines(result))) is without_kafka
    assert retention_row(result)["without_kafka"] is without_kafka
    assert report_of(result).without_kafka is without_kafka
    shown = replace(result, digest="d", swept=(), waiting=())
    assert (said in list(retention_lines(shown))) is without_kafka
