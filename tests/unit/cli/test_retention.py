"""What `archiver retention` agrees to, and what it prints of lives and of a run that asks no cluster."""

import argparse
from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.notes.applied_limits import LimitSource
from archiver.archive.notes.sweeps import SweepReport
from archiver.cli.retention import add_options, agreement, retention_lines, retention_row, run
from archiver.errors import UsageError
from archiver.upkeep.retention.planning.limits import Limits
from archiver.upkeep.retention.planning.partition_verdict import AskedItem, Going, GoingItem, ListedItem
from archiver.upkeep.retention.planning.survey import PartitionSweep
from archiver.upkeep.retention.planning.sweep_plan import SweepPlan, TopicSweep
from archiver.upkeep.retention.planning.topic_terms import KeptTopic, TopicTerms
from archiver.upkeep.retention.sweeping.debris import DebrisGroup, DebrisKind, DebrisPlan, DebrisStay
from archiver.upkeep.retention.sweeping.debris_sweep import DebrisSwept
from archiver.upkeep.retention.sweeping.sweep import TopicSweepResult
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult, report_of

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


@pytest.mark.parametrize("yes", [["--yes"], ["--yes", DIGEST]])
def test_a_dry_run_agrees_to_nothing(yes: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    with pytest.raises(UsageError, match=r"^--dry-run deletes nothing; --yes cannot go with it$"):
        run(parser.parse_args(["--dry-run", *yes]))


def sweep_of(name: str, root: int, count: int) -> TopicSweep:
    terms = TopicTerms(
        topic="t",
        name=name,
        topic_id="T",
        root=root,
        newest=root,
        whose=LimitSource.GONE,
        limits=Limits(ms=1, floor_ms=2),
    )
    told = AskedItem(next=1, min_timestamp=0, max_timestamp=0, source_bytes=1, records=3)
    going = (
        GoingItem(item=ListedItem(life=root, key="k", base=0, size=10, put_ms=0), told=told, why=Going.TIME),
    ) * count
    return TopicSweep(terms=terms, partitions=[PartitionSweep(topic="t", partition=0, root=root, going=going)])


def result_of(*, without_kafka: bool = False) -> SweepResult:
    former, current = sweep_of("t@0", 0, 2), sweep_of("t", 1, 5)
    plan = SweepPlan(made_ms=0, now_ms=0, topics=[former, current], kept=(), without_kafka=without_kafka)
    return SweepResult(plan=plan, swept=[TopicSweepResult("t@0", deleted=list(former.going))], waiting=[current])


def test_lives_of_a_topic_are_listed_separately() -> None:
    lines = list(retention_lines(result_of()))
    assert "t@0: 2 objects go: older than what the topic keeps" in lines
    assert "t: 5 objects go: older than what the topic keeps" in lines
    assert any(line.startswith("t: 0% of it would go") for line in lines)
    report = report_of(result_of())
    assert {name: one.records for name, one in report.topics.items()} == {"t@0": 6, "t": 0}


def test_a_first_sweep_says_that_it_noted_the_limits() -> None:
    lines = list(retention_lines(replace(result_of(), newly_noted=1)))
    assert any(line.startswith("this sweep has noted what 1 topic keeps by now; ") for line in lines)
    assert not any("has noted" in line for line in retention_lines(result_of()))


@pytest.mark.parametrize("without_kafka", [False, True])
def test_a_run_that_asked_no_cluster_says_so(without_kafka: bool) -> None:
    result = result_of(without_kafka=without_kafka)
    said = "this run asked no cluster: it goes by retention.fixed, and takes also what the brokers still have"
    assert (said in list(retention_lines(result))) is without_kafka
    assert retention_row(result)["without_kafka"] is without_kafka
    assert report_of(result).without_kafka is without_kafka
    dry = replace(result, digest="d", swept=(), waiting=())
    assert (said in list(retention_lines(dry))) is without_kafka


def shown(*, without_kafka: bool = False, now_ms: int = 0) -> list[str]:
    """What a dry run prints."""
    topic = sweep_of("t", 1, 5)
    plan = SweepPlan(made_ms=0, now_ms=now_ms, topics=[topic], kept=(), without_kafka=without_kafka)
    return list(retention_lines(SweepResult(plan=plan, digest=DIGEST, is_dry_run=True, waiting=[topic])))


def test_a_dry_run_tells_which_records_would_go_and_what_waits_for_yes() -> None:
    lines = shown()
    assert "t-0: offsets 0-0 go" in lines
    assert lines[-3].split() == ["t", "retention.ms", "1,", "retention.floor", "2", "5", "15", "50", "B", "0"]
    assert lines[-2] == (
        "t: 0% of it would go that the limits of before would have kept. Nobody has agreed to limits for it yet, and only notes in"
        " the archive say that cleanup.policy is delete; a sweep leaves it as it is without --yes"
    )


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        ({}, f"`archiver retention --yes {DIGEST}` deletes just this, within an hour"),
        ({"without_kafka": True}, f"`archiver retention --without-kafka --yes {DIGEST}` deletes just this, within an"),
        ({"now_ms": 1}, f"`archiver retention --yes {DIGEST}` deletes what of this may go by then, within an hour"),
    ],
)
def test_the_command_that_a_dry_run_prints_deletes_what_it_says(
    asked: dict[str, Any],  # what is shown
    command: str,
) -> None:
    assert shown(**asked)[-1].startswith(f"nothing was deleted; {command}")


