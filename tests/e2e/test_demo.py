"""`archiver demo` as a user runs it: what it tells, what it proves, and that it leaves nothing."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from archiver.demo.sandbox import fetch_kafka
from archiver.demo.shop import Counts, first_difference, make_orders
from archiver.demo.stage import KAFKA_VERSION, cache_directory, cleaned_up, set_stage
from archiver.demo.teller import Teller
from archiver.demo.witness import SeenRecord
from archiver.errors import ArchiverError
from tests.support.brokers import REPOSITORY

pytestmark = pytest.mark.e2e

COMMAND = (sys.executable, "-m", "archiver", "demo", "--records", "2000")


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a demo runs, and where nothing may be left."""

    current: Path
    temporary: Path

    def left(self) -> list[str]:
        """Files in the folders, and processes that mention them."""
        files = [str(path) for folder in (self.current, self.temporary) for path in folder.iterdir()]
        return files + [line for line in _commands() if str(self.temporary) in line]

    def environment(self, **variables: str) -> Mapping[str, str]:
        return {**os.environ, "TMPDIR": str(self.temporary), **variables}


def _commands() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has just ended
    return found


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    for name in ("current", "temporary"):
        (tmp_path / name).mkdir()
    return Ground(tmp_path / "current", tmp_path / "temporary")


@pytest.fixture(scope="module")
def _kafka_in_cache() -> None:
    try:
        fetch_kafka(KAFKA_VERSION, cache_directory())
    except ArchiverError as error:
        pytest.skip(str(error))


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.usefixtures("_kafka_in_cache")
def test_story(ground: Ground) -> None:
    done = subprocess.run(
        COMMAND, cwd=ground.current, env=ground.environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")  # not a word of Spark's, librdkafka's or S3's
    assert "2,000 of 2,000 records are equal." in done.stdout
    assert "0 records of the aborted transaction came back" in done.stdout
    assert "\x1b" not in done.stdout
    assert ground.left() == []
    told = iter(_without_figures(done.stdout))
    for line in _without_figures(_readme_block()):
        assert line in told, f"README.md shows a line that the story does not have there: {line}"


def _without_figures(text: str) -> list[str]:
    """The lines that say something, without what changes from run to run."""
    shown = [re.sub(r"\b[0-9a-f]{16}\b", "ID", line.strip()) for line in text.splitlines() if line.strip()]
    return [re.sub(r"\d[\d,.]*( [KM]iB| B)?\b", "N", line) for line in shown]


def _readme_block() -> str:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"^```console\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    return next(
        block.removeprefix("$ make demo\n") for block in blocks if "the broker knows it no more" in block.lower()
    )


@pytest.mark.usefixtures("_kafka_in_cache")
def test_interrupted_as_it_makes_its_folder_it_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def make_and_interrupt(path: str, mode: int = 0o777) -> None:
        make(path, mode)
        raise KeyboardInterrupt

    def begin() -> None:
        with cleaned_up() as stack:
            set_stage(stack, Teller(print))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "mkdir", make_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        begin()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.kafka
@pytest.mark.usefixtures("_kafka_in_cache")
@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("1. A Kafka", signal.SIGINT),  # while the broker starts
        pytest.param("$ archiver backup", signal.SIGTERM, marks=pytest.mark.long),
        ("$ archiver restore", signal.SIGINT),
    ],
)
def test_interrupted_it_leaves_nothing(ground: Ground, line: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        COMMAND, cwd=ground.current, env=ground.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any(told.startswith(line) for told in process.stdout)
        process.send_signal(number)
        _, complained = process.communicate(timeout=120)
    assert process.returncode == 4
    assert complained == "archiver: the demo was interrupted; all that it had started and written is gone\n"
    assert ground.left() == []


def test_without_java_it_says_what_to_install(ground: Ground, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "env").symlink_to(shutil.which("env") or "env")
    environment = ground.environment(PATH=str(tools))
    done = subprocess.run(COMMAND, cwd=ground.current, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "archiver: Java is not installed: install Java 17 or later and put `java` on the PATH\n"
    assert done.stdout == ""
    assert ground.left() == []


def test_too_few_records_are_a_usage_error(ground: Ground) -> None:
    command = (*COMMAND[:-1], "10")
    done = subprocess.run(command, cwd=ground.current, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--records 10: the demo needs 1,000 or more" in done.stderr


RECORD = SeenRecord(b"k", b"v", (("a", b"1"), ("a", None)), 1000, 1)
OTHER = SeenRecord(b"other", b"v", (), 1000, 1)


@pytest.mark.parametrize(
    "after",
    [
        {0: [RECORD._replace(key=None), OTHER], 1: []},
        {0: [RECORD._replace(value=b""), OTHER], 1: []},
        {0: [RECORD._replace(headers=(("a", None), ("a", b"1"))), OTHER], 1: []},
        {0: [RECORD._replace(headers=(("a", b"1"), ("a", b""))), OTHER], 1: []},
        {0: [RECORD._replace(timestamp_ms=1001), OTHER], 1: []},
        {0: [RECORD._replace(timestamp_type=2), OTHER], 1: []},
        {0: [OTHER, RECORD], 1: []},
        {0: [RECORD], 1: []},
        {0: [RECORD, OTHER, OTHER], 1: []},
        {0: [RECORD], 1: [OTHER]},
        {0: [RECORD, OTHER]},
    ],
)
def test_the_proof_sees_a_difference(after: Mapping[int, list[SeenRecord]]) -> None:
    before = {0: [RECORD, OTHER], 1: []}
    assert first_difference(before, before) == ""
    assert first_difference(before, after) != ""


def test_orders_have_all_that_is_easily_lost() -> None:
    records = list(make_orders(1_000, 0))
    count = Counts.of({0: records})
    assert count.records == 1_000
    assert min(count.tombstones, count.empty, count.with_headers, count.doubled) > 0
    assert [record.timestamp_ms for record in records] == sorted(record.timestamp_ms for record in records)
