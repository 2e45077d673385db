"""What of the groups' positions is set on the target, under which names, and what is listed instead."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topic_changes import record_topic
from archiver.config.model import ArchiverConfig
from archiver.errors import UsageError
from archiver.groups.log.lives import AMBIGUOUS, NOT_ARCHIVED
from archiver.groups.log.position_rows import NO_ROW
from archiver.groups.positions.archived_position import ArchivedPosition, Cause, State
from archiver.groups.target.application_decisions import (
    ApplicationReport,
    Decision,
    GroupReport,
    PositionOutcome,
    WantedPosition,
)
from archiver.groups.target.backup_groups import groups_left_out
from archiver.groups.target.translation import RestoredPartition
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.groups.group_positions import GroupPosition
from archiver.restore.groups.group_restore import GroupPlan, parse_group_renames, plan_group_positions, with_set_earlier
from archiver.restore.groups.removed_positions import Removed, judge_removed
from archiver.restore.groups.restored_partitions import RestoredTopic, RestoredTopics
from archiver.store.address import group_of
from tests.support.memory_store import MemoryStore
from tests.support.offset_maps import map_of


def position(group: str, topic: str = "orders", partition: int = 0, offset: int = 3, **told: Any) -> ArchivedPosition:  # noqa: ANN401 - of any member
    plain = ArchivedPosition(group, topic, 0, partition, State.SET, offset, -1, "", 1, 5, NO_ROW, 1)
    return plain._replace(**told)


def restored_partition(number: int, target: str, root: int) -> RestoredPartition:
    return RestoredPartition(
        root=root,
        held_life=root,
        target=WantedPosition(target, f"id of {target}", number),
        offset_map=map_of(range(2, 10)),
        log_start=0,
        archive_end=10,
    )


def topic_of(
    target: str = "back",
    partitions: Sequence[int] = (0, 1, 2),
    root: int = 0,
    refused: Mapping[int, str] | None = None,
    repartition: int | None = None,
    problem: str = "",
) -> RestoredTopic:
    whole = [] if problem or repartition else [one for one in partitions if one not in (refused or {})]
    return RestoredTopic(
        source="orders",
        root=root,
        target=target,
        topic_id=f"id of {target}",
        partitions=tuple(partitions),
        repartition=repartition,
        problem=problem,
        restored={number: restored_partition(number, target, root) for number in whole},
        refused=refused or {},
    )


def planned(
    positions: Sequence[ArchivedPosition],
    *topics: RestoredTopic,
    renames: Mapping[str, str] | None = None,
    unreadable: Mapping[str, str] | None = None,
) -> GroupPlan:
    restored = RestoredTopics(restore_id="mine", topics=topics, unreadable=unreadable or {})
    return plan_group_positions(
        positions, restored, renames=renames or {}, own_groups={"backup"}, backup_group="backup"
    )


def unset(plan: GroupPlan) -> list[tuple[str, int, str]]:
    return [(str(one.reason), one.position.partition, one.told) for group in plan.groups for one in group.unset]


def test_what_is_wanted_of_each_group() -> None:
    plan = planned(
        [position("b", metadata="kept"), position("a", partition=1), position("backup"), position("b", partition=2)],
        topic_of(),
    )
    assert [(group.group, group.wanted) for group in plan.groups] == [
        ("a", [WantedPosition("back", "id of back", 1, 1, "")]),
        ("b", [WantedPosition("back", "id of back", 0, 1, "kept"), WantedPosition("back", "id of back", 2, 1, "")]),
    ]
    assert [group.without_commit for group in plan.groups] == [(("back", 0), ("back", 2)), (("back", 1),)]
    assert (plan.left_out, plan.is_whole, plan.known_from_ms) == (("backup",), True, None)


def judged(positions: Sequence[ArchivedPosition], asked: Removed, live_id: str = "") -> Sequence[ArchivedPosition]:
    """As the target tells: it has the topic under this id; empty: it has none."""
    archive = Archive(MemoryStore(), Layout())
    for topic_id in ("A", "B"):
        record_topic(archive, topic="orders", topic_id=topic_id, cluster_id="c", partitions=1, configs={})

    class Client:
        async def describe_each(self, names: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
            return {name: SimpleNamespace(topic_id=live_id) for name in names if live_id}, {}

    return asyncio.run(judge_removed(archive, cast("KafkaClient", Client()), asked, positions))


WITH_TOPIC = position("last", state=State.TOPIC_DELETED, removed_ms=9, removed_at=9, cause=Cause.TOPIC_DELETED)
REMOVED = position("deleted", state=State.REMOVED, removed_ms=9, removed_at=9, cause=Cause.GROUP_DELETED)
STALE = REMOVED._replace(group="stale", is_stale=True)


def remarks(plan: GroupPlan) -> dict[str, list[str]]:
    return {group.group: [str(one.kind) for one in found.remarks] for group in plan.groups for found in group.positions}


def test_a_position_that_was_removed_while_its_topic_lived_on_is_named_and_not_set() -> None:
    some = [WITH_TOPIC, REMOVED, STALE, position("stands")]
    gone = planned(judged(some, Removed.AUTO, live_id="B"), topic_of())  # another topic has the name now
    with_topic = "removed with its topic, or as the last one in it"
    assert remarks(gone) == {"last": ["exact", with_topic], "stands": ["exact"]}
    left, there = gone.warnings
    assert left.startswith(
        "removed before then, and not set: 2 positions: deleted in orders-0 (3), stale in orders-0 (?)"
    )
    assert there.startswith(
        "removed before then, with the topic or as the last ones in it, and set all the same: 1 position: last in"
    )

    alive = planned(judged(some, Removed.AUTO, live_id="A"), topic_of())
    assert remarks(alive) == {"stands": ["exact"]}
    assert [one.startswith("removed before then, and not set: 3 positions:") for one in alive.warnings] == [True]
    assert alive.is_whole


def test_removed_positions_are_set_or_left_as_the_command_says() -> None:
    some = [WITH_TOPIC, REMOVED, STALE, position("stands")]
    lived_on = ["exact", "removed while its topic lived on"]
    stands = {"stands": ["exact"]}
    every = planned(judged(some, Removed.SET, live_id="A"), topic_of())
    assert remarks(every) == {"deleted": lived_on, "last": lived_on, **stands}
    assert unset(every) == [("removed", 0, "")]  # where the third one stood is not known
    assert remarks(planned(judged(some, Removed.LEAVE), topic_of())) == stands
    assert judged([position("stands")], Removed.SET) == [position("stands")]


def test_the_group_without_a_name_is_left_out_with_a_warning() -> None:
    positions = [position(""), position("a")]
    own = groups_left_out(
        ArchiverConfig.model_validate(
            {"kafka": {"bootstrap.servers": "x:1"}, "storage": {"url": "s3://bucket/prefix"}}
        ),
        positions,
    )
    restored = RestoredTopics(restore_id="mine", topics=(topic_of(),), unreadable={})
    plan = plan_group_positions(positions, restored, renames={}, own_groups=own, backup_group="backup")
    assert ([one.group for one in plan.groups], plan.is_whole) == (["a"], True)
    assert [one.startswith("the group without a name is skipped") for one in plan.warnings] == [True]
    assert planned([position("a")], topic_of()).warnings == []


def test_a_group_that_committed_nothing_in_restored_topics_gets_nothing() -> None:
    plan = planned([position("a", topic="other"), position("b", state=State.REMOVED)], topic_of())
    assert [(group.group, group.wanted, group.without_commit) for group in plan.groups] == [
        ("a", [], ()),
        ("b", [], ()),
    ]
    assert unset(plan) == [("topic not restored", 0, ""), ("removed", 0, "")]
    assert plan.is_whole


def test_what_is_unknown_names_the_earliest_time_as_of_which_all_is_known() -> None:
    unknown = [
        position("a", partition=number, state=State.UNKNOWN, known_from_ms=known)
        for number, known in enumerate((70, 50, 60))
    ]
    plan = planned(unknown, topic_of())
    assert (plan.is_whole, plan.known_from_ms, plan.groups[0].without_commit) == (False, 70, ())
    assert planned([*unknown, position("b", state=State.UNKNOWN)], topic_of()).known_from_ms is None
    ambiguous = planned([position("a", state=State.AMBIGUOUS, life=AMBIGUOUS)], topic_of())
    assert (unset(ambiguous), ambiguous.is_whole) == ([("ambiguous", 0, "")], False)


def test_an_incomplete_partition_is_reported_and_stops_no_other() -> None:
    positions = [position("a", partition=number) for number in (0, 1, 7)]
    plan = planned(
        [*positions, position("b", state=State.REMOVED, partition=1)], topic_of(refused={1: "gone", 7: "no"})
    )
    assert [one.partition for one in plan.groups[0].wanted] == [0]
    assert unset(plan) == [
        ("partition not restored whole", 1, "gone"),
        ("partition not restored whole", 7, "no"),
        ("removed", 1, ""),
    ]
    assert plan.groups[0].without_commit == (("back", 2),)
    ((why, _, told),) = unset(planned(positions[:1], topic_of(repartition=5)))
    assert why == "topic repartitioned"
    assert "no offset map; stop the group's consumers and reset it to a time before its oldest unread record" in told
    assert unset(planned(positions[:1], topic_of(problem="created again")))[0][2] == "created again"
    assert not planned([position("a")], topic_of(), unreadable={"x": "no plan"}).is_whole


def test_lives_that_were_not_restored_are_listed_and_others_go_each_into_its_target() -> None:
    positions = [position("a", life=life, partition=life) for life in (0, 1, 2)] + [position("a", life=NOT_ARCHIVED)]
    plan = planned(positions, topic_of("old", root=0), topic_of("new", root=1))
    assert [(one.topic, one.partition) for one in plan.groups[0].wanted] == [("old", 0), ("new", 1)]
    assert {(why, number) for why, number, _ in unset(plan)} == {
        ("another life of its topic", 2),
        ("another life of its topic", 0),
    }
    twice = planned([position("a")], topic_of("one"), topic_of("two"))
    assert [one.topic for one in twice.groups[0].wanted] == ["one", "two"]


def test_groups_get_other_names() -> None:
    positions = [position("a"), position("b")]
    renamed = planned(positions, topic_of(), renames={"a": "z"})
    assert [(group.group, group.source) for group in renamed.groups] == [("b", "b"), ("z", "a")]
    swapped = planned(positions, topic_of(), renames={"a": "b", "b": "a"})
    assert [(group.group, group.source) for group in swapped.groups] == [("a", "b"), ("b", "a")]
    for renames, why in (
        ({"a": "b"}, "two groups would both become b"),
        ({"c": "d"}, "not among the groups"),
        ({"a": "backup"}, "a group of the archiver's backups"),
    ):
        with pytest.raises(UsageError, match=why):
            planned(positions, topic_of(), renames=renames)


def test_renames_are_parsed() -> None:
    assert parse_group_renames(["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}
    for texts in (["a"], ["=b"], ["a="], ["a=b", "a=c"]):
        with pytest.raises(UsageError, match="must be OLD=NEW"):
            parse_group_renames(texts)


def test_the_archivers_own_groups_are_known_by_name_and_by_what_they_commit() -> None:
    config = ArchiverConfig.model_validate(
        {"kafka": {"bootstrap.servers": "x:1"}, "storage": {"url": "s3://bucket/prefix"}}
    )
    own = group_of(config)
    hint = "base=7 archive=0123abcd\0"
    positions = [
        *(position(group) for group in (own, f"{own}-a", "archiver-x", "billing")),
        position("other archive", metadata=hint),
        position("other archive", partition=1, metadata="base=8"),
        position("instances", metadata="generation=2 archive=0123abcd\0"),
        position("mixed", metadata=hint),
        position("mixed", partition=1, metadata="mine"),
        position("unknown", offset=-1, state=State.UNKNOWN),
    ]
    assert groups_left_out(config, positions) == {own, f"{own}-a", "other archive", "instances"}


@pytest.mark.parametrize(("at_offset", "why"), [(5, "another life of its topic"), (9, "ambiguous")])
def test_what_is_ambiguous_and_older_than_a_word_of_the_restored_life_is_not_its_last(at_offset: int, why: str) -> None:
    known = position("a", at_offset=7)
    other = position("a", offset=1, state=State.AMBIGUOUS, life=AMBIGUOUS, at_offset=at_offset)
    plan = planned([known, other], topic_of())
    assert [one.position for one in plan.groups[0].positions] == [known]
    assert [str(one.reason) for one in plan.groups[0].unset] == [why]
    assert plan.is_whole is (why != "ambiguous")


def applied(outcome: PositionOutcome, group: str = "a", partition: int = 0) -> ApplicationReport:
    one = Decision("back", "", partition, None, None, outcome, GroupPosition(offset=1))
    groups = [GroupReport(group=group, source_group="a", positions=[one])]
    return ApplicationReport(restore_id="mine", groups=groups, is_rollback=False, is_dry_run=False, expiry_ms=None)


def test_what_an_earlier_run_has_set_is_not_open() -> None:
    ambiguous = position("a", state=State.AMBIGUOUS, life=AMBIGUOUS)
    plan = planned([ambiguous, position("a", partition=1, state=State.UNKNOWN), position("a", partition=2)], topic_of())
    (group,) = plan.groups
    assert [one.place for one in group.untold] == [("back", 0), ("back", 1)]
    for outcome in (PositionOutcome.SET_EARLIER, PositionOutcome.RAN_ON):
        told = with_set_earlier(plan, applied(outcome))
        assert [(why, number) for why, number, _ in unset(told)] == [("set by an earlier run", 0), ("unknown", 1)]
        assert not told.is_whole
        assert with_set_earlier(told, applied(outcome, partition=1)).is_whole
    for other in (applied(PositionOutcome.MOVED), applied(PositionOutcome.SET_EARLIER, group="b")):
        assert with_set_earlier(plan, other) == plan


def test_what_is_set_or_has_no_place_on_the_target_is_not_looked_up() -> None:
    ambiguous = position("a", state=State.AMBIGUOUS, life=AMBIGUOUS, at_offset=9)
    plan = planned([position("a"), ambiguous], topic_of())
    assert plan.groups[0].untold == []
    assert with_set_earlier(plan, applied(PositionOutcome.SET)) == plan
    assert planned([ambiguous], topic_of(refused={0: "gone"})).groups[0].untold == []
    assert planned([ambiguous], topic_of(repartition=5)).groups[0].untold == []
    removed = position("a", state=State.REMOVED)
    assert planned([removed], topic_of()).groups[0].untold == []


@pytest.mark.parametrize(("at_offset", "why"), [(4, "another life of its topic"), (8, "ambiguous")])
def test_where_two_lives_were_restored_it_is_older_than_a_word_of_each(at_offset: int, why: str) -> None:
    """It may be the last word of the one that ended first."""
    known = [position("a", at_offset=5), position("a", life=1, at_offset=9)]
    other = position("a", offset=1, state=State.AMBIGUOUS, life=AMBIGUOUS, at_offset=at_offset)
    plan = planned([*known, other], topic_of("old", root=0), topic_of("new", root=1))
    assert [str(one.reason) for one in plan.groups[0].unset] == [why]
