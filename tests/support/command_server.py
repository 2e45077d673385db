"""A process that has imported the program, and forks for each command. It runs as a script; `forked_commands` starts it and asks it.

It has one thread: numba has compiled nothing, and no client of Kafka or S3 and no JVM was started. A fork of it is therefore
what a new interpreter would be after the same imports.
"""

import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TextIO

ROOMS: Final = ("cli", "config", "process", "store", "kafka", "archive", "backup", "groups", "restore", "upkeep")
LONGEST_REQUEST: Final = 256 * 1024
STREAMS: Final = 3  # stdin, stdout, stderr
# As a new interpreter has them: the defaults, Python's own, and what is ignored by whoever started this process.
SIGNALS: Final = {each: signal.getsignal(each) for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}}


def main() -> None:
    """Serve until the socket ends, whose number is the argument; then end all that still runs."""
    sys.path[0] = str(Path(sys.executable).parent)  # as the installed command has it
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import_the_program()
    requests = socket.socket(fileno=int(sys.argv[1]))
    running: dict[int, tuple[int, socket.socket]] = {}  # by pidfd: pid, and where its exit code goes
    with selectors.DefaultSelector() as events:
        events.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj is not requests:
                    pidfd = key.fd
                    events.unregister(pidfd)
                    tell_end(pidfd, *running.pop(pidfd))
                elif (request := receive(requests)) is None:
                    for pid, _ in running.values():
                        for kill in (os.kill, os.killpg):  # one that has just begun has no group yet
                            with suppress(ProcessLookupError):
                                kill(pid, signal.SIGKILL)
                    return
                else:
                    asked, streams, answers = request
                    pid = fork(asked, streams)
                    for number in streams:
                        os.close(number)
                    pidfd = os.pidfd_open(pid)
                    with suppress(OSError):  # who asked has gone
                        answers.sendall(f"{pid}\n".encode())
                    running[pidfd] = (pid, answers)
                    events.register(pidfd, selectors.EVENT_READ)


def import_the_program() -> None:
    """All but Spark's part and what only that imports: pyarrow starts a thread."""
    for room in ROOMS:
        package = importlib.import_module(f"archiver.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    import confluent_kafka  # noqa: F401, PLC0415
    import numba  # noqa: F401, PLC0415

    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"the imports have started {threads - 1} threads"
    assert "pyspark" not in sys.modules


def receive(requests: socket.socket) -> tuple[dict[str, Any], list[int], socket.socket] | None:
    """The next request, its streams, and where to answer; None at the end."""
    message, numbers, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, STREAMS + 1)
    if not message:
        return None
    *streams, answers = numbers
    return json.loads(message), streams, socket.socket(fileno=answers)


def tell_end(pidfd: int, pid: int, answers: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(pidfd)
    with suppress(OSError), answers:
        answers.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def fork(asked: dict[str, Any], streams: list[int]) -> int:
    """Start a command as `exec` would: nothing of this process stays but its imports."""
    pid = os.fork()
    if pid:
        return pid
    try:
        become(asked, streams)
    except BaseException as error:  # noqa: BLE001 - this must not go on as a second server
        os.write(2, f"the forked command could not begin: {error!r}\n".encode())
    os._exit(70)


def become(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(STREAMS, max(streams) + 64)
    os.chdir(asked["folder"])
    os.umask(asked["umask"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for each, handler in SIGNALS.items():
        with suppress(OSError):  # two of them are the C library's own
            signal.signal(each, handler)
    sys.stdin, sys.stdout, sys.stderr = anew(sys.stdin, "r"), anew(sys.stdout, "w"), anew(sys.stderr, "w", buffering=1)
    sys.argv = asked["command"]
    from archiver.__main__ import run  # noqa: PLC0415

    run()
    raise AssertionError


def anew(stream: TextIO, mode: Literal["r", "w"], buffering: int = -1) -> TextIO:
    """Return a new stream for the same number, which is another file now: a stream asks only once whether it can seek."""
    return open(stream.fileno(), mode, buffering, encoding=stream.encoding, errors=stream.errors, closefd=False)


if __name__ == "__main__":
    main()
