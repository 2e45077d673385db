"""The control fact of a topic that is restored into another number of partitions: who writes for each source, from where on (docs/format.md §8)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator

from archiver.archive.control import RESTORES, Fact, append_fact, latest_fact
from archiver.archive.fact_model import Digest, FactModel, Item, LeaderEpoch, Number, Text
from archiver.archive.handle import Archive
from archiver.archive.layout import MOST_PARTITION
from archiver.errors import NotWholeError
from archiver.kafka.produce import ProducerIdentity
from archiver.process.json_values import as_list, as_number, spelled_number
from archiver.restore.noted_target import is_of

JOINT_CLAIM = "repartition"  # the stream, beside the plan of the topic
_MOST_PRODUCER_EPOCH = 2**15 - 1


def _read_identity(told: object) -> ProducerIdentity:
    if isinstance(told, ProducerIdentity):
        return told
    producer_id, epoch = as_list(told)
    return ProducerIdentity(producer_id=as_number(producer_id), epoch=as_number(epoch, 0, _MOST_PRODUCER_EPOCH))


Identity = Annotated[
    ProducerIdentity, PlainValidator(_read_identity), PlainSerializer(lambda one: [one.producer_id, one.epoch])
]
_PartitionName = Annotated[int, BeforeValidator(partial(spelled_number, most=MOST_PARTITION)), PlainSerializer(str)]


@dataclass(frozen=True, slots=True)
class Share:
    """Records, in an order, and their digest."""

    records: Number
    digest: Digest
    bytes: Number | None = None  # of keys and values; None: noted before they were
    leader_epoch: LeaderEpoch = -1  # of a target partition: of its last batch; -1: noted before it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was restored: of each source partition, and in each target partition."""

    sources: Mapping[Item[_PartitionName], Item[Share]]
    targets: tuple[Item[Share], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointClaim:
    """One producer id for each source partition: it writes to all target partitions, which have those of many."""

    target_cluster_id: Text
    target_topic_id: Text
    start_offsets: tuple[Item[Number], ...]  # of each target partition
    identities: Annotated[
        Mapping[Item[_PartitionName], Item[Identity]], Field(alias="producers")
    ]  # of each source partition
    skipped: tuple[Item[Text], ...] = ()  # damaged objects: left out once, left out by every later attempt
    verified: Outcome | None = None

    @property
    def verified_ends(self) -> dict[int, int]:
        """Where each target partition ended when it was read back; empty: they were not."""
        shares = () if self.verified is None else self.verified.targets
        ends = zip(self.start_offsets, shares, strict=False)
        return {number: start + share.records for number, (start, share) in enumerate(ends)}


class JointClaimStream:
    """The facts of one target topic of one restore, on one cluster."""

    def __init__(self, archive: Archive, restore_id: str, cluster_id: str, topic: str) -> None:
        self._store = archive.store
        self._layout = archive.layout
        self._cluster_id = cluster_id
        self._stream = f"{RESTORES}/{restore_id}/{topic}/{JOINT_CLAIM}"

    def latest(self, target_topic_id: str) -> JointClaim | None:
        """Return the claim on this very topic; None when there is none, or one on a topic that is gone."""
        fact = latest_fact(Archive(self._store, self._layout), self._stream)
        claim = None if fact is None else joint_claim_from_fact(fact, self._stream)
        return claim if is_of(fact, self._cluster_id, target_topic_id) else None

    def put(self, claim: JointClaim) -> JointClaim:
        """Claim the topic, unless another run has; returns the claim that holds."""
        ours = _to_fact(claim)

        def decide(latest: Fact | None) -> Fact | None:
            return None if is_of(latest, self._cluster_id, claim.target_topic_id) else ours

        fact = append_fact(Archive(self._store, self._layout), self._stream, decide)
        return claim if fact is None or fact is ours else joint_claim_from_fact(fact, self._stream)

    def note_skipped(self, target_topic_id: str, object_key: str) -> None:
        """Write down that an object is left out: a record's number must be the same in each attempt."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or not is_of(latest, self._cluster_id, target_topic_id):
                return None
            skipped = joint_claim_from_fact(latest, self._stream).skipped
            return None if object_key in skipped else {**latest, "skipped": [*skipped, object_key]}

        append_fact(Archive(self._store, self._layout), self._stream, decide)

    def forget_verified(self, claim: JointClaim) -> JointClaim:
        """Take back that the topic is whole: it has lost some of it, and what is then filled up may fail."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or claim.verified is None or joint_claim_from_fact(latest, self._stream) != claim:
                return None
            return {name: value for name, value in latest.items() if name != "verified"}

        append_fact(Archive(self._store, self._layout), self._stream, decide)
        return replace(claim, verified=None)

    def note_verified(self, target_topic_id: str, outcome: Outcome) -> None:
        """Write down that the topic is whole, for runs that come later, when the target may have moved on."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or "verified" in latest or not is_of(latest, self._cluster_id, target_topic_id):
                return None
            return {**latest, "verified": _verified(outcome)}

        append_fact(Archive(self._store, self._layout), self._stream, decide)


_CLAIM_FACT: Final = FactModel(JointClaim)
_VERIFIED: Final = FactModel(Outcome)


def _to_fact(claim: JointClaim) -> Fact:
    """Claims are put before anything is skipped or verified."""
    return {name: value for name, value in _CLAIM_FACT.write(claim).items() if name not in {"skipped", "verified"}}


def _verified(outcome: Outcome) -> Fact:
    """Of a source partition nobody reads a leader epoch."""
    told = _VERIFIED.members(outcome)
    sources = {
        nr: {name: told for name, told in one.items() if name != "leader_epoch"} for nr, one in told["sources"].items()
    }
    return {**told, "sources": sources}


def joint_claim_from_fact(fact: Fact, stream: str) -> JointClaim:
    """Read a claim. Raises NotWholeError, which names the stream."""
    return _CLAIM_FACT.read(
        fact,
        lambda why: NotWholeError(
            f"control/{stream}: not a claim of a restore into other partitions ({why}); use another --id"
        ),
    )
