"""What is asked of topics that were dealt out by key, and what becomes of the plan by the answers."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import pytest

from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.codec.selection import LAST_LONG
from archiver.config.model import ArchiverConfig
from archiver.errors import NotWholeError
from archiver.groups.approximation import DealtPosition
from archiver.groups.archived_position import State
from archiver.groups.shown import PositionFilter
from archiver.groups.translation import Fork
from archiver.kafka.settings import KafkaSettings
from archiver.restore.claims import TopicClaim
from archiver.restore.dealt_groups import dealt_topics, with_dealt
from archiver.restore.dealt_positions import DealtPositions, DealtTopic
from archiver.restore.group_restore import GroupPlan, GroupRequest
from archiver.restore.notes import RestoreNotes
from archiver.restore.plan import TopicPlan
from archiver.restore.source_lives import SourceLives, SourcePartition
from tests.support.memory_store import MemoryStore
from tests.unit.restore.test_dealt_positions import CLAIM, TOPIC, partition
from tests.unit.restore.test_group_restore import planned, position, topic_of, unset

DEALT: Final = topic_of("back", repartition=2)
OTHER: Final = topic_of("copy", repartition=2)
PLANS: Final = {
    name: replace(TOPIC.plan, target=name, partitions=tuple(partition(number) for number in range(3)))
    for name in ("back", "copy")
}
CONFIG: Final = ArchiverConfig.model_validate(
    {"kafka": {"bootstrap.servers": "a:1"}, "storage": {"url": "s3://bucket"}, "topics": {"include": ["orders"]}}
)
ASKED: Final = GroupRequest(
    config=CONFIG,
    wanted=PositionFilter(as_of_ms=LAST_LONG, groups=re.compile(".*"), topics=re.compile(".*")),
    renames={},
    is_approximate=True,
)


def answer(topic: str = "back", groups: Collection[str] = ("a",), **told: object) -> DealtPositions:
    positions = [DealtPosition(4, 1, 0), DealtPosition(7, 0, 2)]
    return replace(DealtPositions(topic=topic, groups=dict.fromkeys(groups, positions)), **told)  # type: ignore[arg-type]


def wanted(plan: GroupPlan) -> dict[str, list[tuple[str, int, int]]]:
    return {group.group: [(one.topic, one.partition, one.offset) for one in group.wanted] for group in plan.groups}


def test_what_was_found_is_set_and_no_longer_listed() -> None:
    plan = planned([position("a"), position("a", partition=2), position("b", state=State.REMOVED)], DEALT)
    found = with_dealt(plan, [answer()], PLANS)
    assert wanted(found) == {"a": [("back", 0, 4), ("back", 1, 7)], "b": []}
    assert (unset(found), found.is_whole) == ([("removed", 0, "")], True)
    (dealt,) = found.groups[0].dealt
    assert (dealt.source, dealt.topic_id, dealt.read_again, dealt.deleted) == ("orders", "id of back", 1, 2)


def test_each_of_two_targets_has_its_own_answer() -> None:
    """Of one source, by two runs with one id."""
    plan = planned([position("a")], DEALT, OTHER)
    assert len(plan.open) == 2
    both = with_dealt(plan, [answer(), answer("copy")], PLANS)
    assert (len(wanted(both)["a"]), both.open) == (4, [])
    assert {topic for topic, _, _ in wanted(both)["a"]} == {"back", "copy"}
    one = with_dealt(plan, [answer("copy")], PLANS)
    assert [(left.target.topic if left.target else "", str(left.reason)) for left in one.open] == [
        ("back", "topic repartitioned")
    ]


def test_what_was_not_found_is_refused_with_the_reason() -> None:
    positions = [position("a"), position("a", partition=1), position("a", partition=9), position("b", partition=9)]
    plan = planned(positions, DEALT)
    broken = with_dealt(plan, [answer(groups=(), error="an object is gone", exit_code=3)], PLANS)
    assert wanted(broken) == {"a": [], "b": []}
    assert {(why, told) for why, _, told in unset(broken)} == {("partition not restored whole", "an object is gone")}
    some = with_dealt(plan, [answer(refused=(1,))], PLANS)
    assert wanted(some) == {"a": [("back", 0, 4), ("back", 1, 7)], "b": []}
    left = "that restore has dealt out no record of this partition"
    assert unset(some) == [("partition not restored whole", number, left) for number in (1, 9, 9)]
    assert not some.is_whole


# --- what is asked


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> dict[str, TopicClaim]:
    """What the restore has noted: claims by target."""
    claims = {name: replace(CLAIM, target_topic_id=f"id of {name}") for name in ("back", "copy")}

    def claims_of(_: RestoreNotes, targets: Mapping[str, str]) -> dict[str, TopicClaim]:
        return {name: claim for name, claim in claims.items() if targets.get(name) == claim.target_topic_id}

    monkeypatch.setattr(RestoreNotes, "topic_claims", claims_of)
    return claims


def ask(plan: GroupPlan, plans: Mapping[str, TopicPlan] = PLANS) -> tuple[dict[str, DealtTopic], list[DealtPositions]]:
    kafka = KafkaSettings.parse({"bootstrap.servers": "a:1"})
    found, refused = dealt_topics(Archive(MemoryStore(), Layout()), kafka, ASKED, plan, plans)
    return {one.target: one for one in found}, refused


def test_groups_are_asked_for_by_their_names_on_the_target(noted: dict[str, TopicClaim]) -> None:
    positions = [
        position("a", offset=3),
        position("a", partition=1, offset=5),
        position("a", partition=2, state=State.UNKNOWN),  # counts as the beginning
        position("a", partition=9, offset=7),  # which that restore does not have
        position("b", topic="elsewhere"),
    ]
    plan = planned(positions, DEALT, OTHER, renames={"a": "z"})
    found, refused = ask(plan)
    assert (set(found), refused) == ({"back", "copy"}, [])
    assert found["back"].committed == found["copy"].committed == {"z": {0: 3, 1: 5}}
    assert (found["back"].claim, found["back"].plan) == (noted["back"], PLANS["back"])
    assert found["back"].groups == ("z",)


def test_what_this_run_has_not_planned_or_nobody_has_claimed_is_not_asked(noted: dict[str, TopicClaim]) -> None:
    plan = planned([position("a")], DEALT, OTHER)
    assert ask(plan, {"copy": PLANS["copy"]})[0].keys() == {"copy"}
    noted.pop("copy")
    assert ask(plan)[0].keys() == {"back"}
    noted["back"] = replace(CLAIM, target_topic_id="another topic's")
    assert ask(plan)[0] == {}
    assert ask(planned([position("a")], topic_of("back"), topic_of("copy", problem="gone", repartition=2)))[0] == {}


def test_positions_above_a_branch_are_those_of_the_log_that_was_restored(
    noted: dict[str, TopicClaim], monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = Fork(life=1, offset=4, seen_ms=7, child_epoch=3, child_first=4, parent_epoch=2, parent_next=9)
    monkeypatch.setattr(SourceLives, "partition", lambda *_: SourcePartition(1, 20, (fork,)))
    positions = [position("a", offset=8, leader_epoch=2), position("b", offset=8, leader_epoch=3)]
    found, _ = ask(planned(positions, DEALT))
    assert found["back"].committed == {"a": {0: 4}, "b": {0: 8}}
    assert noted


def test_what_is_wrong_with_one_topic_stops_no_other(
    noted: dict[str, TopicClaim], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted.pop("copy")

    def fail(*_: object) -> SourcePartition:
        raise NotWholeError("a control fact is damaged")

    monkeypatch.setattr(SourceLives, "partition", fail)
    found, (refused,) = ask(planned([position("a")], DEALT))
    assert (found, refused.topic, refused.error, refused.exit_code) == ({}, "back", "a control fact is damaged", 3)
