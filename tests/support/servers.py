"""A server program as a process of ours, on 127.0.0.1: it answers when it is handed out, and does not outlive us."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from archiver.process.running.children import start_child

_START_S = 60.0
_STOP_S = 10.0


@contextmanager
def serving(
    command: Sequence[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a command until the end of the block; its process id. It is ready when something listens at the port."""
    with log.open("wb") as said:
        process = start_child(command, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})})
    try:
        _wait_until_ready(process, port, log)
        yield process.pid
    finally:
        _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + _START_S
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > deadline_s:
            said = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"nothing listens at port {port}; {log} says:\n{said}")
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
        return True
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
