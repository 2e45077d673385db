"""The control fact of one target partition of a restore: one producer id for all its runs (docs/format.md §8)."""

from collections.abc import Mapping
from dataclasses import dataclass

from archiver.control import Fact, append_fact, latest_fact
from archiver.errors import NotWholeError
from archiver.kafka.produce import ProducerIdentity
from archiver.layout import Layout
from archiver.store import ObjectStore

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What stood on the target when it was read back."""

    records: int
    digest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who writes a target partition, from which offset on, and what; and, once it is done, that it was read back."""

    target_cluster_id: str
    target_topic_id: str
    start_offset: int
    selection_digest: str
    identity: ProducerIdentity
    verified: Verified | None = None


class ClaimStream:
    """The facts of one target partition of one restore."""

    def __init__(self, store: ObjectStore, layout: Layout, restore_id: str, topic: str, partition: int) -> None:
        self._store = store
        self._layout = layout
        self._stream = f"restores/{restore_id}/{topic}/{partition}"

    def latest(self, target_topic_id: str) -> Claim | None:
        """Return the claim on this very topic; None when there is none, or one on a topic that is gone."""
        fact = latest_fact(self._store, self._layout, self._stream)
        claim = None if fact is None else _from_fact(fact, self._stream)
        return claim if claim is not None and claim.target_topic_id == target_topic_id else None

    def put(self, claim: Claim) -> Claim:
        """Claim the partition, unless another run has; returns the claim that holds."""

        def decide(latest: Fact | None) -> Fact | None:
            taken = latest is not None and latest["target_topic_id"] == claim.target_topic_id
            return None if taken else _to_fact(claim)

        fact = append_fact(self._store, self._layout, self._stream, decide)
        return claim if fact is None else _from_fact(fact, self._stream)

    def note_verified(self, claim: Claim, verified: Verified) -> None:
        """Write down that the partition is whole, for runs that come later, when the target may have moved on."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or "verified" in latest or latest["target_topic_id"] != claim.target_topic_id:
                return None
            return {**latest, "verified": _verified_to_fact(verified)}

        append_fact(self._store, self._layout, self._stream, decide)


class FinishedStream:
    """That a topic was finished: filled, read back, its configs set. From then on a rerun leaves it alone."""

    def __init__(self, store: ObjectStore, layout: Layout, restore_id: str, topic: str) -> None:
        self._store = store
        self._layout = layout
        self._stream = f"restores/{restore_id}/{topic}/finished"

    def holds(self, target_topic_id: str) -> bool:
        """Tell whether this very topic was finished."""
        fact = latest_fact(self._store, self._layout, self._stream)
        return fact is not None and fact.get("target_topic_id") == target_topic_id

    def note(self, target_topic_id: str) -> None:
        """Write it down, once."""

        def decide(latest: Fact | None) -> Fact | None:
            ours = {"format": FORMAT, "target_topic_id": target_topic_id}
            return None if latest == ours else ours

        append_fact(self._store, self._layout, self._stream, decide)


def _to_fact(claim: Claim) -> Fact:
    return {
        "format": FORMAT,
        "target_cluster_id": claim.target_cluster_id,
        "target_topic_id": claim.target_topic_id,
        "start_offset": claim.start_offset,
        "selection_digest": claim.selection_digest,
        "producer_id": claim.identity.producer_id,
        "producer_epoch": claim.identity.epoch,
    }


def _verified_to_fact(verified: Verified) -> Mapping[str, object]:
    return {"records": verified.records, "digest": f"{verified.digest:016x}"}


def _from_fact(fact: Fact, stream: str) -> Claim:
    try:
        done = fact.get("verified")
        return Claim(
            target_cluster_id=str(fact["target_cluster_id"]),
            target_topic_id=str(fact["target_topic_id"]),
            start_offset=int(fact["start_offset"]),
            selection_digest=str(fact["selection_digest"]),
            identity=ProducerIdentity(producer_id=int(fact["producer_id"]), epoch=int(fact["producer_epoch"])),
            verified=None if done is None else Verified(records=int(done["records"]), digest=int(done["digest"], 16)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotWholeError(f"control/{stream}: not a claim of a restore ({error!r}); use another --id") from error
