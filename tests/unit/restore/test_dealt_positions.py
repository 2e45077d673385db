"""Which topics have positions at all, and which of several failures is told."""

from dataclasses import replace

import pytest

from archiver.archive.parts import FactsOfParts
from archiver.codec.selection import ALL_RECORDS
from archiver.config.model import StorageConfig
from archiver.errors import NotWholeError, TargetError
from archiver.kafka.cluster import Replicas, TopicDescription
from archiver.kafka.produce import ProducerIdentity
from archiver.kafka.settings import KafkaSettings
from archiver.restore.claims import Contents, TopicClaim, TopicContents
from archiver.restore.dealt_positions import DealtTopic, failed_positions
from archiver.restore.plan import PartitionPlan, TopicPlan
from archiver.restore.task import TaskReport


def partition(number: int, problem: str = "") -> PartitionPlan:
    return PartitionPlan(
        partition=number,
        parts=(),
        stored_bytes=0,
        records=0,
        selection=ALL_RECORDS,
        selection_digest="",
        problem=problem,
        facts=FactsOfParts.of(()),
    )


NOTHING = Contents(0, 0)
CLAIM = TopicClaim(
    target_cluster_id="cluster",
    target_topic_id="id",
    start_offsets=(0, 0),
    identities={1: ProducerIdentity(producer_id=5, epoch=0)},
    verified=TopicContents(sources={1: NOTHING}, targets=(NOTHING, NOTHING)),
)
TOPIC = DealtTopic(
    restore_id="r",
    storage=StorageConfig(url="s3://bucket"),
    kafka=KafkaSettings.parse({"bootstrap.servers": "127.0.0.1:1"}),
    plan=TopicPlan(
        source="orders",
        life=0,
        target="back",
        partitions=(partition(0, "is damaged"), partition(1)),
        final_configs={},
        archived_retention={},
        repartition=2,
    ),
    claim=CLAIM,
    committed={"some": {1: 3}, "none": {}},
)
LIVE = TopicDescription(
    name="back",
    topic_id="id",
    partitions=(0, 1),
    leaders={},
    is_internal=False,
    fewest=Replicas(1, 1, 0),
    replicas=(1, 1),
)


def test_what_was_verified_has_positions() -> None:
    TOPIC.check(LIVE)
    assert (TOPIC.groups, TOPIC.refused) == (("some",), (0,))
    assert [task.partition for task in TOPIC.replay_tasks] == [1]


@pytest.mark.parametrize("live", [None, replace(LIVE, topic_id="other"), replace(LIVE, topic_id="")])
def test_another_topic_has_none(live: TopicDescription | None) -> None:
    with pytest.raises(TargetError, match="back: is not the topic that restore r has filled"):
        TOPIC.check(live)


@pytest.mark.parametrize(
    "topic",
    [replace(TOPIC, claim=replace(CLAIM, verified=None)), replace(TOPIC, plan=replace(TOPIC.plan, repartition=None))],
)
def test_what_was_not_verified_has_none(topic: DealtTopic) -> None:
    with pytest.raises(TargetError, match="back: was not read back after it was dealt out; run the restore again"):
        topic.check(LIVE)


@pytest.mark.parametrize(
    "claim",
    [
        replace(CLAIM, start_offsets=(0, 9)),
        replace(CLAIM, start_offsets=(0,)),
        replace(CLAIM, skipped=("topics/orders/another.data",)),
        replace(CLAIM, verified=TopicContents(sources={1: Contents(4, 1)}, targets=(NOTHING, Contents(4, 1)))),
    ],
)
def test_a_claim_that_no_restore_has_noted(claim: TopicClaim) -> None:
    with pytest.raises(NotWholeError, match="no run of this restore has noted that"):
        replace(TOPIC, claim=claim).check(LIVE)


def test_what_a_rerun_does_not_mend_is_told_first() -> None:
    reports = [
        TaskReport(target_topic="back", partition=at, error=f"error {code}", exit_code=code)
        for at, code in enumerate([4, 3, 1])
    ]
    found = failed_positions(TOPIC, [None, *reports])
    assert (found.error, found.exit_code, found.groups) == ("error 3", 3, {})
