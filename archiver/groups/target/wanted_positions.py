"""Defines the wanted positions of groups on a target cluster: the input of an application."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from archiver.kafka.brokers.cluster import TopicPartition


class WantedPosition(NamedTuple):
    """A position in a topic of the target. `topic_id`: the id when the position was made; empty if brokers have none."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    metadata: str = ""

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


class UntoldPlace(NamedTuple):
    """A target partition without a known position in the archive. A note of an earlier run may have one."""

    topic: str
    topic_id: str
    partition: int

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedGroup:
    """The positions of one group of the target, and the archived group that had them. Nothing is set in `untold` places."""

    source_group: str
    positions: Sequence[WantedPosition]
    untold: Sequence[UntoldPlace] = ()

    @property
    def topics(self) -> set[str]:
        return {one.topic for one in self.positions} | {one.topic for one in self.untold}


WantedGroups = Mapping[str, WantedGroup]  # by the group's name on the target
