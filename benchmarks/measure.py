"""Runs one command and measures it: wall time, CPU of the process tree, and its peak memory.

`python -m benchmarks.measure REPORT.json COMMAND...`. It is a process of its own and the subreaper of what it starts, so
that what loses its parent is still waited for here, and its CPU is counted by the kernel. Sampled are memory, and the CPU of Spark's workers.
Linux only.
"""

import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.landing import Landing
from tests.support.processes import descendants

_SET_CHILD_SUBREAPER = 36  # of prctl(2)
_SAMPLED_EVERY_S = 0.1
_LARGEST_SHARE = 0.02  # of a core, that sampling may take: sampling a JVM takes 15 ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a command took."""

    exit_code: int
    started_at_s: float  # since the epoch
    seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    peak_task_bytes: int  # of one of Spark's Python processes


def run_measured(
    command: list[str], report: Path, environment: dict[str, str], landing: Landing | None = None
) -> tuple[Usage, str]:
    """Run it through this module's command line. Returns the usage and what it wrote to stdout; it must succeed."""
    wrapped = [sys.executable, "-m", "benchmarks.measure", str(report), *command]
    if landing is not None:
        landing.begin()
    done = subprocess.run(wrapped, capture_output=True, text=True, check=False, env=environment)
    if landing is not None:
        landing.end()
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return Usage(**json.loads(report.read_text(encoding="utf-8"))), done.stdout


class Watch(threading.Thread):
    """Samples some processes now and then.

    Memory is PSS, because forked workers share pages that must not count twice. Spark's Python daemon ignores the end of
    its workers, and the kernel then adds their CPU to nobody: it is what they had used when they were last seen.
    """

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        super().__init__(daemon=True)
        self._processes = processes
        self.task_cpu_s: dict[int, float] = {}
        self.peak_bytes = 0
        self.peak_task_bytes = 0
        self._ended = threading.Event()

    def run(self) -> None:
        next_look_s = 0.0
        while not self._ended.wait(_SAMPLED_EVERY_S):
            found = list(self._processes())
            tasks = [pid for pid in found if _is_spark_task(pid)]
            for pid in tasks:
                self.task_cpu_s[pid] = max(self.task_cpu_s.get(pid, 0.0), cpu_seconds([pid]))
            if time.monotonic() >= next_look_s:
                begun_s = time.thread_time()
                sizes = {pid: pss_bytes(pid) for pid in found}
                self.peak_bytes = max(self.peak_bytes, sum(sizes.values()))
                self.peak_task_bytes = max(self.peak_task_bytes, *(sizes[pid] for pid in tasks), 0)
                next_look_s = time.monotonic() + (time.thread_time() - begun_s) / _LARGEST_SHARE

    def end(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def watching(processes: Callable[[], Iterable[int]]) -> Iterator[Watch]:
    """Watch some processes for a `with` block."""
    watch = Watch(processes)
    watch.start()
    try:
        yield watch
    finally:
        watch.end()


def cpu_seconds(processes: Iterable[int]) -> float:
    """User and system time of processes so far, and of their children that have ended."""
    ticks = 0
    for pid in processes:
        try:
            ticks += sum(int(field) for field in _stat(pid)[11:15])
        except OSError:  # it has just ended
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """The fields behind the process's name."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def read_all(folder: Path) -> None:
    """Have the kernel hold all files of a folder: hosts take back what their guests have not touched for minutes."""
    buffer = memoryview(bytearray(1024 * 1024))
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError), Path(place, name).open("rb", buffering=0) as file:  # a server's may be gone
                while file.readinto(buffer):
                    pass


def _is_spark_task(pid: int) -> bool:
    """A worker: Spark's Python daemon forks it, so that it has the same name."""
    try:
        names = [Path(f"/proc/{one}/cmdline").read_bytes() for one in (pid, _stat(pid)[1])]
    except OSError:
        return False
    return all(b"spark.daemon\0pyspark.worker" in name for name in names)


def _wait_for_all(sampled: dict[int, float]) -> None:
    """Orphans too: they are our children now, and the kernel counts their CPU."""
    while True:
        try:
            sampled.pop(os.wait()[0], None)
        except ChildProcessError:
            return


def main() -> int:
    report, command = Path(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    with watching(lambda: descendants(os.getpid())) as watch:
        started_at_s, started_s = time.time(), time.monotonic()
        exit_code = subprocess.Popen(command).wait()
        seconds = time.monotonic() - started_s
    _wait_for_all(watch.task_cpu_s)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    usage = Usage(
        exit_code=exit_code,
        started_at_s=started_at_s,
        seconds=seconds,
        cpu_seconds=used.ru_utime + used.ru_stime + sum(watch.task_cpu_s.values()),
        peak_memory_bytes=watch.peak_bytes,
        peak_task_bytes=watch.peak_task_bytes,
    )
    report.write_text(json.dumps(asdict(usage)), encoding="utf-8")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
