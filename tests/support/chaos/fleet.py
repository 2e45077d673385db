"""Members of a backup's group: processes of the installed command, and what may be done to them."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from archiver.interrupt import INTERRUPTED
from archiver.process.running.children import start_child
from tests.support.brokers import Bucket
from tests.support.chaos.group import Cluster
from tests.support.forked_commands import COMMAND
from tests.support.round_trip import environment_of
from tests.support.service import eventually

STOP_S = 15.0  # promised: SIGTERM returns within
_END_S = 60.0  # on a machine that stands still meanwhile
_DEATH_S = 240.0  # a failpoint is met within: a member starts in 2 s, and joins after a session timeout at worst
_JOIN_S = 240.0  # a session of 3 s does not last on a busy machine: members join again and again
_TAIL_LINES = 25
_TEMPORARY = 4  # exit code
_REFUSED = "Connection refused"  # twenty times a second, while a broker restarts
_SPOOLED = re.compile(r"(?P<partition>\d+)-(?P<base>\d+)-[^-]*\.blocks")


class MemberError(AssertionError):
    """A member did what it must not."""


class Member:
    """One process with a session, a spool and a log of its own."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self.name = name
        self.ended_by_us = False
        self._log = folder / f"{name}.log"
        self._spool = spool = folder / f"{name}-spool"
        spool.mkdir()
        path = folder / f"{name}.yaml"
        kafka = {**config["kafka"], "client.id": name}
        backup = {**config["backup"], "spool": {"dir": str(spool)}}
        path.write_text(yaml.safe_dump({**config, "kafka": kafka, "backup": backup}))
        with self._log.open("wb") as log:
            self._process = start_child(
                [str(COMMAND), "backup", "--verbose", "-c", str(path)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=dict(environment),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Its exit code; MemberError when it does not end in time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise MemberError(f"{self.name} has not ended after {timeout_s:g} s:\n{self.tail()}") from error

    def held_bases(self) -> set[tuple[int, int]]:
        """Number of the partition and base of each segment that it fills; none of them is complete, or being put.

        Empty when it is not so clear: a file with blocks in it may be that of a put under way, which happens or not,
        whatever becomes of the member. For a member that is stopped.
        """
        files = list(self._spool.glob("*/*.blocks"))
        if any(file.stat().st_size for file in files):
            return set()
        names = [match for file in files if (match := _SPOOLED.fullmatch(file.name)) is not None]
        return {(int(name["partition"]), int(name["base"])) for name in names}

    def tail(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if _REFUSED not in line]
        return "\n".join(f"  {self.name}| {line}" for line in lines[-_TAIL_LINES:])


class Fleet:
    """All members there ever were. A member that ends without being told to is an error."""

    def __init__(self, cluster: Cluster, bucket: Bucket, folder: Path, config: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self.kills = 0
        self._folder = folder
        self._config = config
        self._environment = environment_of(bucket)
        self._members: list[Member] = []

    @property
    def live(self) -> list[Member]:
        return [member for member in self._members if member.returncode is None]

    def start(self, failpoint: str = "") -> Member:
        environment = {**self._environment, "ARCHIVER_FAILPOINT": failpoint, "PYTHONFAULTHANDLER": "1"}
        member = Member(f"member-{len(self._members)}", self._folder, self._config, environment)
        self._members.append(member)
        return member

    def keep(self, count: int) -> None:
        """As many members as this; the newest leave, new ones join."""
        while len(self.live) > count:
            self.terminate(self.live[-1])
        while len(self.live) < count:
            self.start()

    def wait_known(self, member: Member) -> None:
        """Until the group's coordinator has heard of it."""
        self._wait(f"{member.name} is in the group", lambda: member.name in self.cluster.view().assigned)

    def wait_assigned(self, member: Member) -> None:
        """Until the group's coordinator says that it has partitions."""
        self._wait(f"{member.name} has partitions", lambda: bool(self.cluster.partitions_of(member.name)))

    def wait_settled(self) -> None:
        """Until the group consists of the live members, and each has partitions."""

        def is_settled() -> bool:
            view = self.cluster.view()
            having = {name for name, partitions in view.assigned.items() if partitions}
            return view.is_stable and having == set(view.assigned) == {member.name for member in self.live}

        self._wait("the group is stable, with the live members alone", is_settled)

    def _wait(self, what: str, reached: Callable[[], bool]) -> None:
        def looked() -> bool:
            self.check()
            return reached()

        try:
            eventually(looked, what, _JOIN_S)
        except AssertionError as error:
            error.add_note(str(self.cluster.view()))
            for member in self.live:
                member.signal(signal.SIGABRT)  # it prints the stacks of its threads
                member.ended_by_us = True
                member.wait(_END_S)
            error.add_note(self.tails())
            raise

    def kill(self, member: Member) -> None:
        member.ended_by_us = True
        member.signal(signal.SIGKILL)
        member.wait(_END_S)
        self.kills += 1

    def wait_killed(self, member: Member) -> None:
        """Until an armed failpoint has killed it."""
        member.ended_by_us = True
        try:
            code = member.wait(_DEATH_S)
        except MemberError as error:
            error.add_note(str(self.cluster.view()))
            raise
        if code != -signal.SIGKILL:
            raise MemberError(f"{member.name} ended with {code}, not at its failpoint:\n{member.tail()}")
        self.kills += 1

    def interrupt(self, member: Member) -> None:
        member.ended_by_us = True
        member.signal(signal.SIGTERM)

    def terminate(self, member: Member) -> float:
        """SIGTERM: it returns with 0, or tells what it has dropped. The seconds it took."""
        begun = time.monotonic()
        self.interrupt(member)
        _check_stopped(member)
        return time.monotonic() - begun

    def terminate_all(self) -> None:
        """All at once, as a deployment is scaled to nothing."""
        leaving = self.live
        for member in leaving:
            self.interrupt(member)
        for member in leaving:
            _check_stopped(member)

    def freeze(self, member: Member) -> None:
        """Returns when it stands still."""
        member.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, member.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self, member: Member) -> None:
        member.signal(signal.SIGCONT)

    def check(self) -> None:
        for member in self._members:
            if member.returncode is not None and not member.ended_by_us:
                raise MemberError(f"{member.name} ended with {member.returncode}, told by nobody:\n{member.tail()}")

    def tails(self) -> str:
        """What the last ones said."""
        recent = self.live + [member for member in self._members[-4:] if member.returncode is not None]
        return "\n".join(member.tail() for member in recent)

    def end(self) -> None:
        """At the end of a test, however it went."""
        for member in self.live:
            os.kill(member.pid, signal.SIGKILL)
            member._process.wait()


def _check_stopped(member: Member) -> None:
    """With 0, or with 4 and what the store has not taken.

    Before it has begun anything, it is one line, or the signal alone, which Python answers at first.
    """
    code, said = member.wait(_END_S), member.tail()
    is_told = code == _TEMPORARY and "not known to be in the archive" in said
    is_unbegun = code == _TEMPORARY and said.endswith(INTERRUPTED) and "\n" not in said
    if code != 0 and not is_told and not is_unbegun and not (code == -signal.SIGTERM and not said):
        raise MemberError(f"{member.name} ended with {code} after SIGTERM:\n{said}")
