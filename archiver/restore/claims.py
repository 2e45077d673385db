"""The control facts of a restore's targets: what was planned, one producer id a partition for all its runs, and which topics are finished (docs/format.md §8)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from archiver.archive.control import RESTORES, Fact, append_fact, latest_fact
from archiver.archive.handle import Archive
from archiver.errors import NotWholeError
from archiver.kafka.produce import ProducerIdentity
from archiver.process.failpoints import reach
from archiver.process.json_values import as_number, as_object, as_text, as_texts, spelled_digest
from archiver.restore.joint_claims import identity_from_fact
from archiver.restore.noted_target import is_of

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What stood on the target when it was read back."""

    records: int
    digest: int
    bytes: int | None = None  # of keys and values; None: noted before they were
    leader_epoch: int = -1  # of the last batch; -1: noted before it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who writes a target partition, from which offset on, and what; and, once it is done, that it was read back."""

    target_cluster_id: str
    target_topic_id: str
    start_offset: int
    selection_digest: str
    identity: ProducerIdentity
    skipped: tuple[str, ...] = ()  # damaged objects: left out once, left out by every later attempt
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
        claim = None if fact is None else _from_fact(fact, self._stream)
        return claim if is_of(fact, self._cluster_id, target_topic_id) else None

    def put(self, claim: Claim) -> Claim:
        """Claim the partition, unless another run has; returns the claim that holds."""

        def decide(latest: Fact | None) -> Fact | None:
            return None if is_of(latest, self._cluster_id, claim.target_topic_id) else _to_fact(claim)

        fact = append_fact(Archive(self._store, self._layout), self._stream, decide)
        reach("claim.put")
        return claim if fact is None else _from_fact(fact, self._stream)

    def note_skipped(self, claim: Claim, object_key: str) -> None:
        """Write down that an object is left out: a record's number must be the same in each attempt."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or not is_of(latest, self._cluster_id, claim.target_topic_id):
                return None
            skipped = _from_fact(latest, self._stream).skipped
            return None if object_key in skipped else {**latest, "skipped": [*skipped, object_key]}

        append_fact(Archive(self._store, self._layout), self._stream, decide)
        reach("skipped.noted")

    def forget_verified(self, claim: Claim) -> Claim:
        """Take back that the partition is whole: it has lost some of it, and what is then filled up may fail."""

        def decide(latest: Fact | None) -> Fact | None:
            if latest is None or claim.verified is None or _from_fact(latest, self._stream) != claim:
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
            return {**latest, "verified": _verified_to_fact(verified)}

        append_fact(Archive(self._store, self._layout), self._stream, decide)
        reach("verified.noted")


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
    return {
        "records": verified.records,
        "digest": f"{verified.digest:016x}",
        "bytes": verified.bytes,
        "leader_epoch": verified.leader_epoch,
    }


def _verified_from_fact(done: object) -> Verified:
    told = as_object(done)
    size = told.get("bytes")
    return Verified(
        records=as_number(told["records"]),
        digest=spelled_digest(told["digest"]),
        bytes=None if size is None else as_number(size),
        leader_epoch=as_number(told.get("leader_epoch", -1), -1),
    )


def _from_fact(fact: Fact, stream: str) -> Claim:
    try:
        done = fact.get("verified")
        return Claim(
            target_cluster_id=as_text(fact["target_cluster_id"]),
            target_topic_id=as_text(fact["target_topic_id"]),
            start_offset=as_number(fact["start_offset"]),
            selection_digest=as_text(fact["selection_digest"]),
            identity=identity_from_fact(fact["producer_id"], fact["producer_epoch"]),
            skipped=as_texts(fact.get("skipped", [])),
            verified=None if done is None else _verified_from_fact(done),
        )
    except (KeyError, ValueError) as error:
        raise NotWholeError(f"control/{stream}: not a claim of a restore ({error!r}); use another --id") from error