def test_a_name_that_no_topic_has_is_reported() -> None:
    result = SweepResult(plan=SweepPlan(made_ms=0, now_ms=0, topics=(), kept=()))
    assert list(retention_lines(result)) == ["the archive has no topic to sweep"]


def swept_debris() -> SweepResult:
    """Of two restores one has gone; of the other an object was denied."""
    group = DebrisGroup(
        kind=DebrisKind.RESTORE, stream="restores/r", objects=3, bytes=30, newest_ms=0, content="0" * 32
    )
    staying = {DebrisKind.RESTORE: {DebrisStay.UNFINISHED: 1, DebrisStay.YOUNG: 2}}
    done = DebrisSwept(left=["control/restores/x/: it has changed"], refused=["k: denied"], refusals=2)
    done.groups[DebrisKind.RESTORE], done.objects[DebrisKind.RESTORE], done.bytes[DebrisKind.RESTORE] = 1, 5, 50
    return SweepResult(
        plan=SweepPlan(made_ms=0, now_ms=0, topics=(), kept=()),
        debris=DebrisPlan(going=[group, group], staying=staying, errors=["days: cannot be listed"]),
        debris_swept=done,
    )


def test_deleted_control_objects_are_reported() -> None:
    result = swept_debris()
    assert not result.is_complete
    lines = list(retention_lines(result))
    assert "notes of finished restores: 1 stays: it is not finished" in lines
    assert "notes of finished restores: 2 stay: it is too young" in lines
    assert "control/restores/x/: it has changed" in lines
    (told,) = (line.split() for line in lines if line.startswith("notes of finished restores  "))
    assert told[-3:] == ["2", "6", "5"]
    row = retention_row(result)
    assert row["problems"] == ["days: cannot be listed", "k: denied", "1 more delete failed"]


def test_what_was_swept_of_control_objects_is_reported() -> None:
    report: SweepReport = report_of(swept_debris())
    found = report.control["notes of finished restores"]
    assert (found.groups, found.objects, found.bytes) == (1, 5, 50)
    assert found.kept_because == {"it is not finished": 1, "it is too young": 2}
    assert (report.refused, report.problems[0]) == (2, "days: cannot be listed")


def test_a_sweep_of_another_cluster_counts_its_topics_as_stopped_and_complains_once() -> None:
    stop = "no topic of the archive is of cluster d, which was asked"
    kept = [KeptTopic(topic=name, why="it was archived of cluster c, and this is d", stop=stop) for name in "tu"]
    result = SweepResult(plan=SweepPlan(made_ms=0, now_ms=0, topics=(), kept=kept))
    assert (result.exit_code, result.is_complete) == (3, False)
    assert retention_row(result)["problems"] == [stop]
    report = report_of(result)
    assert {name: one.stopped for name, one in report.topics.items()} == {"t": stop, "u": stop}
    assert report.kept == {}
    usual = SweepResult(plan=SweepPlan(made_ms=0, now_ms=0, topics=(), kept=[replace(kept[0], stop="")]))
    assert (usual.exit_code, report_of(usual).topics, list(report_of(usual).kept)) == (0, {}, ["t"])
