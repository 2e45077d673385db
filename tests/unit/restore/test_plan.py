"""Which partitions of a topic are planned."""

import pytest

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.notes.topics import Life, TopicFact
from archiver.codec.selection import TopicSelection
from archiver.errors import UsageError
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import check_partitions, plan_restore, told_beside

FAR = 999_999


def topic(*partitions: int, noted: int | None, **configs: str) -> ArchivedTopic:
    life = Life(life=0, topic_id="id")
    fact = noted and TopicFact(topic="t", cluster_id="c", partitions=noted, configs=configs, lives=(life,))
    found = dict.fromkeys(partitions, EMPTY_PARTITION)
    return ArchivedTopic(topic="t", life=0, fact=fact or None, partitions=found, damaged={}, other_lives=())


@pytest.mark.parametrize("noted", [4, None])
def test_a_partition_number_that_no_topic_has_is_reported_and_not_planned(noted: int | None) -> None:
    archive = [topic(0, 5, FAR, noted=noted)]
    plan = plan_restore(archive, {"t": "t"})
    assert [one.partition for one in plan[0].partitions] == list(range(6))
    (told,) = told_beside(archive, plan, RestoreRequest())
    assert told.startswith(f"t: partition {FAR}: not restored: ")
    assert not list(told_beside(archive, plan, RestoreRequest(wanted=TopicSelection(partitions=frozenset({0})))))


def test_partitions_that_a_note_does_not_have_yet_are_planned() -> None:
    archive = [topic(0, 9_000, noted=4)]
    plan = plan_restore(archive, {"t": "t"})
    assert len(plan[0].partitions) == 9_001
    assert not list(told_beside(archive, plan, RestoreRequest()))


ARCHIVED = {"retention.ms": "7", "retention.bytes": "8", "segment.ms": "9"}


@pytest.mark.parametrize(
    ("asked", "final", "retention"),
    [
        ({}, {"segment.ms": "9"}, {"retention.ms": "7", "retention.bytes": "8"}),
        ({"segment.ms": "1", "x": "2"}, {"segment.ms": "1", "x": "2"}, {"retention.ms": "7", "retention.bytes": "8"}),
        ({"segment.ms": "", "y": ""}, {}, {"retention.ms": "7", "retention.bytes": "8"}),
        ({"retention.ms": "1"}, {"segment.ms": "9", "retention.ms": "1"}, {"retention.bytes": "8"}),
        ({"retention.ms": ""}, {"segment.ms": "9"}, {"retention.bytes": "8"}),
    ],
)
def test_target_configs_stand_in_place_of_the_archived_ones(
    asked: dict[str, str], final: dict[str, str], retention: dict[str, str]
) -> None:
    (plan,) = plan_restore([topic(0, noted=1, **ARCHIVED)], {"t": "t"}, RestoreRequest(target_configs=asked))
    assert (plan.final_configs, plan.archived_retention) == (final, retention)


def test_an_archived_config_with_an_empty_value_comes_back() -> None:
    """With an empty cleanup.policy, brokers that take one neither delete nor compact; their default deletes."""
    archived = topic(0, noted=1, **{"cleanup.policy": ""})
    (plan,) = plan_restore([archived], {"t": "t"}, RestoreRequest())
    assert plan.final_configs == {"cleanup.policy": ""}


@pytest.mark.parametrize(
    "wanted", [TopicSelection(partitions=frozenset({0, 7})), TopicSelection(offsets={7: (0, 5)})], ids=str
)
def test_partitions_that_no_topic_has_are_refused(wanted: TopicSelection) -> None:
    plan = plan_restore([topic(0, noted=2)], {"t": "t"})
    check_partitions(plan, RestoreRequest(wanted=TopicSelection(partitions=frozenset({1}))))
    with pytest.raises(UsageError, match="no topic that is restored has partition 7; they have 0 to 1"):
        check_partitions(plan, RestoreRequest(wanted=wanted))
