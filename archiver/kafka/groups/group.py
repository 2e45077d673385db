"""Types of a consumer group: its settings, its commits (hints), and the owner of its partitions."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from archiver.config import model as config
from archiver.kafka.brokers.cluster import TopicPartition

# librdkafka also commits the zero byte that ends a text in C.
_METADATA: Final = re.compile(
    r"(?:base=(\d{1,19}))?(?:(?:^|(?<=\d) )generation=(\d{1,19}))?(?:(?:^|(?<=\d) )archive=([0-9a-f]{8}))?\0?", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """A group, and the protocol that shares partitions among its members."""

    group: str
    protocol: config.GroupProtocol
    session_timeout_ms: int  # with the consumer protocol the brokers set it
    refresh_ms: int  # between polls for new partitions; with the consumer protocol the brokers watch for them
    archive: str = ""  # the mark of the archive, which its commits carry


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A committed position: the end of a partition's archive, and the base of its newest segment. The archive is the truth.

    `generation`: the copy's, for a compacted topic; for people only.
    """

    topic: str
    partition: int
    offset: int
    base: int | None  # None: unknown, as the commit's metadata does not name one
    archive: str = ""  # the mark of the archive whose position this is; empty: the metadata has none
    generation: int | None = None

    @property
    def metadata(self) -> str:
        """The metadata that is committed with the offset."""
        told = {"base": self.base, "generation": self.generation, "archive": self.archive or None}
        return " ".join(f"{name}={value}" for name, value in told.items() if value is not None)

    @property
    def is_of_backup(self) -> bool:
        """Whether a backup has committed the position: its metadata names an object or an archive."""
        return self.base is not None or bool(self.archive)


def hint_of(topic: str, partition: int, offset: int, metadata: str) -> Hint:
    """Parse a commit. Its metadata may be from any writer."""
    told = _METADATA.fullmatch(metadata)
    base, generation, archive = told.groups() if told else (None, None, None)
    return Hint(
        topic=topic,
        partition=partition,
        offset=offset,
        base=None if base is None else int(base),
        archive=archive or "",
        generation=None if generation is None else int(generation),
    )


class Owner(Protocol):
    """The worker on the partitions. Called in the membership's thread, which blocks until the call returns."""

    def gained(self, partitions: Sequence[TopicPartition]) -> None:
        """Take over partitions: they are ours from now on. Must not block."""

    def revoked(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        """Release partitions. They are ours until this returns, and the returned hints are committed first.

        May block, well inside MAX_POLL_INTERVAL_MS.
        """

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop partitions that the group has already assigned to others; nothing is committed. Must not block."""


@dataclass(slots=True, kw_only=True)
class MembershipCounters:
    """Counts of events so far."""

    rebalances: int = 0  # number of assignments and revocations
    commits: int = 0  # successful requests
    commit_failures: Counter[str] = field(default_factory=Counter)  # failed requests, by librdkafka's name of the cause
    client_errors: Counter[str] = field(default_factory=Counter)  # all errors, by the same names
    restarts: int = 0  # number of replaced broken consumers
