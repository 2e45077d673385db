"""What the command says and returns for each outcome of a restore."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import archiver.spark.restore
from archiver.cli.main import main
from archiver.errors import KafkaError, TargetError, UsageError
from archiver.interrupt import INTERRUPTED
from archiver.restore.plan.task import TaskReport, failed
from archiver.restore.report.restore_report import RestoreResult, TopicReport

WHOLE = TaskReport(target_topic="t", partition=0)
SKIPPED = TaskReport(target_topic="t", partition=0, missing=("offsets 3-5 in an object: damaged",))
BROKEN = TaskReport(target_topic="t", partition=1, error="t-1: someone else wrote to the target", exit_code=3)
LATER = TaskReport(target_topic="t", partition=2, error="t-2: run the same command again", exit_code=4)


@pytest.mark.parametrize(
    ("sources", "targets", "exit_code", "told"),
    [
        ([WHOLE], [WHOLE], 0, []),
        ([WHOLE, BROKEN], [], 3, [BROKEN.error]),
        ([WHOLE], [WHOLE, BROKEN], 3, [BROKEN.error]),  # a target partition that was read back
        ([SKIPPED], [], 3, ["skipped, not in t-0: offsets 3-5 in an object: damaged"]),
        (
            [SKIPPED, BROKEN],
            [LATER],
            4,
            ["skipped, not in t-0: offsets 3-5 in an object: damaged", BROKEN.error, LATER.error],
        ),
    ],
    ids=["whole", "source", "target", "skipped", "all"],
)
def test_each_failure_is_reported_and_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sources: list[TaskReport],
    targets: list[TaskReport],
    exit_code: int,
    told: list[str],
) -> None:
    topic = TopicReport(
        source="t",
        life=0,
        target="t",
        partitions=tuple(sources),
        retention_command="",
        is_finished=not exit_code,
        target_partitions=tuple(targets),
    )
    result = RestoreResult(restore_id="r", seconds=2.0, filling_seconds=1.0, topics=[topic])
    monkeypatch.setattr(archiver.spark.restore, "run_restore_job", lambda *_, **__: result)
    target = tmp_path / "target.yaml"
    target.write_text("kafka.bootstrap.servers: a:1\n")
    assert main(["restore", "--quiet", "--url", "s3://bucket/p", "--target", str(target)]) == exit_code
    command = f"archiver restore --quiet --url s3://bucket/p --target {target} --id r"
    way_on = [f"restore r is not done; when that is mended, go on with: {command}"]
    goes_on = any(one.error for one in (*sources, *targets))
    lines = [*told, *(way_on if goes_on else ())]
    assert capsys.readouterr().err.splitlines() == [f"archiver: {line}" for line in lines]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("no broker took it", "t-1: no broker took it"),
        ("t-1: the topic was deleted", "t-1: the topic was deleted"),
        ("t-1 ends at 5, not at 7", "t-1 ends at 5, not at 7"),
        ("t-10 is another one", "t-1: t-10 is another one"),
    ],
)
def test_a_partition_is_named_once(said: str, told: str) -> None:
    assert failed("t", 1, KafkaError(said), "t-1").error == told


WAY_ON = re.compile("restore r is not done; (when that is mended, )?go on with: archiver ")


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize(
    ("error", "exit_code", "told"),
    [
        (UsageError("target.yaml: is not there"), 2, ["target.yaml: is not there"]),
        (TargetError("t is not empty\nu is not empty"), 2, ["t is not empty", "u is not empty"]),
        (KeyboardInterrupt(), 4, [INTERRUPTED]),
    ],
)
def test_an_immediate_failure_is_in_the_json_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    exit_code: int,
    told: list[str],
    *,
    is_begun: bool,
) -> None:
    code, found, lines = ended_by(error, tmp_path, monkeypatch, capsys, is_begun=is_begun)
    assert code == exit_code
    assert (found["id"], found["failure"]) == ("r" if is_begun else None, "\n".join(told))
    assert (found["topics"], found["not_begun"], found["records"]) == ([], [], 0)
    assert lines[: len(told)] == told
    assert [WAY_ON.match(line) is not None for line in lines[len(told) :]] == [True] * is_begun


def test_a_defect_that_ends_a_restore_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, found, lines = ended_by(ZeroDivisionError("a thing"), tmp_path, monkeypatch, capsys, is_begun=True)
    assert (code, found["id"], found["failure"]) == (1, "r", lines[0])
    assert lines[0].startswith("unexpected ZeroDivisionError: a thing; this is a defect of the archiver")
    assert WAY_ON.match(lines[1])


def ended_by(
    error: BaseException,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_begun: bool,
) -> tuple[int, Any, list[str]]:
    """Exit code, JSON and complaints of a restore that this ends, before or after it has told its id."""

    def end(*_: object, begin: Callable[[str], None], **__: object) -> None:
        if is_begun:
            begin("r")
        raise error

    monkeypatch.setattr(archiver.spark.restore, "run_restore_job", end)
    target = folder / "target.yaml"
    target.write_text("kafka.bootstrap.servers: a:1\n")
    options = ["--quiet", "--url", "s3://bucket/p", "--target", str(target), "--format", "json"]
    code = main(["restore", *options])
    out, err = capsys.readouterr()
    return code, json.loads(out), [line.removeprefix("archiver: ") for line in err.splitlines()]
