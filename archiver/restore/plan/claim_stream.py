"""Reads and writes the claim on a target: put once; later facts note skipped objects and verified records (docs/format.md §8)."""

from dataclasses import replace
from typing import Generic

from archiver.archive.format.control import RESTORES, Fact, append_fact, latest_fact
from archiver.archive.format.handle import Archive
from archiver.archive.restores.finished_restores import REPARTITION
from archiver.process.running.failpoints import reach
from archiver.restore.plan.claims import (
    PARTITION_CLAIMS,
    TOPIC_CLAIMS,
    Claim,
    ClaimFacts,
    Contents,
    PartitionClaim,
    TopicClaim,
    TopicContents,
    Verified,
)
from archiver.restore.plan.noted_target import is_of


class ClaimStream(Generic[Claim, Verified]):
    """The facts of one claim of one restore, on one cluster."""

    def __init__(self, archive: Archive, stream: str, cluster_id: str, facts: ClaimFacts[Claim, Verified]) -> None:
        self._archive = archive
        self._stream = stream
        self._cluster_id = cluster_id
        self._facts: ClaimFacts[Claim, Verified] = facts

    def latest(self, target_topic_id: str) -> Claim | None:
        """Return the claim on exactly this topic; None if missing, or of a deleted topic."""
        fact = latest_fact(self._archive, self._stream)
        claim = None if fact is None else self._facts.read(fact, self._stream)
        return claim if is_of(fact, self._cluster_id, target_topic_id) else None

    def put(self, claim: Claim) -> Claim:
        """Claim the target, unless another run has. Returns the valid claim: this very object, if it is ours."""
        ours = self._facts.write(claim)

        def decide(latest: Fact | None) -> Fact | None:
            return None if is_of(latest, self._cluster_id, claim.target_topic_id) else ours

        fact = append_fact(self._archive, self._stream, decide)
        reach("claim.put")
        return claim if fact is None or fact is ours else self._facts.read(fact, self._stream)

    def note_skipped(self, target_topic_id: str, object_key: str) -> None:
        """Note that an object is skipped: a record's number must be the same in each attempt."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or not is_of(latest, self._cluster_id, target_topic_id):
                return None
            skipped: tuple[str, ...] = self._facts.read(latest, self._stream).skipped
            return None if object_key in skipped else {**latest, "skipped": [*skipped, object_key]}

        append_fact(self._archive, self._stream, decide)
        reach("skipped.noted")

    def forget_verified(self, claim: Claim) -> Claim:
        """Withdraw the note that the target is whole: it has lost records, and refilling may fail."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or claim.verified is None or self._facts.read(latest, self._stream) != claim:
                return None
            return {name: value for name, value in latest.items() if name != "verified"}

        append_fact(self._archive, self._stream, decide)
        reach("verified.forgotten")
        return replace(claim, verified=None)

    def note_verified(self, target_topic_id: str, verified: Verified) -> None:
        """Note that the target is whole, for later runs, when it may have grown."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or "verified" in latest or not is_of(latest, self._cluster_id, target_topic_id):
                return None
            return {**latest, "verified": self._facts.write_verified(verified)}

        append_fact(self._archive, self._stream, decide)
        reach("verified.noted")


def partition_claims(
    archive: Archive, restore_id: str, cluster_id: str, topic: str, partition: int
) -> ClaimStream[PartitionClaim, Contents]:
    """Return the stream of the claim on a target partition."""
    return ClaimStream(archive, f"{RESTORES}/{restore_id}/{topic}/{partition}", cluster_id, PARTITION_CLAIMS)


def topic_claims(
    archive: Archive, restore_id: str, cluster_id: str, topic: str
) -> ClaimStream[TopicClaim, TopicContents]:
    """Return the stream of the claim on all partitions of a target."""
    return ClaimStream(archive, f"{RESTORES}/{restore_id}/{topic}/{REPARTITION}", cluster_id, TOPIC_CLAIMS)
