"""Which topics the reading of the archive, or their growth, keeps from being purged."""

import pytest

from archiver.archive.segments.parts import ObjectPart
from archiver.codec.selection import ALL_RECORDS
from archiver.kafka.brokers.cluster import PartitionOffsets
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from archiver.restore.purge.purge_checks import ArchiveReading, Damage, Purge, damage_problems, grown_problems

PARTITION = PartitionPlan(
    partition=0, parts=(ObjectPart("a", 0),), stored_bytes=1, records=5, selection=ALL_RECORDS, selection_digest=""
)
PURGE = Purge(topic_ids={"purged": "A"})


def plan(target: str) -> TopicPlan:
    return TopicPlan(
        source="t", life=0, target=target, partitions=(PARTITION,), final_configs={}, archived_retention={}
    )


@pytest.mark.parametrize(
    ("reading", "skips", "told"),
    [
        (ArchiveReading(filled={"purged"}), False, []),
        (ArchiveReading(), False, ["no record of the archive is among what is asked for"]),
        (ArchiveReading([Damage("purged", 0, "a is cut")], {"purged"}), False, ["cannot replace it, a is cut"]),
        (ArchiveReading([Damage("purged", 0, "a is cut")], {"purged"}), True, []),
    ],
)
def test_only_purged_topics_need_a_replacement(reading: ArchiveReading, skips: bool, told: list[str]) -> None:
    """Others were restored by an earlier run, or are created: nothing was read for them."""
    problems = damage_problems([plan("restored"), plan("purged")], reading, PURGE, skips_damage=skips)
    assert [one in problem for one, problem in zip(told, problems, strict=True)] == [True] * len(told)


def ends(*offsets: int) -> dict[int, PartitionOffsets]:
    return {
        number: PartitionOffsets(log_start=0, high_watermark=end, last_stable=end, leader_epoch=0)
        for number, end in enumerate(offsets)
    }


@pytest.mark.parametrize(
    ("now", "grown"),
    [((100, 100), 0), ((90, 100), 0), ((100, 110), 10), ((90, 110), 10), ((100, 100, 3), 3)],
    ids=["as before", "truncated", "grown", "truncated and grown", "a new partition"],
)
def test_a_topic_that_grew_in_any_partition_is_not_purged(now: tuple[int, ...], grown: int) -> None:
    problems = grown_problems({"purged": ends(100, 100)}, {"purged": ends(*now)})
    assert [f"{grown} records came since" in problem for problem in problems] == [True] * bool(grown)
