"""The values of a claim: the producer of a target, its first offsets, and the records that were read back (docs/format.md §8).

A partition that becomes one partition has its own claim. A topic that is repartitioned has
one claim for all partitions, because each source writes to each target partition.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Generic, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator

from archiver.archive.format.control import Fact
from archiver.archive.format.fact_model import BoundedText, Digest, FactModel, Item, LeaderEpoch, Number
from archiver.archive.format.layout import MOST_PARTITION
from archiver.errors import NotWholeError
from archiver.kafka.records.produce import ProducerIdentity
from archiver.process.values.json_values import as_list, as_number, spelled_number

_MOST_PRODUCER_EPOCH = 2**15 - 1


def _read_identity(told: object) -> ProducerIdentity:
    producer_id, epoch = as_list(told)
    return ProducerIdentity(producer_id=as_number(producer_id), epoch=as_number(epoch, 0, _MOST_PRODUCER_EPOCH))


_Identity = Annotated[
    ProducerIdentity, PlainValidator(_read_identity), PlainSerializer(lambda one: [one.producer_id, one.epoch])
]
_PartitionName = Annotated[int, BeforeValidator(partial(spelled_number, most=MOST_PARTITION)), PlainSerializer(str)]


@dataclass(frozen=True, slots=True)
class Contents:
    """Records in order: of a target partition as it was read back, or of one source in it."""

    records: Number
    digest: Digest
    bytes: Number | None = None  # of keys and values; None: noted before they were
    leader_epoch: LeaderEpoch = -1  # of the last batch of a target partition; -1: noted before it was


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionClaim:
    """The producer of a target partition, its first offset and records; once whole, also the records read back."""

    target_cluster_id: BoundedText
    target_topic_id: BoundedText
    start_offset: Number
    selection_digest: BoundedText
    identity: _Identity
    skipped: tuple[Item[BoundedText], ...] = ()  # damaged objects: left out once, left out by every later attempt
    verified: Contents | None = None

    @property
    def verified_end(self) -> int:
        """The end of the partition when it was read back; 0: not read back."""
        return 0 if self.verified is None else self.start_offset + self.verified.records


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicContents:
    """The records restored from each source partition, and the contents of each target partition."""

    sources: Mapping[Item[_PartitionName], Item[Contents]]
    targets: tuple[Item[Contents], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicClaim:
    """The producers of a target, one for each source partition, because each writes to all target partitions."""

    target_cluster_id: BoundedText
    target_topic_id: BoundedText
    start_offsets: tuple[Item[Number], ...]  # of each target partition
    # Of each source partition.
    identities: Annotated[Mapping[Item[_PartitionName], Item[_Identity]], Field(alias="producers")]
    skipped: tuple[Item[BoundedText], ...] = ()  # damaged objects: left out once, left out by every later attempt
    verified: TopicContents | None = None

    @property
    def verified_ends(self) -> dict[int, int]:
        """The end of each target partition when it was read back; empty: not read back."""
        contents = () if self.verified is None else self.verified.targets
        ends = zip(self.start_offsets, contents, strict=False)
        return {number: start + one.records for number, (start, one) in enumerate(ends)}


@dataclass(frozen=True, slots=True)
class TargetClaims:
    """The claims of a restore on one target: on single partitions, or one on all of them."""

    partitions: Mapping[int, PartitionClaim]
    joint: TopicClaim | None = None

    def __bool__(self) -> bool:
        return bool(self.partitions) or self.joint is not None

    @property
    def start_offsets(self) -> dict[int, int]:
        if self.joint is not None:
            return dict(enumerate(self.joint.start_offsets))
        return {number: claim.start_offset for number, claim in self.partitions.items()}

    def producer_ids(self, number: int) -> set[int]:
        """Return the possible producers of a partition."""
        found = [self.partitions[number].identity] if self.joint is None else self.joint.identities.values()
        return {one.producer_id for one in found}

    def are_verified(self, numbers: Iterable[int]) -> bool:
        """Return whether these partitions were read back, whatever has become of them since."""
        if self.joint is not None:
            return self.joint.verified is not None
        return all(claim is not None and claim.verified for claim in map(self.partitions.get, numbers))

    def cut_short(self, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return the partitions that now end before their verified end: {partition: (end now, end then)}."""
        verified = {number: one.verified_end for number, one in self.partitions.items()}
        verified = verified if self.joint is None else self.joint.verified_ends
        return {number: (ends.get(number, 0), end) for number, end in verified.items() if ends.get(number, 0) < end}


Claim = TypeVar("Claim", PartitionClaim, TopicClaim)
Verified = TypeVar("Verified")


@dataclass(frozen=True, slots=True)
class ClaimFacts(Generic[Claim, Verified]):
    """Conversion of one kind of claim, on a partition or on a topic, from and to control facts."""

    read: Callable[[Fact, str], Claim]  # a fact, and its stream. Raises NotWholeError, which names the stream
    write: Callable[[Claim], Fact]  # claims are put before anything is skipped or verified
    write_verified: Callable[[Verified], Fact]


_NOT_YET: Final = {"skipped": True, "verified": True}
_PARTITION_CLAIM: Final = FactModel(PartitionClaim)
_CONTENTS: Final = FactModel(Contents)
_TOPIC_CLAIM: Final = FactModel(TopicClaim)
_TOPIC_CONTENTS: Final = FactModel(TopicContents)


def _write_partition_claim(claim: PartitionClaim) -> Fact:
    written = _PARTITION_CLAIM.write(claim, {**_NOT_YET, "identity": True})
    return {**written, "producer_id": claim.identity.producer_id, "producer_epoch": claim.identity.epoch}


def _no_claim(stream: str) -> Callable[[str], NotWholeError]:
    return lambda why: NotWholeError(f"control/{stream}: not a claim of a restore ({why}); use another --id")


def _read_partition_claim(fact: Fact, stream: str) -> PartitionClaim:
    identity = [fact.get("producer_id"), fact.get("producer_epoch")]
    return _PARTITION_CLAIM.read({**fact, "identity": identity}, _no_claim(stream))


def _read_topic_claim(fact: Fact, stream: str) -> TopicClaim:
    return _TOPIC_CLAIM.read(fact, _no_claim(stream))


PARTITION_CLAIMS: Final[ClaimFacts[PartitionClaim, Contents]] = ClaimFacts(
    _read_partition_claim, _write_partition_claim, _CONTENTS.members
)
TOPIC_CLAIMS: Final[ClaimFacts[TopicClaim, TopicContents]] = ClaimFacts(
    _read_topic_claim,
    lambda claim: _TOPIC_CLAIM.write(claim, _NOT_YET),
    # Leader epochs are of logs, and a source is spread over many.
    lambda contents: _TOPIC_CONTENTS.members(contents, {"sources": {"__all__": {"leader_epoch": True}}}),
)
