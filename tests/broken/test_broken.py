"""Copies of the program that are broken on purpose: the tests that are named beside each of them fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broken.builds import BUILDS
from tests.support.brokers import REPOSITORY
from tests.support.chaos.broken import Change, make_overlay

pytestmark = [pytest.mark.broken, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", BUILDS)
def test_a_broken_copy_is_found(name: str, tmp_path: Path) -> None:
    build = BUILDS[name]
    exit_code, failed = run(make_overlay(tmp_path, build.changes), *build.tests)
    assert exit_code == 1
    assert [test for test in build.tests if not any(test in line for line in failed)] == []


def test_a_copy_that_is_not_broken_passes(tmp_path: Path) -> None:
    same = Change("codec/batch.py", "        if actual != crc:\n", "        if crc != actual:\n")
    assert run(make_overlay(tmp_path, [same]), *BUILDS["CRC of batches unchecked"].tests) == (0, [])


def run(overlay: Path, *tests: str) -> tuple[int, list[str]]:
    """Return the exit code of pytest, and what has failed."""
    quiet = ("-rf", "--no-header", "--tb=line", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, "-o", f"pythonpath={overlay} {REPOSITORY}", *tests],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(overlay)},  # of the commands that tests start
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout[-3000:], done.stderr[-3000:])
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
