"""The control fact of a topic that is restored into another number of partitions: who writes for each source, from where on (docs/format.md §8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from archiver.archive.control import RESTORES, Fact, append_fact, latest_fact
from archiver.archive.handle import Archive
from archiver.archive.layout import MOST_PARTITION
from archiver.errors import NotWholeError
from archiver.kafka.produce import ProducerIdentity
from archiver.process.json_values import (
    as_list,
    as_number,
    as_object,
    as_text,
    as_texts,
    spelled_digest,
    spelled_number,
)
from archiver.restore.noted_target import is_of

FORMAT = 1
_MOST_PRODUCER_EPOCH = 2**15 - 1
JOINT_CLAIM = "repartition"  # the stream, beside the plan of the topic


class Share(NamedTuple):
    """Records, in an order, and their digest."""

    records: int
    digest: int
    bytes: int | None = None  # of keys and values; None: noted before they were
    leader_epoch: int = -1  # of a target partition: of its last batch; -1: noted before it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was restored: of each source partition, and in each target partition."""

    sources: Mapping[int, Share]
    targets: Sequence[Share]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointClaim:
    """One producer id for each source partition: it writes to all target partitions, which have those of many."""

    target_cluster_id: str
    target_topic_id: str
    start_offsets: tuple[int, ...]  # of each target partition
    identities: Mapping[int, ProducerIdentity]  # of each source partition
    skipped: tuple[str, ...] = ()  # damaged objects: left out once, left out by every later attempt
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
            sources = {str(nr): _share_to_fact(share) for nr, share in outcome.sources.items()}
            targets = [{**_share_to_fact(one), "leader_epoch": one.leader_epoch} for one in outcome.targets]
            return {**latest, "verified": {"sources": sources, "targets": targets}}

        append_fact(Archive(self._store, self._layout), self._stream, decide)


def _to_fact(claim: JointClaim) -> Fact:
    return {
        "format": FORMAT,
        "target_cluster_id": claim.target_cluster_id,
        "target_topic_id": claim.target_topic_id,
        "start_offsets": list(claim.start_offsets),
        "producers": {str(nr): [one.producer_id, one.epoch] for nr, one in claim.identities.items()},
    }


def joint_claim_from_fact(fact: Fact, stream: str) -> JointClaim:
    """Read it. Raises NotWholeError, which names the stream."""
    try:
        done = fact.get("verified")
        return JointClaim(
            target_cluster_id=as_text(fact["target_cluster_id"]),
            target_topic_id=as_text(fact["target_topic_id"]),
            start_offsets=tuple(map(as_number, as_list(fact["start_offsets"]))),
            identities={
                spelled_number(nr, 0, MOST_PARTITION): identity_from_fact(*as_list(identity))
                for nr, identity in as_object(fact["producers"]).items()
            },
            skipped=as_texts(fact.get("skipped", [])),
            verified=None if done is None else _outcome_from_fact(done),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotWholeError(
            f"control/{stream}: not a claim of a restore into other partitions ({error!r}); use another --id"
        ) from error


def identity_from_fact(producer_id: object, epoch: object) -> ProducerIdentity:
    return ProducerIdentity(producer_id=as_number(producer_id), epoch=as_number(epoch, 0, _MOST_PRODUCER_EPOCH))


def _outcome_from_fact(told: object) -> Outcome:
    done = as_object(told)
    sources = as_object(done["sources"]).items()
    return Outcome(
        sources={spelled_number(nr, 0, MOST_PARTITION): _share_from_fact(share) for nr, share in sources},
        targets=tuple(map(_share_from_fact, as_list(done["targets"]))),
    )


def _share_to_fact(share: Share) -> Fact:
    return {"records": share.records, "digest": f"{share.digest:016x}", "bytes": share.bytes}


def _share_from_fact(told: object) -> Share:
    share = as_object(told)
    size = share.get("bytes")
    return Share(
        records=as_number(share["records"]),
        digest=spelled_digest(share["digest"]),
        bytes=None if size is None else as_number(size),
        leader_epoch=as_number(share.get("leader_epoch", -1), -1),
    )
