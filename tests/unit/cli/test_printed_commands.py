"""Commands that are printed to be pasted: a real shell runs them, and sees nothing but the words that were meant."""

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

import archiver.spark.restore
import archiver.spark.retention
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topics import list_known_topics
from archiver.cli.main import main
from archiver.cli.output import print_lines
from archiver.cli.restore_report import restore_lines
from archiver.errors import NotWholeError
from archiver.kafka.login.settings import KafkaSettings
from archiver.restore.plan.request import Retention
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.plan.target_limits import limit_problems
from archiver.restore.report.restore_report import RestoreResult, TopicReport
from archiver.restore.report.topic_reports import retention_command, strange_retention
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore
from tests.unit.cli.test_retention import DIGEST, result_of
from tests.unit.restore.test_target_limits import LENIENT, facts_of, plan_of

HOSTILE = [
    "1;echo pwned>pwned", "$(echo pwned>pwned)", "`echo pwned>pwned`", "1|echo>pwned", "1 && echo>pwned", "1\necho>pwned", "'; echo>pwned; '",
    '"; echo>pwned; "', "1 --bootstrap-server evil:9092", "1,cleanup.policy=compact", "[1,2]", "~", "*", "1\x1b[2J", "1\0", "", "1 #", "\\", "!!",
]  # fmt: skip
BOOTSTRAP = "$(echo>pwned);echo>pwned;`echo>pwned`'\":9092"
LONGEST = str(2**63 - 1)


def run(command: str, folder: Path) -> list[str]:
    """Run what was printed; returns the words that Kafka's tool, or ours, was given."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("kafka-configs.sh", "archiver"):
        tool = tools / name
        tool.write_text('#!/bin/sh\nprintf "%s\\n" "$#" "$@" >"$WORDS"\n')
        tool.chmod(0o755)
    words = folder / "words"
    words.unlink(missing_ok=True)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, env={"PATH": path, "WORDS": str(words)}, check=True, capture_output=True
    )
    assert not (folder / "pwned").exists()
    count, *found = words.read_text().split("\n")[:-1]
    assert len(found) == int(count)
    return found


def told(topic: TopicPlan, bootstrap: str = "a:1") -> TopicReport:
    """What a restore tells in the end of a topic that is whole."""
    cluster = KafkaSettings.parse({"bootstrap.servers": bootstrap}).for_tools()
    return TopicReport(
        source=topic.source, life=0, target=topic.target, partitions=(), is_finished=True,
        retention_command=retention_command(topic, Retention.UNLIMITED, cluster),
        strange_retention=strange_retention(topic),
    )  # fmt: skip


def printed(report: TopicReport, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_lines(restore_lines(RestoreResult(restore_id="r", seconds=2.0, filling_seconds=1.0, topics=[report])))
    return capsys.readouterr().out.split("\n")


def topic_with(**retention: str) -> TopicPlan:
    archived = {f"retention.{name}": value for name, value in retention.items()}
    return TopicPlan(
        source="orders", life=0, target="copy", partitions=(), final_configs={}, archived_retention=archived
    )


@pytest.mark.parametrize("value", HOSTILE)
def test_a_config_that_no_topic_can_have_makes_no_command(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(told(topic_with(ms=value, bytes="5")), capsys)
    for line in lines:
        assert "kafka-configs.sh" not in line or run(line, tmp_path)[6:] == ["--alter", "--add-config", value]
    (line,) = [line for line in lines if "no topic can have had" in line]
    assert line.startswith("copy: the archive has retention.ms=")
    assert "see who wrote control/topics/orders/" in line
    assert line.isprintable()


def test_words_from_the_configuration_arrive_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [
        line for line in printed(told(topic_with(ms="1000"), BOOTSTRAP), capsys) if line.startswith("  kafka-configs")
    ]
    assert run(line, tmp_path) == [
        "--bootstrap-server", BOOTSTRAP, "--entity-type", "topics", "--entity-name", "copy", "--alter",
        "--add-config", "retention.ms=1000", "--delete-config", "retention.bytes",
    ]  # fmt: skip


def test_what_holds_already_is_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("kafka-configs" in line for line in printed(told(topic_with(ms="-1", bytes="-1")), capsys))
    (line,) = [line for line in printed(told(topic_with(ms="-1", bytes="7")), capsys) if "kafka-configs" in line]
    assert line.endswith("--add-config retention.bytes=7")


def test_the_way_past_a_limit_is_a_command_of_its_words(tmp_path: Path) -> None:
    cluster = KafkaSettings.parse({"bootstrap.servers": BOOTSTRAP}).for_tools()
    (problem,) = limit_problems(plan_of(facts_of(9, 5, 5)), LENIENT | {"retention.ms": "1"}, time.time_ns(), cluster)
    command = problem.partition("such as with `")[2].rpartition("`, or restore")[0]
    assert run(command, tmp_path)[1] == BOOTSTRAP
    assert run(command, tmp_path)[7:] == ["--add-config", "retention.ms=-1"]


@pytest.mark.parametrize("value", [one for one in HOSTILE if one.isprintable() and one])
def test_the_way_on_is_the_command_that_was_typed(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = way_on(value, tmp_path, monkeypatch, capsys).partition("go on with: ")[2]
    assert run(command, tmp_path)[-4:] == ["--where", value, "--id", "r"]


def test_what_a_terminal_would_change_is_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = way_on("a = 1\n or b = 2", tmp_path, monkeypatch, capsys)
    assert line.endswith("go on with the same command, and --id r")


@pytest.mark.parametrize("value", [one for one in HOSTILE if one.isprintable() and one])
def test_what_a_dry_run_prints_is_the_same_sweep_with_its_digest(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "archive.yaml"
    config.write_text("storage:\n  url: s3://bucket/p\n")
    shown = replace(result_of(without_kafka=True), digest=DIGEST, is_dry_run=True)
    monkeypatch.setattr(archiver.spark.retention, "run_retention", lambda *_: shown)
    options = ["-c", str(config), f"--topics={value}", "--without-kafka"]
    assert main(["retention", "--quiet", "--dry-run", *options]) == 0
    command = capsys.readouterr().out.partition("nothing was deleted; `")[2].rpartition("` deletes just this")[0]
    assert run(command, tmp_path) == ["retention", *options, "--yes", DIGEST]


def way_on(where: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The last line of a restore that has failed."""

    def fail(*_: object, begin: object, **__: object) -> None:
        begin("r")  # type: ignore[operator]
        raise NotWholeError("broken")

    monkeypatch.setattr(archiver.spark.restore, "run_restore_job", fail)
    target = folder / "target.yaml"
    target.write_text("kafka.bootstrap.servers: a:1\n")
    words = ["restore", "--quiet", "--url", "s3://bucket/p", "--target", str(target), "--where", where]
    assert main(words) == 3
    return capsys.readouterr().err.splitlines()[-1]


def test_a_name_that_no_topic_can_have_is_no_topic_of_the_archive() -> None:
    store, layout = MemoryStore(), Layout("archive")
    for name in ("orders", "$(reboot)", "a;b", ".."):
        store.put_if_absent(layout.fact_key(f"topics/{name}", 0), b"{}", {}, kind=ObjectKind.FACT)
    assert list_known_topics(Archive(store, layout)) == {"orders"}
