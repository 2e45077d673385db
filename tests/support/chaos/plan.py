"""What happens in a run, made from a seed: a value, printed with every failure."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

# Every gap between two effects that archiver.process.running.failpoints names, and how often one may be passed before it kills. Two need a
# scene of their own: start.noted (tests/integration/backup/test_service.py) and branch.recorded (test_service_lives.py).
FAILPOINTS: Mapping[str, int] = {
    "segment.closed": 4,
    "segment.put": 4,
    "position.counted": 4,
    "commit.sent": 2,
    "revoked.flushed": 1,
    "stop.flushed": 1,
    "topic.recorded": 1,
    "position.read": 2,
}
AT_REVOCATION = "revoked.flushed"
AT_STOP = "stop.flushed"


class Action(StrEnum):
    """One disturbance."""

    KILL_AT = "kill at"  # kill -9 at a named failpoint
    KILL = "kill"  # kill -9 of any member, at any moment
    JOIN = "join"
    LEAVE = "leave"  # SIGTERM, under load
    ZOMBIE = "zombie"  # stopped until its partitions moved, then continued
    RESTART_BROKER = "restart broker"
    KILL_BROKER = "kill broker"
    RESET_COMMITS = "reset commits"  # ahead and back, while nobody is in the group
    ADD_PARTITION = "add partition"
    NEW_TOPIC = "new topic"


@dataclass(frozen=True, slots=True)
class Step:
    """An action, after a pause. `detail` is the failpoint with its count."""

    action: Action
    pause_s: float
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.pause_s:.2f} s, {self.action}{f' {self.detail}' if self.detail else ''}"


@dataclass(frozen=True, slots=True)
class Form:
    """How much happens."""

    each_failpoint: int
    actions: Mapping[Action, int]
    longest_pause_s: float = 1.0
    failpoints: Sequence[str] = tuple(FAILPOINTS)

    @property
    def kills(self) -> int:
        return self.each_failpoint * len(self.failpoints) + self.actions.get(Action.KILL, 0)


SHORT = Form(
    each_failpoint=1,
    actions={
        Action.JOIN: 1,
        Action.LEAVE: 1,
        Action.ZOMBIE: 1,
        Action.RESTART_BROKER: 1,
        Action.RESET_COMMITS: 1,
        Action.ADD_PARTITION: 1,
        Action.NEW_TOPIC: 1,
    },
    longest_pause_s=0.3,
)
# What no quicker test has: kills that need a group, and what lasts longer than a member.
QUICK = replace(
    SHORT,
    actions={
        Action.RESTART_BROKER: 1,
        Action.RESET_COMMITS: 1,
        Action.ADD_PARTITION: 1,
        Action.NEW_TOPIC: 1,
    },
    failpoints=("position.counted", "commit.sent", AT_REVOCATION, AT_STOP),
)
# 3 x 8 + 26 = 50 kills.
LONG = Form(
    each_failpoint=3,
    actions={
        Action.KILL: 26,
        Action.JOIN: 8,
        Action.LEAVE: 8,
        Action.ZOMBIE: 7,
        Action.RESTART_BROKER: 3,
        Action.KILL_BROKER: 2,
        Action.RESET_COMMITS: 4,
        Action.ADD_PARTITION: 3,
        Action.NEW_TOPIC: 3,
    },
    longest_pause_s=2.5,
)


def make_plan(seed: int, form: Form) -> list[Step]:
    """The same for the same arguments."""
    rng = random.Random(f"{seed}-plan")
    drawn = [(Action.KILL_AT, name) for name in form.failpoints for _ in range(form.each_failpoint)]
    drawn += [(action, "") for action, count in form.actions.items() for _ in range(count)]
    rng.shuffle(drawn)
    return [
        Step(action, round(rng.uniform(0, form.longest_pause_s), 2), _armed(rng, name) if name else "")
        for action, name in drawn
    ]


def _armed(rng: random.Random, name: str) -> str:
    return f"{name}:{rng.randint(1, FAILPOINTS[name])}"


def plan_text(steps: Iterable[Step]) -> str:
    return "\n".join(f"  {index:3}. {step}" for index, step in enumerate(steps, 1))
