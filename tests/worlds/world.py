"""A world: the brokers and the store that one cycle runs in, and what must come of it there."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.support.brokers import S3


class Step(StrEnum):
    """Of a cycle, in this order. The value is how a table calls it."""

    UNTIL_END = "backup --until-end"
    UNDER_LOAD = "continuous backup"
    VERIFY = "verify"
    RESTORE = "restore"
    RESTORE_AGAIN = "restore again"
    NEW_LIFE = "new life"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The command that is known to refuse a world: its cycle ends there. `says` is a regular expression for its messages."""

    step: Step
    exit_code: int
    says: str
    why: str  # in a table


@dataclass(frozen=True, slots=True)
class RefusedTopic:
    """A topic that a backup names and refuses, while it archives the others. `says` is a regular expression."""

    name: str
    exit_code: int
    says: str


def grant_nothing(_topics: Sequence[str]) -> None:
    """Everyone may do everything."""


def settle_nothing(_topics: Sequence[str]) -> None:
    """What is written is where it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """Running brokers. Tests come in by `bootstrap`, and may do everything there; the program by `settings`."""

    version: str
    bootstrap: str
    settings: Mapping[str, str]  # the section `kafka:` of archive.yaml and target.yaml
    keep_all: Mapping[str, str]  # configs of a topic that keeps whatever is written to it
    of_logs: Mapping[str, str] = field(default_factory=dict)  # more of them, of topics that are not compacted
    big_bytes: int = 3_000_000  # of the largest records
    replicas: Sequence[Sequence[int]] = (
        (1,),
    )  # nodes of one partition after the other, in turn; its first leader first
    refused_topic: RefusedTopic | None = None
    restore_options: Sequence[str] = ()  # without which a restore is refused
    let_back_up: Callable[[Sequence[str]], None] = grant_nothing
    let_restore: Callable[[Sequence[str]], None] = grant_nothing
    settle: Callable[[Sequence[str]], None] = settle_nothing  # after the topics were filled
    while_reading: Callable[[], AbstractContextManager[None]] = nullcontext  # around a command that reads the brokers
    evidence: Callable[[], str] = str  # what they tell of it afterwards; fails where the world was another one


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A running store, as the program reaches it."""

    name: str  # with its version
    s3: S3


StartKafka = Callable[[Path], AbstractContextManager[Kafka]]
StartStore = Callable[[Path], AbstractContextManager[Store]]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One row of the table."""

    name: str  # what is special about it
    kafka: StartKafka
    store: StartStore
    refusal: Refusal | None = None
    is_quick: bool = False  # one that every `make test-full` runs
