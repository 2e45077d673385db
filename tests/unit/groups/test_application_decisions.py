"""Every state of a position: where it stands, where it is to stand, what was noted of it, and what is then done."""

import pytest

from archiver.groups.application_decisions import Decision, Outcome, decide_application, decide_rollback
from archiver.groups.application_notes import GroupNote, NotedMove, NotedTopic
from archiver.groups.wanted_positions import WantedGroup, WantedPosition
from archiver.kafka.group_positions import GroupPosition, Positions

BEFORE = GroupPosition(offset=5, leader_epoch=3, metadata="b")
WANTED = GroupPosition(offset=9, metadata="w")
OTHER = GroupPosition(offset=12)
ELSE = GroupPosition(offset=77)


def note_of(before: GroupPosition | None, wanted: GroupPosition, topic_id: str = "id") -> GroupNote:
    move = NotedMove.of(before, wanted)
    topics = {"orders": NotedTopic(topic_id=topic_id, partitions={0: move})}
    return GroupNote(target_cluster_id="c", group="g", source_group="s", topics=topics)


def held(position: GroupPosition | None) -> Positions:
    return {} if position is None else {("orders", 0): position}


def applied(now: GroupPosition | None, note: GroupNote | None, wanted: GroupPosition, live: str = "id") -> Decision:
    asked = WantedPosition("orders", "id", 0, wanted.offset, wanted.metadata)
    (decision,) = decide_application([asked], held(now), note, {"orders": live})
    return decision


@pytest.mark.parametrize("before", [BEFORE, None])
@pytest.mark.parametrize(
    ("stands", "noted", "wanted", "outcome"),
    [
        # Nothing is noted.
        ("before", None, WANTED, Outcome.SET),
        ("wanted", None, WANTED, Outcome.STOOD_THERE),
        # The same was noted.
        ("before", WANTED, WANTED, Outcome.SET),
        ("wanted", WANTED, WANTED, Outcome.SET_EARLIER),
        ("else", WANTED, WANTED, Outcome.MOVED),
        # Something else was noted.
        ("before", OTHER, WANTED, Outcome.SET),
        ("other", OTHER, WANTED, Outcome.OTHER_WANTED),
        ("wanted", OTHER, WANTED, Outcome.STOOD_THERE),
        ("else", OTHER, WANTED, Outcome.MOVED),
    ],
)
def test_what_an_application_does(
    before: GroupPosition | None, stands: str, noted: GroupPosition | None, wanted: GroupPosition, outcome: Outcome
) -> None:
    now = {"before": before, "wanted": WANTED, "other": OTHER, "else": ELSE}[stands]
    found = applied(now, None if noted is None else note_of(before, noted), wanted)
    assert found.outcome is outcome
    assert found.wanted == wanted
    assert found.before == (now if noted is None else before)


def test_a_position_that_is_gone_stands_elsewhere() -> None:
    """Positions of a group that nobody joins expire: where it had one before, nobody knows what became of it."""
    assert applied(None, note_of(BEFORE, WANTED), WANTED).outcome is Outcome.MOVED


def test_wanted_where_it_stood_before_needs_nothing() -> None:
    asked = GroupPosition(offset=BEFORE.offset, metadata=BEFORE.metadata)
    assert applied(BEFORE, note_of(BEFORE, WANTED), asked).outcome is Outcome.STOOD_THERE
    assert applied(WANTED, note_of(BEFORE, WANTED), asked).outcome is Outcome.OTHER_WANTED


def test_other_metadata_are_another_position() -> None:
    ran_on = GroupPosition(offset=WANTED.offset, metadata="of a consumer")
    assert applied(ran_on, note_of(BEFORE, WANTED), WANTED).outcome is Outcome.MOVED


def test_an_epoch_alone_is_no_other_position() -> None:
    now = GroupPosition(offset=WANTED.offset, leader_epoch=4, metadata=WANTED.metadata)
    assert applied(now, note_of(BEFORE, WANTED), WANTED).outcome is Outcome.SET_EARLIER


@pytest.mark.parametrize("live", ["another", ""])
def test_a_topic_that_is_another_one_is_left_alone(live: str) -> None:
    assert applied(None, None, WANTED, live).outcome is Outcome.OTHER_TOPIC


def test_a_note_does_not_count_for_another_topic_of_the_name() -> None:
    """With it, a position that is elsewhere would be left alone."""
    found = applied(ELSE, note_of(BEFORE, WANTED, topic_id="deleted since"), WANTED)
    assert (found.outcome, found.before) == (Outcome.SET, ELSE)


def test_topics_without_ids_are_told_by_their_names() -> None:
    asked = WantedPosition("orders", "", 0, 9, "w")
    (found,) = decide_application([asked], {}, note_of(None, WANTED, ""), {"orders": ""})
    assert found.outcome is Outcome.SET
    (found,) = decide_application([asked], held(ELSE), note_of(None, WANTED, ""), {"orders": ""})
    assert found.outcome is Outcome.MOVED
    (gone,) = decide_application([asked], {}, None, {})
    assert gone.outcome is Outcome.OTHER_TOPIC


@pytest.mark.parametrize("before", [BEFORE, None])
@pytest.mark.parametrize(
    ("stands", "outcome"),
    [("wanted", Outcome.SET), ("before", Outcome.STOOD_THERE), ("else", Outcome.MOVED)],
)
def test_what_a_rollback_does(before: GroupPosition | None, stands: str, outcome: Outcome) -> None:
    now = {"before": before, "wanted": WANTED, "else": ELSE}[stands]
    (found,) = decide_rollback(note_of(before, WANTED), held(now), {"orders": "id"})
    assert (found.outcome, found.before, found.wanted) == (outcome, WANTED, before)
    (found,) = decide_rollback(note_of(before, WANTED), held(now), {"orders": "another"})
    assert found.outcome is Outcome.OTHER_TOPIC


def test_what_no_group_can_be_asked_to_be() -> None:
    ordinary = WantedPosition("orders", "id", 0, 9)
    for wrong in (
        [ordinary, ordinary._replace(offset=10)],
        [ordinary._replace(offset=-1)],
        [ordinary, ordinary._replace(topic_id="another", partition=1)],
    ):
        with pytest.raises(ValueError, match=r"orders"):
            WantedGroup(source_group="s", positions=wrong)
