"""What the runs of a restore have noted of their targets, read together."""

from dataclasses import replace

import pytest

from archiver.archive.format.control import encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.errors import NotWholeError
from archiver.kafka.records.produce import ProducerIdentity
from archiver.restore.plan.claim_stream import ClaimStream, partition_claims
from archiver.restore.plan.claims import Contents, PartitionClaim
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("archive")
IDENTITY = ProducerIdentity(producer_id=1, epoch=0)


def claim_of(topic_id: str) -> PartitionClaim:
    return PartitionClaim(
        target_cluster_id="c", target_topic_id=topic_id, start_offset=0, selection_digest="d", identity=IDENTITY
    )


def stream_of(
    store: MemoryStore, topic: str, partition: int, restore: str = "mine"
) -> ClaimStream[PartitionClaim, Contents]:
    return partition_claims(Archive(store, LAYOUT), restore, "c", topic, partition)


def test_claims_are_of_this_restore_and_this_very_topic() -> None:
    store = MemoryStore()
    for partition in (0, 10):
        stream_of(store, "orders", partition).put(claim_of("A"))
    stream_of(store, "orders", 2).put(claim_of("earlier"))
    stream_of(store, "orders", 3, "mine.too").put(claim_of("A"))
    stream_of(store, "other", 4).put(claim_of("A"))
    found = RestoreNotes(Archive(store, LAYOUT), "mine", "c").claims({"orders": "A", "absent": "B"})
    assert found == {"orders": {0: claim_of("A"), 10: claim_of("A")}, "absent": {}}


def test_what_was_noted_since_is_read_again() -> None:
    store = MemoryStore()
    notes, stream = RestoreNotes(Archive(store, LAYOUT), "mine", "c"), stream_of(store, "orders", 0)
    stream.put(claim_of("A"))
    assert notes.claims({"orders": "A"})["orders"][0].verified is None
    stream.note_verified("A", Contents(records=5, digest=7))
    assert notes.claims({"orders": "A"})["orders"][0].verified == Contents(records=5, digest=7)
    noted = replace(claim_of("A"), verified=Contents(records=5, digest=7))
    stream.forget_verified(replace(noted, verified=Contents(records=4, digest=7)))  # what another run has noted since
    assert notes.claims({"orders": "A"})["orders"][0] == noted
    assert stream.forget_verified(noted) == claim_of("A")
    again = Contents(records=5, digest=7, bytes=9, leader_epoch=3)
    stream.note_verified("A", again)
    assert notes.claims({"orders": "A"})["orders"][0].verified == again


def test_a_fact_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    notes = RestoreNotes(Archive(store, LAYOUT), "mine", "c")
    for partition in range(20):
        stream_of(store, "orders", partition).put(claim_of("A"))
    first = notes.claims({"orders": "A"})
    monkeypatch.setattr(store, "get", lambda key, *_: pytest.fail(f"{key} was read again"))
    assert notes.claims({"orders": "A"}) == first


def test_finished_topics_are_those_with_these_ids() -> None:
    store = MemoryStore()
    notes = RestoreNotes(Archive(store, LAYOUT), "mine", "c")
    stream_of(store, "orders", 0).put(claim_of("A"))
    notes.note_finished({"orders": "A", "other": "B"})
    notes.note_finished({"orders": "A"})
    assert notes.finished({"orders": "A", "other": "new", "absent": "C"}) == {"orders"}
    assert len(store.objects) == 3
    assert notes.claims({"orders": "A"})["orders"] == {0: claim_of("A")}


def test_what_was_noted_of_another_cluster_is_not_of_this_one() -> None:
    """Brokers that give no ids have the same one for each topic of a name: none."""
    store = MemoryStore()
    stream = stream_of(store, "orders", 0)
    stream.put(claim_of(""))
    RestoreNotes(Archive(store, LAYOUT), "mine", "c").note_finished({"orders": ""})
    other = RestoreNotes(Archive(store, LAYOUT), "mine", "other")
    assert (other.claims({"orders": ""}), other.finished({"orders": ""})) == ({"orders": {}}, set())
    theirs = replace(claim_of(""), target_cluster_id="other")
    assert partition_claims(Archive(store, LAYOUT), "mine", "other", "orders", 0).put(theirs) == theirs
    assert stream.latest("") is None


def test_what_was_finished_before_clusters_were_noted_is_finished() -> None:
    store = MemoryStore()
    fact = {"format": 1, "target_topic_id": "A"}
    store.put_if_absent(
        LAYOUT.fact_key("restores/mine/orders/finished", 0), encode_fact(fact), {}, kind=ObjectKind.FACT
    )
    assert RestoreNotes(Archive(store, LAYOUT), "mine", "c").finished({"orders": "A"}) == {"orders"}


def test_what_is_no_claim_is_named() -> None:
    store = MemoryStore()
    store.put_if_absent(LAYOUT.fact_key("restores/mine/orders/0", 0), b'{"format": 1}', {}, kind=ObjectKind.FACT)
    with pytest.raises(NotWholeError, match="control/restores/mine/orders/0: not a claim"):
        RestoreNotes(Archive(store, LAYOUT), "mine", "c").claims({"orders": "A"})
