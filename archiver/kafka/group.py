"""A consumer group as the archiver uses it: who is in it, what is committed to it, who works on its partitions."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from archiver.config import model as config
from archiver.kafka.cluster import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Which group, and how its members share partitions."""

    group: str
    protocol: config.GroupProtocol
    session_timeout_ms: int  # with the consumer protocol the brokers' own holds
    refresh_ms: int  # between looks for new partitions; with the consumer protocol the brokers look
    archive: str = ""  # the mark of the archive that its commits are of


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A committed position: where a partition's archive ends, and the base of its newest segment. The archive is the truth."""

    topic: str
    partition: int
    offset: int
    base: int | None  # None: the commit's metadata does not tell
    archive: str = ""  # the mark of the archive whose position it is; empty: the metadata does not tell

    @property
    def metadata(self) -> str:
        """As it is committed with the offset."""
        told = {"base": self.base, "archive": self.archive or None}
        return " ".join(f"{name}={value}" for name, value in told.items() if value is not None)


def hint_of(topic: str, partition: int, offset: int, metadata: str) -> Hint:
    """Read a commit. Its metadata may be anybody's."""
    # librdkafka commits the zero that ends a text in C.
    told = re.fullmatch(r"(?:base=(\d{1,19}))?(?:(?:^|(?<=\d) )archive=([0-9a-f]{8}))?\0?", metadata, re.ASCII)
    base, archive = told.groups() if told else (None, None)
    return Hint(
        topic=topic,
        partition=partition,
        offset=offset,
        base=None if base is None else int(base),
        archive=archive or "",
    )


class Owner(Protocol):
    """Who works on the partitions. Called in the membership's thread; until it returns, nothing else is heard of the group."""

    def gained(self, partitions: Sequence[TopicPartition]) -> None:
        """These are ours from now on. Must not block."""

    def revoked(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        """These are to be given back, and are still ours until this returns: what it returns is committed first.

        May block, well inside MAX_POLL_INTERVAL_MS.
        """

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These are not ours any more, as the group has told by now; nothing is committed. Must not block."""


@dataclass(slots=True, kw_only=True)
class MembershipCounters:
    """What happened so far."""

    rebalances: int = 0  # times that partitions came or went
    commits: int = 0  # requests that went well
    commit_failures: Counter[str] = field(default_factory=Counter)  # requests, by librdkafka's name of the cause
    client_errors: Counter[str] = field(default_factory=Counter)  # by the same names
    restarts: int = 0  # a broken consumer was replaced
