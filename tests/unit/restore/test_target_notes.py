"""What a restore has noted of its targets, read so that one note which is wrong stops no other."""

from dataclasses import replace

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.segments.parts import ObjectPart
from archiver.archive.segments.segment_facts import PartFacts
from archiver.codec.selection import ALL_RECORDS
from archiver.errors import NotWholeError, UsageError
from archiver.kafka.records.produce import ProducerIdentity
from archiver.restore.groups.restored_partitions import NotedTarget, list_targets, read_noted_targets
from archiver.restore.plan import noted_plan
from archiver.restore.plan.claim_stream import partition_claims
from archiver.restore.plan.claims import PartitionClaim
from archiver.restore.plan.noted_plan import last_object
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("archive")


def key_of(base: int) -> str:
    return LAYOUT.segment_key(SegmentKey(topic="orders", life=1, partition=0, base=base))


def plan_of(target: str, objects: int = 3, **told: object) -> TopicPlan:
    partition = PartitionPlan(
        partition=0,
        parts=[ObjectPart(key_of(10 * at), 10 * at, None, 10 * at + 10) for at in range(objects)],
        stored_bytes=1,
        records=1,
        selection=ALL_RECORDS,
        selection_digest="d",
        facts=[PartFacts(True, *[1] * (len(PartFacts._fields) - 1))] * objects,
    )
    plain = TopicPlan(
        source="orders", life=1, target=target, partitions=(partition,), final_configs={}, archived_retention={}
    )
    return replace(plain, **told)  # type: ignore[arg-type]


def note(archive: Archive, plan: TopicPlan, topic_id: str, cluster_id: str = "c", restore: str = "mine") -> None:
    notes = RestoreNotes(archive, restore, cluster_id)
    notes.note_plans([plan], {plan.target: topic_id}, {})
    if plan.repartition is None:
        claim = PartitionClaim(
            target_cluster_id=cluster_id,
            target_topic_id=topic_id,
            start_offset=0,
            selection_digest="d",
            identity=ProducerIdentity(producer_id=1, epoch=0),
        )
        partition_claims(archive, restore, cluster_id, plan.target, 0).put(claim)


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), LAYOUT)


def read(archive: Archive, *targets: str) -> tuple[list[NotedTarget], dict[str, str]]:
    return read_noted_targets(archive, "mine", "c", targets, dict.fromkeys(targets, "A"))


def test_targets_are_listed_and_an_unknown_restore_names_those_there_are(archive: Archive) -> None:
    with pytest.raises(UsageError, match=r"restore mine: .*there is none"):
        list_targets(archive, "mine")
    note(archive, plan_of("a"), "A")
    note(archive, plan_of("b"), "A")
    note(archive, plan_of("c"), "A", restore="other")
    append_fact(archive, "restores/mine/@groups/x", lambda _: {"format": 1})
    assert list_targets(archive, "mine") == ["a", "b"]
    with pytest.raises(UsageError, match="there are mine, other"):
        list_targets(archive, "mime")


def test_each_target_by_itself(archive: Archive) -> None:
    for target, topic_id, cluster in (("good", "A", "c"), ("again", "old", "c"), ("elsewhere", "A", "d")):
        note(archive, plan_of(target), topic_id, cluster)
    append_fact(archive, "restores/mine/good/1", lambda _: {"format": 1, "target_topic_id": "A"})
    append_fact(archive, "restores/mine/good/2", lambda _: {"format": 1, "target_topic_id": "old"})
    append_fact(archive, "restores/mine/bad/plan", lambda _: {"format": 1, "target": "good"})
    append_fact(archive, "restores/mine/wrong/plan", lambda _: {"format": 1, "target": "wrong", "partitions": [{}]})
    (good, again, elsewhere), refused = read(archive, "good", "again", "elsewhere", "bad", "wrong", "none")
    assert (good.plan.source, good.plan.life, good.plan.repartition, good.problem) == ("orders", 1, None, "")
    assert list(good.claims) == [0]
    assert "not a claim of a restore" in good.refused[1]
    assert "of an earlier topic of that name" in good.refused[2]
    assert ("created again since" in again.problem, "another cluster" in elsewhere.problem) == (True, True)
    assert (again.claims, again.refused) == ({}, {})
    assert refused.keys() == {"bad", "wrong", "none"}
    assert "of target 'good'" in refused["bad"]


def test_a_target_that_is_gone_is_told(archive: Archive) -> None:
    note(archive, plan_of("good"), "A")
    (found,) = read_noted_targets(archive, "mine", "c", ["good"], {})[0]
    assert found.problem == "topic good is not on the cluster"


@pytest.mark.parametrize("objects", [0, 1, 3, 7])
@pytest.mark.parametrize("most_whole", [0, 5_000])
def test_the_last_object_of_a_plan(
    archive: Archive, objects: int, most_whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noted_plan, "_MOST_WHOLE", most_whole)
    monkeypatch.setattr(noted_plan, "_PIECE", 2)
    note(archive, plan_of("good", objects), "A")
    (found,) = read(archive, "good")[0]
    last = last_object(archive, found.stream, found.plan.partitions[0])
    assert last == (key_of(10 * objects - 10) if objects else None)


@pytest.mark.parametrize("partition", [{"parts": [[]]}, {"parts": 5}, {}, {"partition": 0, "pieces": ["0-x"]}])
def test_what_is_no_part_is_named(archive: Archive, partition: dict[str, object]) -> None:
    with pytest.raises(NotWholeError, match=r"control/s: not a plan"):
        last_object(archive, "s", partition)
