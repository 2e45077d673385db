"""Kills a restore again and again: a plan of kills, made from a seed, and the runs that are killed."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from archiver.process.running.children import start_child
from tests.support.forked_commands import COMMAND
from tests.support.processes import command_of, folder_of, name_of, parent_of, state_of, ticks_of, tree_of
from tests.support.round_trip import ArchiveSite, environment_of

# Every gap between two effects of a restore, in the order in which a restore passes them.
PREPARING = ("replaced.noted", "target.deleted", "target.created", "fill.configured", "plan.noted")
CLAIMING = ("producer.given", "claim.put")
SENDING = ("batch.sent", "batch.answered")
CLOSING = ("target.read", "map.put", "verified.noted")
FINISHING = ("finished.configured", "finished.noted")
FAILPOINTS = (*PREPARING, *CLAIMING, *SENDING, *CLOSING, *FINISHING)

SLOW = "250kB"  # a second: a fill lasts until somebody comes to kill it
DAEMON = "-m archiver.spark.daemon"
_DEATH_S = 120.0
_END_S = 240.0
_TAIL_CHARACTERS = 3000


class Victim(StrEnum):
    """Who is killed."""

    FAILPOINT = "at"  # the process, driver or worker, that reaches it
    DRIVER = "driver"
    WORKER = "worker"  # a Python process of Spark's, with a task
    JVM = "jvm"
    BOTH = "both"  # two runs at once: one at a failpoint, and the other one's driver
    NOBODY = "stop at"  # one reaches the failpoint: all workers stand still, until all is done


@dataclass(frozen=True, slots=True)
class Step:
    """A run of the command, and how it ends. `after_s`: at random, counted from the first record it sends."""

    victim: Victim
    failpoint: str = ""
    after_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.victim} {self.failpoint}" if self.failpoint else f"{self.victim} after {self.after_s:.2f} s"


def make_plan(seed: int, generations: int) -> list[Step]:
    """The same for the same arguments. In each generation some partitions are begun, and at least one is finished."""
    rng = random.Random(f"{seed}-plan")

    def at(name: str, most: int = 1, victim: Victim = Victim.FAILPOINT) -> Step:
        return Step(victim, f"{name}:{rng.randint(1, most)}")

    steps = [at(name) for name in PREPARING] + [Step(Victim.FAILPOINT, "fill.configured:2")]
    for _ in range(generations):
        middle = [at(name, 40) for name in SENDING]
        middle += [
            Step(victim, "", round(rng.uniform(0, 2.5), 2)) for victim in (Victim.DRIVER, Victim.WORKER, Victim.JVM)
        ]
        middle += [at(rng.choice(SENDING), 40, Victim.NOBODY)]
        rng.shuffle(middle)
        steps += [*map(at, CLAIMING), *middle, *map(at, CLOSING)]
    twice = Step(Victim.BOTH, f"{rng.choice(SENDING)}:{rng.randint(1, 40)}", round(rng.uniform(0, 2), 2))
    return [*steps, twice, *map(at, FINISHING)]


def kills_of(steps: Sequence[Step]) -> int:
    return sum({Victim.NOBODY: 0, Victim.BOTH: 2}.get(step.victim, 1) for step in steps)


class Run:
    """One process of the restore command, with a log of its own."""

    def __init__(self, folder: Path, number: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.begun_s = time.monotonic()
        self._said, self._told = folder / f"run-{number}.out", folder / f"run-{number}.err"
        with self._said.open("wb") as said, self._told.open("wb") as told:
            self.process = start_child(command, stdout=said, stderr=told, cwd=folder, env=dict(environment))

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def end(self, timeout_s: float = _END_S) -> int:
        """Its exit code. What it told must be for people."""
        code = self.process.wait(timeout_s)
        assert "Traceback" not in self.told, self.told
        return code

    @property
    def told(self) -> str:
        return f"--- exit code {self.process.poll()}\n{self._told.read_text(errors='replace')[-_TAIL_CHARACTERS:]}"

    def result(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self._said.read_text())

    def jvm(self) -> int | None:
        return next((pid for pid in tree_of(self.process.pid) if name_of(pid) == "java"), None)

    def workers(self) -> list[int]:
        """Python workers of Spark's, the busiest first; their parent is its daemon, whose parent is the JVM."""
        jvm = self.jvm()
        found = [] if jvm is None else [pid for pid in tree_of(jvm) if DAEMON in command_of(parent_of(pid))]
        return sorted(found, key=ticks_of, reverse=True)

    def stopped(self) -> list[int]:
        return [pid for pid in self.workers() if state_of(pid) == "T"]


