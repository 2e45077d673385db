"""A world: the broker and the store that one cycle runs in."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.support.brokers import S3


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """A running broker."""

    version: str
    bootstrap: str
    keep_all: Mapping[str, str]  # configs of a topic that keeps whatever is written to it


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
    is_quick: bool = False  # one that every `make test-full` runs
