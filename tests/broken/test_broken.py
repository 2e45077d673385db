"""Copies of the program that are broken on purpose: the tests that are named beside each of them fail."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broken import server
from tests.broken.builds import BUILDS
from tests.support.brokers import REPOSITORY, S3, Broker
from tests.support.chaos.broken import Change, make_overlay

pytestmark = [pytest.mark.broken, pytest.mark.timeout(900)]


class Done(NamedTuple):
    """The exit code of pytest, and what has failed."""

    exit_code: int
    failed: list[str]


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run tests with an overlay first on the path."""
    output = tmp_path_factory.mktemp("output") / "pytest.txt"
    quiet = ("-rf", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-W", "ignore:Module already imported")
    with subprocess.Popen(
        [sys.executable, server.__file__],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:

        def run(overlay: Path, *tests: str, **environment: str) -> Done:
            assert process.stdin is not None
            assert process.stdout is not None
            options = [*quiet, "-o", f"pythonpath={overlay} {REPOSITORY}", *tests]
            asked = {"overlay": str(overlay), "output": str(output), "environment": environment, "tests": options}
            print(json.dumps(asked), file=process.stdin)
            exit_code = int(process.stdout.readline())
            told = output.read_text(encoding="utf-8")
            print(told[-5000:])
            return Done(exit_code, [line for line in told.splitlines() if line.startswith("FAILED ")])

        yield run
        process.communicate()


def is_unit(name: str) -> bool:
    return all(test.startswith(("tests/unit/", "tests/faults/")) for test in BUILDS[name].tests)


@pytest.mark.parametrize("name", [name for name in BUILDS if is_unit(name)])
def test_a_broken_copy_is_found(name: str, tmp_path: Path, run: Run) -> None:
    check(name, tmp_path, run)


@pytest.mark.kafka
@pytest.mark.s3
@pytest.mark.parametrize("name", [name for name in BUILDS if not is_unit(name)])
def test_a_broken_copy_is_found_by_real_servers(
    name: str, tmp_path: Path, run: Run, broker_41: Broker, minio: S3
) -> None:
    """All of them share a broker and a store."""
    options = (f"--kafka-bootstrap={broker_41.bootstrap}", f"--s3-endpoint={minio.endpoint}")
    keys = {"AWS_ACCESS_KEY_ID": minio.access_key, "AWS_SECRET_ACCESS_KEY": minio.secret_key}
    check(name, tmp_path, run, *options, **keys)


def check(name: str, overlay: Path, run: Run, *options: str, **environment: str) -> None:
    build = BUILDS[name]
    done = run(make_overlay(overlay, build.changes), *options, *build.tests, **environment)
    assert done.exit_code == 1
    assert [test for test in build.tests if not any(test in line for line in done.failed)] == []


def test_a_copy_that_is_not_broken_passes(tmp_path: Path, run: Run) -> None:
    same = Change("codec/batch.py", "        if actual != crc:\n", "        if crc != actual:\n")
    assert run(make_overlay(tmp_path, [same]), *BUILDS["CRC of batches unchecked"].tests) == (0, [])
