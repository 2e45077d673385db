"""The folder of a JVM is gone after any end: of the block, of the process, and of a process that was killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from archiver.spark.session.isolation import private_folder, remove_unowned

HELD = """
import sys, time
from archiver.spark.session.isolation import private_folder
with private_folder() as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_whose_jvm_did_not_start_is_deleted(parent: Path) -> None:
    with pytest.raises(OSError, match="no Java"), private_folder():
        raise OSError("no Java")
    assert list(parent.iterdir()) == []


def test_a_process_that_ends_while_its_jvm_starts_deletes_the_folder(parent: Path) -> None:
    with private_folder() as folder:
        (folder / "some").write_text("x")
        remove_unowned()
        assert list(parent.iterdir()) == []


def test_the_next_start_deletes_what_a_killed_process_left_and_nothing_else(parent: Path) -> None:
    program, environment = [sys.executable, "-c", HELD], {**os.environ, "TMPDIR": str(parent)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as held:
        assert held.stdout is not None
        folder = Path(held.stdout.readline().strip())
        os.utime(folder, (0, 0))
        (parent / "archiver-spark-young").mkdir()
        with private_folder() as mine:
            assert {folder, mine, parent / "archiver-spark-young"} == set(parent.iterdir())
        held.send_signal(signal.SIGKILL)
    with private_folder() as other:
        assert {mine, other, parent / "archiver-spark-young"} == set(parent.iterdir())
