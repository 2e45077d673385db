"""Ctrl-C and SIGTERM at the very beginning, where the program is only being imported: no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from archiver.interrupt import EXIT_CODE, INTERRUPTED
from tests.support.brokers import REPOSITORY

SAID = f"archiver: {INTERRUPTED}\n"
# Whatever is imported as the n-th module meets the signal meanwhile.
PRESSED = """
import os, signal, sys
class Presser:
    number, left = signal.Signals[sys.argv.pop(1)], int(sys.argv.pop(1))
    def find_spec(self, name, path, target=None):
        if "archiver.interrupt" in sys.modules:
            Presser.left -= 1
            if Presser.left == 0:
                os.kill(os.getpid(), Presser.number)
sys.meta_path.insert(0, Presser())
from archiver.__main__ import run
run()
"""


def pressed(name: str, at: int, *arguments: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRESSED, name, str(at), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), **more},
        timeout=60,
        check=False,
    )


signals = pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])


@signals
@pytest.mark.parametrize("at", [1, 2, 10, 30, 50, 300])
def test_during_imports_it_is_one_line(name: str, at: int, tmp_path: Path) -> None:
    done = pressed(
        name, at, "ls", "--url", "s3://bucket/prefix", folder=tmp_path, AWS_ENDPOINT_URL="http://127.0.0.1:9"
    )
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_CODE, "", SAID)


@signals
def test_an_ignored_signal_does_not_end_the_command(name: str, tmp_path: Path) -> None:
    script = f"""trap '' {name.removeprefix("SIG")}; exec "$0" -c "$1" {name} 10 --version"""
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, PRESSED],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout[:9], done.stderr) == (0, "archiver ", "")


def test_it_is_there_before_anything_else() -> None:
    """Every import of its own is time in which Ctrl-C is a traceback."""
    code = "import sys; before = set(sys.modules); import archiver.__main__, archiver.interrupt; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=60, check=True
    )
    assert done.stdout.split() == ["archiver", "archiver.__main__", "archiver.import_path", "archiver.interrupt"]


HANGS = """
import asyncio, os, signal, time
from archiver.process.running import signals
signals._END_S = 0.5
async def work():
    stop = signals.stop_on_signals()
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)  # as a name server that does not answer
    os.kill(os.getpid(), signal.SIGTERM)
    await stop.wait()
asyncio.run(work())
"""


def test_a_service_ends_though_a_thread_hangs_that_the_loop_waits_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        timeout=30,
        check=False,
    )
    assert done.returncode == EXIT_CODE
    assert "did not end in time; what was not durable is still in Kafka" in done.stderr
