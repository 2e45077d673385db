"""Which topics the reading of the archive keeps from being purged."""

import pytest

from archiver.archive.segments.parts import ObjectPart
from archiver.codec.selection import ALL_RECORDS
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from archiver.restore.purge.purge import ArchiveReading, Damage, Purge, damage_problems

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
