"""The claim on all partitions of a topic: put once, and what is noted in it."""

from dataclasses import replace

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.errors import NotWholeError
from archiver.kafka.records.produce import ProducerIdentity
from archiver.restore.plan.claim_stream import ClaimStream, topic_claims
from archiver.restore.plan.claims import Contents, TopicClaim, TopicContents
from archiver.restore.plan.restore_notes import RestoreNotes
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("archive")
CLAIM = TopicClaim(
    target_cluster_id="c",
    target_topic_id="one",
    start_offsets=(0, 5, 2**40),
    identities={0: ProducerIdentity(producer_id=7, epoch=0), 3: ProducerIdentity(producer_id=8, epoch=1)},
)


def stream_of(store: MemoryStore) -> ClaimStream[TopicClaim, TopicContents]:
    return topic_claims(Archive(store, LAYOUT), "mine", CLAIM.target_cluster_id, "orders")


def test_the_first_claim_holds_until_the_topic_is_another_one() -> None:
    store = MemoryStore()
    assert stream_of(store).latest("one") is None
    assert stream_of(store).put(CLAIM) is CLAIM
    later = replace(CLAIM, start_offsets=(1, 1, 1))
    assert stream_of(store).put(later) == CLAIM
    assert stream_of(store).latest("one") == CLAIM
    anew = replace(later, target_topic_id="two")
    assert stream_of(store).put(anew) is anew
    assert stream_of(store).latest("one") is None


def test_what_is_noted_stays_beside_the_claim() -> None:
    store = MemoryStore()
    stream = stream_of(store)
    stream.put(CLAIM)
    outcome = TopicContents(
        sources={0: Contents(3, 2**60), 3: Contents(0, 0)}, targets=(Contents(1, 5), Contents(2, 6), Contents(0, 0))
    )
    for key in ("a", "b", "a"):
        stream.note_skipped("one", key)
    stream.note_skipped("another", "c")
    stream.note_verified("another", outcome)
    assert stream.latest("one") == replace(CLAIM, skipped=("a", "b"))
    stream.note_verified("one", outcome)
    stream.note_verified("one", replace(outcome, targets=()))
    assert stream.latest("one") == replace(CLAIM, skipped=("a", "b"), verified=outcome)
    stream.forget_verified(replace(CLAIM, verified=replace(outcome, targets=())))  # what another run has noted since
    assert stream.latest("one") == replace(CLAIM, skipped=("a", "b"), verified=outcome)
    known = replace(outcome, targets=(Contents(1, 5, 9, leader_epoch=2),))
    stream.forget_verified(replace(CLAIM, skipped=("a", "b"), verified=outcome))
    assert stream.latest("one") == replace(CLAIM, skipped=("a", "b"))
    stream.note_verified("one", known)
    assert stream.latest("one") == replace(CLAIM, skipped=("a", "b"), verified=known)


def test_notes_tell_of_claims_on_these_very_topics() -> None:
    store = MemoryStore()
    stream_of(store).put(CLAIM)
    notes = RestoreNotes(Archive(store, LAYOUT), "mine", CLAIM.target_cluster_id)
    assert notes.topic_claims({"orders": "one", "others": "one"}) == {"orders": CLAIM}
    assert notes.topic_claims({"orders": "two"}) == {}
    assert notes.claims({"orders": "one"}) == {"orders": {}}


@pytest.mark.parametrize("broken", [{"producers": [1]}, {"producers": {"x": [1, 2]}}, {"start_offsets": None}])
def test_what_is_no_claim_is_named(broken: dict[str, object]) -> None:
    store = MemoryStore()
    stream_of(store).put(CLAIM)
    append_fact(Archive(store, LAYOUT), "restores/mine/orders/repartition", lambda latest: {**(latest or {}), **broken})
    with pytest.raises(NotWholeError, match="control/restores/mine/orders/repartition: not a claim"):
        stream_of(store).latest("one")
