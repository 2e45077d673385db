"""The control facts of a restore's targets: what was planned, one producer id a partition for all its runs, and which topics are finished (docs/format.md §8)."""

from dataclasses import dataclass, replace
from typing import Final

from archiver.archive.control import RESTORES, Fact, append_fact, latest_fact
from archiver.archive.fact_model import Digest, FactModel, Item, LeaderEpoch, Number, Text
from archiver.archive.handle import Archive
from archiver.errors import NotWholeError
from archiver.process.failpoints import reach
from archiver.restore.joint_claims import Identity
from archiver.restore.noted_target import is_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What stood on the target when it was read back."""

    records: Number
    digest: Digest
    bytes: Number | None = None  # of keys and values; None: noted before they were
    leader_epoch: LeaderEpoch = -1  # of the last batch; -1: noted before it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who writes a target partition, from which offset on, and what; and, once it is done, that it was read back."""

    target_cluster_id: Text
    target_topic_id: Text
    start_offset: Number
    selection_digest: Text
    identity: Identity
    skipped: tuple[Item[Text], ...] = ()  # damaged objects: left out once, left out by every later attempt
    verified: Verified | None = None

    @property
    def verified_end(self) -> int:
        """Where the partition ended when it was read back; 0: it was not."""
        return 0 if self.verified is None else self.start_offset + self.verified.records


class ClaimStream:
    """The facts of one target partition of one restore, on one cluster."""

    def __init__(self, archive: Archive, restore_id: str, cluster_id: str, topic: str, partition: int) -> None:
        self._store = archive.store
        self._layout = archive.layout
        self._cluster_id = cluster_id
        self._stream = f"{RESTORES}/{restore_id}/{topic}/{partition}"

    def latest(self, target_topic_id: str) -> Claim | None:
        """Return the claim on this very topic; None when there is none, or one on a topic that is gone."""
        fact = latest_fact(Archive(self._store, self._layout), self._stream)
        claim = None if fact is None else claim_from_fact(fact, self._stream)
        return claim if is_of(fact, self._cluster_id, target_topic_id) else None

    def put(self, claim: Claim) -> Claim:
        """Claim the partition, unless another run has; returns the claim that holds."""

        def decide(latest: Fact | None) -> Fact | None:
            return None if is_of(latest, self._cluster_id, claim.target_topic_id) else _to_fact(claim)

        fact = append_fact(Archive(self._store, self._layout), self._stream, decide)
        reach("claim.put")
        return claim if fact is None else claim_from_fact(fact, self._stream)

    def note_skipped(self, claim: Claim, object_key: str) -> None:
        """Write down that an object is left out: a record's number must be the same in each attempt."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or not is_of(latest, self._cluster_id, claim.target_topic_id):
                return None
            skipped = claim_from_fact(latest, self._stream).skipped
            return None if object_key in skipped else {**latest, "skipped": [*skipped, object_key]}

        append_fact(Archive(self._store, self._layout), self._stream, decide)
        reach("skipped.noted")

    def forget_verified(self, claim: Claim) -> Claim:
        """Take back that the partition is whole: it has lost some of it, and what is then filled up may fail."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or claim.verified is None or claim_from_fact(latest, self._stream) != claim:
                return None
            return {name: value for name, value in latest.items() if name != "verified"}

        append_fact(Archive(self._store, self._layout), self._stream, decide)
        reach("verified.forgotten")
        return replace(claim, verified=None)

    def note_verified(self, claim: Claim, verified: Verified) -> None:
        """Write down that the partition is whole, for runs that come later, when the target may have moved on."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or "verified" in latest or not is_of(latest, self._cluster_id, claim.target_topic_id):
                return None
            return {**latest, "verified": _VERIFIED.members(verified)}

        append_fact(Archive(self._store, self._layout), self._stream, decide)
        reach("verified.noted")


_CLAIM_FACT: Final = FactModel(Claim)
_VERIFIED: Final = FactModel(Verified)


def _to_fact(claim: Claim) -> Fact:
    """Claims are put before anything is skipped or verified."""
    told = _CLAIM_FACT.write(claim)
    producer_id, producer_epoch = told["identity"]
    left_out = {"identity", "skipped", "verified"}
    kept = {name: value for name, value in told.items() if name not in left_out}
    return {**kept, "producer_id": producer_id, "producer_epoch": producer_epoch}


def claim_from_fact(fact: Fact, stream: str) -> Claim:
    """Read a claim. Raises NotWholeError, which names the stream."""
    identity = [fact.get("producer_id"), fact.get("producer_epoch")]
    return _CLAIM_FACT.read(
        {**fact, "identity": identity},
        lambda why: NotWholeError(f"control/{stream}: not a claim of a restore ({why}); use another --id"),
    )
