"""Logs in both formats, and progress on a terminal and elsewhere."""

import io
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from archiver.process.output.logs import LogField, progress_log, set_up_logs
from archiver.process.output.progress import Eta, Progress, spell_seconds

log = logging.getLogger("archiver.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("", "archiver")]
    before = [(logger.handlers[:], logger.level) for logger in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.level = handlers, level


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_text_is_one_line_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs()
    log.warning("cut at %s", 7, extra={LogField.TOPIC: "orders", LogField.PARTITION: 3})
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING archiver\.test: cut at 7 topic=orders partition=3\n",
        capsys.readouterr().err,
    )


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json")
    try:
        int("two\nlines")
    except ValueError:
        log.exception("failed", extra={LogField.OBJECT_KEY: "topics/ö"})
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    written = Path(entry.pop("traceback"))
    assert written.read_text().endswith("ValueError: invalid literal for int() with base 10: 'two\\nlines'\n")
    written.unlink()
    assert entry == {
        "level": "error",
        "logger": "archiver.test",
        "message": "failed",
        "object_key": "topics/ö",
    }


def test_what_goes_well_is_for_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs()
    log.info("first")
    set_up_logs(verbose=True)
    log.info("second")
    logging.getLogger("elsewhere").info("third")
    assert [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["second"]


def test_progress_is_a_log_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json")
    clock = Clock()
    progress = Progress("backup", every_s=5, clock=clock)
    for second in range(13):
        clock.now = 100.0 + second
        progress.report(f"{second} records")
    progress.close()
    progress.close()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["message"], line["seconds"]) for line in lines] == [
        ("5 records", 5.0),
        ("10 records", 10.0),
        ("12 records", 12.0),
    ]
    assert {line["activity"] for line in lines} == {"backup"}


def test_what_is_said_stands_there_at_once_and_tells_when_more_comes(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json")
    clock = Clock()
    progress = Progress("backup", every_s=60, clock=clock)
    clock.now += 2.5
    progress.announce("archiving 1 partition")
    entry = json.loads(capsys.readouterr().err)
    assert entry["message"] == "archiving 1 partition; the next line comes in 58 s"
    assert (entry["activity"], entry["seconds"]) == ("backup", 2.5)


def test_what_is_told_before_a_long_silence_is_logged_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json")
    progress = Progress("verify", every_s=0.05)
    progress.report("starting Spark")
    err, late_s = "", time.monotonic() + 20
    while not err and time.monotonic() < late_s:
        threading.Event().wait(0.01)
        err = capsys.readouterr().err
    assert json.loads(err)["message"] == "starting Spark"
    progress.close()
    assert capsys.readouterr().err == ""


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(quiet=True)
    progress_log.info("compiling kernels")
    progress = Progress("backup", quiet=True, every_s=0)
    progress.announce("archiving 1 partition")
    progress.report("1 record")
    progress.close()
    assert capsys.readouterr().err == ""


def test_on_a_terminal_one_line_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    set_up_logs()
    progress = Progress("restore", clock=Clock())
    progress.report("1 record [/not markup]")
    progress.announce("into s3://archive/p")
    log.warning("in between")
    progress.report("2 records")
    progress.close()
    shown = terminal.getvalue()
    assert "restore 0 s: 1 record [/not markup]" in shown
    assert "in between" in shown
    assert (
        "INFO archiver.progress: into s3://archive/p \n" in shown
    )  # as wide as the terminal; the next one comes at once
    assert shown.count("INFO") == 1
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is there again


def test_on_a_terminal_that_cannot_change_a_line_there_are_more_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    set_up_logs()
    progress = Progress("restore", every_s=0)
    progress.report("1 record")
    progress.close()
    assert terminal.getvalue().endswith(" INFO archiver.progress: 1 record activity=restore seconds=0.0\n")


def test_pace_tells_rate_and_time_left_of_what_was_done_since_it_began() -> None:
    now_s = [100.0]
    eta = Eta("records", lambda: now_s[0])
    assert eta.spell(400, 1000) == "40%"
    now_s[0] += 10
    assert eta.spell(600, 1000) == "60%, 20 records/s, 20 s left"
    now_s[0] += 90
    assert eta.spell(600, 100_000) == "0%, 13 h 48 min left"  # of 2 a second no rate is told
    assert eta.spell(600, 600) == "100%"
    assert Eta("records", lambda: 0.0).spell(0, 0) == ""
    shares = Eta("", lambda: now_s[0])
    shares.spell(0, 1000)
    now_s[0] += 10
    assert shares.spell(500, 1000) == "50%, 10 s left"
    assert [spell_seconds(one) for one in (0.4, 59.6, 61, 3600)] == ["0 s", "1 min 0 s", "1 min 1 s", "1 h 0 min"]