def wait_until(what: str, reached: Callable[[], bool], run: Run, every_s: float = 0.02) -> None:
    """Until something is so, of a run that must not end before."""
    deadline_s = time.monotonic() + _DEATH_S
    while not reached():
        assert not run.is_over, f"it ended before {what}\n{run.told}"
        assert time.monotonic() < deadline_s, f"not in time: {what}\n{run.told}"
        time.sleep(every_s)


@dataclass(slots=True)
class Killer:
    """Runs the same command again and again, each time to another end."""

    site: ArchiveSite
    arguments: Sequence[str]
    count_on_target: Callable[[], int]
    kills: Counter[str] = field(default_factory=Counter)
    zombies: list[Run] = field(default_factory=list)
    _runs: list[Run] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)  # every process that there was

    def start(self, failpoint: str = "", *, slow: bool = False) -> Run:
        command = [str(COMMAND), "restore", *self.arguments, *(("--rate", SLOW) if slow else ())]
        environment = environment_of(self.site.bucket) | {"ARCHIVER_FAILPOINT": failpoint}
        run = Run(self.site.folder, len(self._runs), command, environment)
        self._runs.append(run)
        return run

    def do(self, step: Step) -> None:
        match step.victim:
            case Victim.FAILPOINT:
                self._die_there(self.start(step.failpoint), step.failpoint)
            case Victim.NOBODY:
                run = self.start(f"{step.failpoint}:stop")
                wait_until(f"a worker stands at {step.failpoint}", lambda: bool(run.stopped()), run)
                for pid in run.workers():
                    os.kill(pid, signal.SIGSTOP)
                self.zombies.append(run)
            case Victim.BOTH:
                one, other = self.start(step.failpoint), self.start(slow=True)
                self._die_there(one, step.failpoint)
                time.sleep(step.after_s)
                self._kill(other, other.process.pid, Victim.DRIVER)
            case _:
                self._kill_at_random(self.start(slow=True), step)

    def _die_there(self, run: Run, failpoint: str) -> None:
        """The driver itself, or a worker: then the run ends with 4, and only for that."""
        self._watch(run)
        code = run.end()
        is_lost = code == 4 and "worker" in run.told
        assert is_lost or code == -signal.SIGKILL, f"not killed at {failpoint}\n{run.told}"
        self.kills[failpoint.partition(":")[0]] += 1

    def _kill_at_random(self, run: Run, step: Step) -> None:
        wait_until("it has workers", lambda: bool(run.workers()), run)
        before = self.count_on_target()
        wait_until("it sends records", lambda: self.count_on_target() > before, run, every_s=0.1)
        time.sleep(step.after_s)
        pids = {Victim.DRIVER: run.process.pid, Victim.JVM: run.jvm(), Victim.WORKER: next(iter(run.workers()), None)}
        self._kill(run, pids[step.victim], step.victim)

    def _kill(self, run: Run, pid: int | None, victim: Victim) -> None:
        assert pid is not None, run.told
        assert not run.is_over, f"it ended before it could be killed\n{run.told}"
        self._watch(run)
        os.kill(pid, signal.SIGKILL)
        code = run.end()
        assert code == (-signal.SIGKILL if pid == run.process.pid else 4), run.told
        self.kills[victim] += 1

    def _watch(self, run: Run) -> None:
        self._seen.update(tree_of(run.process.pid))

    def finish(self) -> Any:  # noqa: ANN401 - JSON
        """The last run, whole; then the stopped ones wake up, one after the other, and end well, too. What the last one reports."""
        run = self.start()
        assert run.end() == 0, run.told
        for zombie in self.zombies:
            self.wake(zombie)
        return run.result()

    def wake(self, zombie: Run) -> None:
        assert zombie.process.returncode is None, zombie.told
        while not zombie.is_over:  # a worker may have come to the place only now
            for pid in zombie.stopped():
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)
        assert zombie.end() == 0, zombie.told

    def close(self) -> None:
        """Nothing of ours stays behind."""
        for run in self._runs:
            self._watch(run)
            if not run.is_over:
                run.process.kill()
                run.process.wait()
        for pid in self._seen:
            if str(self.site.folder) == folder_of(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def killer_of(site: ArchiveSite, arguments: Sequence[str], count_on_target: Callable[[], int]) -> Iterator[Killer]:
    killer = Killer(site, arguments, count_on_target)
    try:
        yield killer
    finally:
        killer.close()
