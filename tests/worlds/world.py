"""A world: the brokers and the store that one cycle runs in, and what must come of it there."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.support.brokers import S3
from tests.support.round_trip import ALL_OF_LONG

# Topics of brokers from 3.6 on, which bound timestamps by default. Older brokers know no such config, and no such bound.
ANY_TIMESTAMP = {"message.timestamp.after.max.ms": ALL_OF_LONG, "message.timestamp.before.max.ms": ALL_OF_LONG}


class Step(StrEnum):
    """Of a cycle, in this order. The value says what it is in a table."""

    UNTIL_END = "backup --until-end"
    UNDER_LOAD = "continuous backup"
    VERIFY = "verify"
    RESTORE = "restore"
    RESTORE_AGAIN = "restore again"
    NEW_LIFE = "new life"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The command that is known to refuse this world: the cycle ends there. `says` is a regular expression for its messages."""

    step: Step
    exit_code: int
    says: str


@dataclass(frozen=True, slots=True)
class RefusedTopic:
    """A topic that a backup names and refuses, while it archives the others. `says` is a regular expression."""

    name: str
    exit_code: int
    says: str


def grant_nothing(_topics: Sequence[str]) -> None:
    """Everyone may do everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """Running brokers. Tests come in by `bootstrap`, and may do everything there; the program by `settings`."""

    version: str
    bootstrap: str
    settings: Mapping[str, str]  # the section `kafka:` of archive.yaml and target.yaml
    keep_all: Mapping[str, str]  # configs of a topic that keeps whatever is written to it
    replicas: int = 1
    refused_topic: RefusedTopic | None = None
    let_back_up: Callable[[Sequence[str]], None] = grant_nothing
    let_restore: Callable[[Sequence[str]], None] = grant_nothing
    evidence: Callable[[], str] = str  # what the brokers tell of it afterwards; raises where it was another world


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A running store, as the program reaches it."""

    name: str  # with its version
    s3: S3
    evidence: Callable[[], str] = str


StartKafka = Callable[[Path], AbstractContextManager[Kafka]]
StartStore = Callable[[Path], AbstractContextManager[Store]]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One row of the table."""

    name: str  # what is special about it
    kafka: StartKafka
    store: StartStore
    refusal: Refusal | None = None
    is_quick: bool = False  # one of the selection that every `make test` runs
    timeout_s: float = 300.0
    settings: Mapping[str, str] = field(default_factory=dict)
