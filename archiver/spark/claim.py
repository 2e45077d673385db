"""The control facts of a restore's targets: one producer id a partition for all its runs, and which topics are finished (docs/format.md §8)."""

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from archiver.control import Fact, append_fact, latest_fact, newest_numbers, read_facts
from archiver.errors import NotWholeError
from archiver.kafka.produce import ProducerIdentity
from archiver.layout import Layout
from archiver.store import ObjectStore

FORMAT = 1
_FINISHED = "finished"  # the stream beside those of a topic's partitions
_NOTES_AT_ONCE = 16


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


class RestoreNotes:
    """What all runs of a restore have noted of its targets, read together: one listing, and each fact once.

    Targets are given as {topic: topic id}; what was noted of an earlier topic of that name is not told.
    """

    def __init__(self, store: ObjectStore, layout: Layout, restore_id: str) -> None:
        self._store = store
        self._layout = layout
        self._parent = f"restores/{restore_id}"
        self._read: dict[tuple[str, int], Fact] = {}  # facts never change

    def claims(self, targets: Mapping[str, str]) -> dict[str, dict[int, Claim]]:
        """Return the claims on these very topics, by topic and partition."""
        claims: dict[str, dict[int, Claim]] = {topic: {} for topic in targets}
        for stream, topic, name, fact in self._latest(targets):
            if name.isdecimal():
                claim = _from_fact(fact, stream)
                if claim.target_topic_id == targets[topic]:
                    claims[topic][int(name)] = claim
        return claims

    def finished(self, targets: Mapping[str, str]) -> set[str]:
        """Return which of these very topics were finished: filled, read back, their configs set."""
        return {
            topic
            for _, topic, name, fact in self._latest(targets)
            if name == _FINISHED and fact.get("target_topic_id") == targets[topic]
        }

    def note_finished(self, targets: Mapping[str, str]) -> None:
        """Write down that these topics were finished, once each. From then on a rerun leaves them alone."""

        def note(target: tuple[str, str]) -> None:
            ours = {"format": FORMAT, "target_topic_id": target[1]}
            append_fact(
                self._store,
                self._layout,
                f"{self._parent}/{target[0]}/{_FINISHED}",
                lambda latest: None if latest == ours else ours,
            )

        with ThreadPoolExecutor(max_workers=_NOTES_AT_ONCE, thread_name_prefix="finished") as pool:
            list(pool.map(note, targets.items()))

    def _latest(self, topics: Collection[str]) -> Iterator[tuple[str, str, str, Fact]]:
        """Tell (stream, topic, partition or `finished`, fact) of each stream of these topics."""
        newest = newest_numbers(self._store, self._layout, self._parent) if topics else {}
        named = {stream: stream.removeprefix(f"{self._parent}/").partition("/") for stream in newest}
        wanted = {stream: newest[stream] for stream, (topic, _, _) in named.items() if topic in topics}
        unread = {stream: number for stream, number in wanted.items() if (stream, number) not in self._read}
        for stream, fact in read_facts(self._store, self._layout, unread).items():
            self._read[stream, unread[stream]] = fact
        for stream, number in wanted.items():
            topic, _, name = named[stream]
            yield stream, topic, name, self._read[stream, number]


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
