"""Processes of this machine, by Linux's /proc: the tree below one, and what each of them is and does."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def end_of(child: subprocess.Popen[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """What it has told when it ends by itself; one that does not is killed, and all that it has started in its group."""
    try:
        out, err = child.communicate(timeout=timeout_s)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise
    return subprocess.CompletedProcess(child.args, child.returncode, out, err)


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """A child of ours, stopped in all of its threads: one of them may go on for a while after the signal."""
    os.kill(pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def descendants(pid: int) -> list[int]:
    """Every process below this one, now."""
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # it has just ended
        return []
    for task in tasks:
        try:
            children = [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def tree_of(pid: int) -> list[int]:
    """A process and every one below it, now."""
    return [pid, *descendants(pid)]


def state_of(pid: int) -> str:
    """One letter: T for one that was stopped. Empty for a process that is gone."""
    return "".join(_stat(pid)[:1])


def parent_of(pid: int) -> int:
    return int((_stat(pid)[1:2] or ["0"])[0])


def ticks_of(pid: int) -> int:
    """What it has taken of the CPU."""
    return sum(map(int, _stat(pid)[11:13]))


def name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def folder_of(pid: int) -> str:
    """Where a process works: its number may be another's by now."""
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/cwd").readlink())
    return ""


def _stat(pid: int) -> list[str]:
    """State, parent and the like; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
