"""The services of `infra/systemd/`: systemd takes them, and what they start is a command."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from archiver.cli.commands import build_parser
from archiver.codec import warm
from tests.support.brokers import REPOSITORY

UNITS = sorted((REPOSITORY / "infra" / "systemd").glob("*.service"))
BIN = "/opt/archiver/bin"
STOP_S = 20  # a stop takes up to 15 s


def service_of(unit: Path) -> dict[str, str]:
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(unit, encoding="utf-8")
    return dict(parsed["Service"])


def test_there_are_units() -> None:
    assert [unit.name for unit in UNITS] == ["archiver-backup.service", "archiver-compacted@.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    """With programs of ours in the place of those that it starts: it looks whether they are there."""
    systemd = shutil.which("systemd-analyze")
    if systemd is None:  # a machine without systemd will not run them either
        assert unit.read_text(encoding="utf-8").count("[Unit]") == 1
        return
    for name in ("python", "archiver"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text(encoding="utf-8").replace(BIN, str(tmp_path)), encoding="utf-8")
    done = subprocess.run([systemd, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_service_and_gives_it_time_to_stop(unit: Path) -> None:
    service = service_of(unit)
    program, *words = shlex.split(service["ExecStart"].replace("%i", "a"))
    assert program == f"{BIN}/archiver"
    build_parser(words[0]).parse_args(words)
    assert shlex.split(service["ExecStartPre"]) == [f"{BIN}/python", "-m", warm.__name__]
    (seconds,) = re.findall(r"^(\d+)s$", service["TimeoutStopSec"])
    assert int(seconds) >= STOP_S
    assert (service["Restart"], service["SuccessExitStatus"]) == ("always", "4")
