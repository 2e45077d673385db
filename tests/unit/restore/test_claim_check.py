"""A claim that no run of a restore can have noted is refused, and names its stream."""

from dataclasses import replace

import pytest

from archiver.archive.segments.parts import ObjectPart
from archiver.archive.segments.record_counts import Count
from archiver.errors import NotWholeError
from archiver.kafka.records.produce import ProducerIdentity
from archiver.restore.plan.claim_check import check_claim, check_topic_claim
from archiver.restore.plan.claims import Contents, PartitionClaim, TopicClaim, TopicContents
from archiver.restore.plan.task import RestoreTask
from tests.unit.restore.test_repartition_source import task_of

TASK = replace(task_of(1).source, wanted=Count(20, 30), parts=(ObjectPart("a", 0), ObjectPart("b", 10)), partition=0)
APPENDS = replace(TASK, mode=replace(TASK.mode, appends=True))
SKIPS = replace(TASK, mode=replace(TASK.mode, skips_damage=True))
BEHIND = replace(APPENDS, first_offset=5)
CLAIM = PartitionClaim(
    target_cluster_id="c", target_topic_id="t", start_offset=0, selection_digest="",
    identity=ProducerIdentity(producer_id=7, epoch=0),
)  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "task"),
    [
        (CLAIM, TASK),
        (replace(CLAIM, start_offset=5), APPENDS),
        (replace(CLAIM, start_offset=5), BEHIND),
        (replace(CLAIM, skipped=("b",)), SKIPS),
        (replace(CLAIM, verified=Contents(records=20, digest=1)), TASK),
        (replace(CLAIM, verified=Contents(records=30, digest=1)), TASK),
        (replace(CLAIM, verified=Contents(records=2, digest=1), skipped=("a",)), SKIPS),
    ],
)
def test_claims_of_a_restore_pass(claim: PartitionClaim, task: RestoreTask) -> None:
    check_claim(claim, task)


@pytest.mark.parametrize(
    ("claim", "task", "told"),
    [
        (replace(CLAIM, start_offset=5), TASK, "begins at offset 5 of a topic that was empty"),
        (replace(CLAIM, start_offset=-1), APPENDS, "begins at offset -1"),
        (replace(CLAIM, start_offset=4), BEHIND, "begins at offset 4, where records of others were: they ended at 5"),
        (replace(CLAIM, skipped=("b",)), TASK, "leaves out 'b' without --skip-damaged"),
        (replace(CLAIM, skipped=("b", "c")), SKIPS, "leaves out 'c', which is not planned"),
        (replace(CLAIM, verified=Contents(records=19, digest=1)), TASK, "19 records of partition 0 were verified, and 20 to 30"),
        (replace(CLAIM, verified=Contents(records=31, digest=1)), TASK, "31 records"),
        (replace(CLAIM, verified=Contents(records=31, digest=1), skipped=("a",)), SKIPS, "31 records"),
    ],
)  # fmt: skip
def test_other_claims_are_refused(claim: PartitionClaim, task: RestoreTask, told: str) -> None:
    with pytest.raises(NotWholeError, match=rf"^control/restores/r/t/0/ \(the newest\): .*{told}"):
        check_claim(claim, task)


JOINT = TopicClaim(
    target_cluster_id="c", target_topic_id="t", start_offsets=(0, 0, 0),
    identities={number: ProducerIdentity(producer_id=7 + number, epoch=0) for number in range(2)},
    verified=TopicContents(
        sources={0: Contents(20, 1), 1: Contents(25, 2)}, targets=(Contents(15, 3), Contents(15, 4), Contents(15, 5))
    ),
)  # fmt: skip
TASKS = [TASK, replace(TASK, partition=1)]


def test_a_claim_on_all_partitions_passes() -> None:
    check_topic_claim(JOINT, TASKS, 3)
    check_topic_claim(
        replace(JOINT, verified=None, start_offsets=(1, 2, 3)), [replace(one, mode=APPENDS.mode) for one in TASKS], 3
    )


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (replace(JOINT, start_offsets=(0, 4, 0)), "begins at offset 4"),
        (replace(JOINT, start_offsets=(0, 0)), "is of 2 partitions, not of 3"),
        (replace(JOINT, identities={0: JOINT.identities[0]}), "one producer id for each partition"),
        (replace(JOINT, identities=dict.fromkeys((0, 1), JOINT.identities[0])), "one producer id for each partition"),
        (replace(JOINT, skipped=("a",)), "without --skip-damaged"),
        (replace(JOINT, verified=TopicContents(sources={0: Contents(20, 1)}, targets=(Contents(20, 1),) * 3)), "tells of other partitions"),
        (replace(JOINT, verified=TopicContents(sources={0: Contents(20, 1), 1: Contents(25, 1)}, targets=(Contents(5, 1),) * 3)), "other records were dealt out"),
        (replace(JOINT, verified=TopicContents(sources={0: Contents(0, 1), 1: Contents(0, 1)}, targets=(Contents(0, 1),) * 3)), "says that 0 records"),
    ],
)  # fmt: skip
def test_another_claim_on_all_partitions_is_refused(claim: TopicClaim, told: str) -> None:
    with pytest.raises(NotWholeError, match=rf"^control/restores/r/t/repartition/ \(the newest\): .*{told}"):
        check_topic_claim(claim, TASKS, 3)
