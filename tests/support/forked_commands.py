"""Commands by fork of one process that has imported the program: 20 ms of CPU for a start instead of a second.

Tests of kills, signals, secrets and isolation are marked `installed`: they start the installed command. So does whatever
sets a variable that an interpreter reads at its start.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from archiver.process.running.children import start_child
from tests.support import command_server

COMMAND: Final = Path(sys.executable).with_name("archiver")
# What an interpreter, numba and the C library read at their start.
READ_AT_START: Final = ("PYTHON", "NUMBA_", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "OPENBLAS_", "HOME", "XDG_")
_only_installed = False


@contextlib.contextmanager
def installed_commands() -> Iterator[None]:
    """Until the end of the block, commands are started as a user starts them."""
    global _only_installed  # noqa: PLW0603 - one test at a time
    former, _only_installed = _only_installed, True
    try:
        yield
    finally:
        _only_installed = former


def start_command(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    text: bool = False,
) -> subprocess.Popen[Any]:
    """Start `archiver` with an empty stdin, in a session of its own that ends with this process."""
    if _only_installed or "ARCHIVER_FAILPOINT" in env or _read_at_start(env) != _server().environment:
        return start_child([str(COMMAND), *arguments], cwd=cwd, env=env, stdout=stdout, stderr=stderr, text=text)
    return _Forked(arguments, cwd, env, stdout, stderr, text=text)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(READ_AT_START)}


@dataclass(frozen=True, slots=True)
class _Server:
    """It ends when the socket does: with this process at the latest."""

    requests: socket.socket
    environment: Mapping[str, str]  # the part that was read at its start


@cache
def _server() -> _Server:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for side in (ours, its):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * command_server.LONGEST_REQUEST)
    with its:
        process = subprocess.Popen(
            [sys.executable, command_server.__file__, str(its.fileno())],
            pass_fds=(its.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return _Server(ours, _read_at_start(os.environ))


class _Forked(subprocess.Popen[Any]):
    """Looks to its user like a child of this process. The server waits for it, and reports its end."""

    def __init__(  # nothing of Popen's: that would start a process
        self,
        arguments: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
        *,
        text: bool,
    ) -> None:
        self.args = [str(COMMAND), *arguments]
        self.stdin = None
        self.returncode = None
        self._ended = threading.Lock()
        self._answers, its_answers = socket.socketpair()
        request = {"command": self.args, "folder": str(cwd), "environment": dict(env), "umask": _umask()}
        with contextlib.ExitStack() as given:
            given.enter_context(its_answers)
            nothing = given.enter_context(Path(os.devnull).open("rb"))
            self.stdout, out = _stream(stdout, given, text=text)
            self.stderr, err = (None, out) if stderr == subprocess.STDOUT else _stream(stderr, given, text=text)
            numbers = [nothing.fileno(), out, err, its_answers.fileno()]
            socket.send_fds(_server().requests, [json.dumps(request).encode()], numbers)
        self.pid = self._answer()

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        while self.returncode is None:
            if not self._ended.acquire(timeout=-1 if timeout is None else timeout):  # another thread waits
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            with contextlib.ExitStack() as held:
                held.callback(self._ended.release)
                if self.returncode is None:
                    if not select.select([self._answers], [], [], timeout)[0]:
                        raise subprocess.TimeoutExpired(self.args, timeout or 0)
                    self.returncode = self._answer()
                    self._answers.close()
        return self.returncode

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002, ANN401
        assert input is None, "its stdin is empty"
        deadline_s = None if timeout is None else time.monotonic() + timeout
        read: dict[str, Any] = {}
        readers = [
            threading.Thread(target=lambda name=name, stream=stream: read.update({name: stream.read()}), daemon=True)
            for name, stream in (("out", self.stdout), ("err", self.stderr))
            if stream is not None
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if deadline_s is None else max(deadline_s - time.monotonic(), 0))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if deadline_s is None else max(deadline_s - time.monotonic(), 0))
        self._close()
        return read.get("out"), read.get("err")

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __exit__(self, *_: object) -> None:
        self._close()
        self.wait()

    def _close(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()

    def _answer(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            more = self._answers.recv(1)
            assert more, "the process that forks commands has ended"
            line += more
        return int(line)


def _stream(given: int | IO[bytes], closed: contextlib.ExitStack, *, text: bool) -> tuple[IO[Any] | None, int]:
    """Our end of it, if there is one, and the number of the command's end."""
    if given == subprocess.PIPE:
        ours, its = os.pipe()
        closed.callback(os.close, its)
        return os.fdopen(ours, "r" if text else "rb"), its
    assert not isinstance(given, int)
    return None, given.fileno()


def _umask() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:"))
    return int(line.split()[1], 8)
