"""The plan of a sweep, as a value: deleted objects by partition, and topics without deletions, with reasons."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from archiver.archive.notes.applied_limits import LimitSource
from archiver.upkeep.retention.planning.partition_verdict import Going, GoingItem, Staying
from archiver.upkeep.retention.planning.survey import PartitionSweep
from archiver.upkeep.retention.planning.topic_terms import KeptTopic, TopicTerms

LARGE_SHARE: Final = 0.2  # of a topic: a larger unexpected share needs an agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSweep:
    """The deletions of a topic, of the lives that are swept by the same terms."""

    terms: TopicTerms
    partitions: Sequence[PartitionSweep]

    @property
    def topic(self) -> str:
        return self.terms.topic

    @property
    def name(self) -> str:
        return self.terms.name

    @property
    def going(self) -> Iterator[GoingItem]:
        return (one for partition in self.partitions for one in partition.going)

    @property
    def is_work(self) -> bool:
        """Whether a delete is planned."""
        return any(one.is_work for one in self.partitions)

    @property
    def shadowed(self) -> Iterator[GoingItem]:
        """Objects that are deleted without losing a record."""
        return (one.going for partition in self.partitions for one in partition.shadowed)

    @property
    def records(self) -> int:
        """How many records are deleted: those of shadowed objects still exist elsewhere."""
        return sum(one.told.records for one in self.going)

    @property
    def bytes(self) -> int:
        """The stored size of the deleted objects."""
        return sum(one.item.size for some in (self.going, self.shadowed) for one in some)

    @property
    def unforeseen_share(self) -> float:
        """The share of `topics/` that is deleted although the former limits would have kept it, in bytes."""
        listed = sum(one.listed_bytes for one in self.partitions)
        return min(1.0, sum(one.unforeseen_bytes for one in self.partitions) / listed) if listed else 0.0

    @property
    def is_by_notes(self) -> bool:
        """Whether only the archive's notes select deletion, and no limits were ever agreed to."""
        return self.terms.whose is not LimitSource.TOPIC and self.terms.noted.keeps_all

    @property
    def needs_agreement(self) -> bool:
        return self.unforeseen_share > (0 if self.is_by_notes else LARGE_SHARE)

    def deleted_because(self) -> Mapping[Going, int]:
        return Counter(one.why for some in (self.going, self.shadowed) for one in some)

    def kept_because(self) -> Mapping[Staying, int]:
        kept: Counter[Staying] = Counter()
        for partition in self.partitions:
            kept.update(partition.staying)
        return kept


def line_of(going: GoingItem) -> str:
    """Describe a deleted object: its place, its identity, and its coverage."""
    return f"{going.item.key} {going.item.etag} {going.told.next}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What one run would delete."""

    made_ms: int  # by the store's clock
    now_ms: int  # from when ages are counted
    topics: Sequence[TopicSweep]
    kept: Sequence[KeptTopic]
    without_kafka: bool = False  # no cluster was asked

    def lines(self) -> list[str]:
        """List the deletions, one line per object."""
        return [line_of(one) for topic in self.topics for some in (topic.going, topic.shadowed) for one in some]

    @property
    def objects(self) -> int:
        return sum(partition.objects for topic in self.topics for partition in topic.partitions)
