"""Every state of a position: where it stands, where it is to stand, what was noted of it, and what is then done."""

import pytest

from archiver.groups.target.application_decisions import (
    Decision,
    PositionOutcome,
    WantedPosition,
    decide_application,
    decide_rollback,
    decide_untold,
)
from archiver.groups.target.application_notes import GroupNote, NotedMove, NotedTopic
from archiver.kafka.groups.group_positions import GroupPosition, Positions

BEFORE = GroupPosition(offset=5, leader_epoch=3, metadata="b")
WANTED = GroupPosition(offset=9, metadata="w")
OTHER = GroupPosition(offset=12)
ELSE = GroupPosition(offset=77)


def note_of(
    before: GroupPosition | None,
    wanted: GroupPosition,
    topic_id: str = "id",
    *,
    as_of_ms: int | None = None,
    applied: bool = False,
) -> GroupNote:
    move = NotedMove.of(before, wanted, as_of_ms, applied=applied)
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
        ("before", None, WANTED, PositionOutcome.SET),
        ("wanted", None, WANTED, PositionOutcome.STOOD_THERE),
        # The same was noted.
        ("before", WANTED, WANTED, PositionOutcome.SET),
        ("wanted", WANTED, WANTED, PositionOutcome.SET_EARLIER),
        ("else", WANTED, WANTED, PositionOutcome.MOVED),
        # Something else was noted.
        ("before", OTHER, WANTED, PositionOutcome.SET),
        ("other", OTHER, WANTED, PositionOutcome.OTHER_WANTED),
        ("wanted", OTHER, WANTED, PositionOutcome.STOOD_THERE),
        ("else", OTHER, WANTED, PositionOutcome.MOVED),
    ],
)
def test_what_an_application_does(
    before: GroupPosition | None,
    stands: str,
    noted: GroupPosition | None,
    wanted: GroupPosition,
    outcome: PositionOutcome,
) -> None:
    now = {"before": before, "wanted": WANTED, "other": OTHER, "else": ELSE}[stands]
    found = applied(now, None if noted is None else note_of(before, noted), wanted)
    assert found.outcome is outcome
    assert found.wanted == wanted
    assert found.before == (now if noted is None else before)


def test_a_position_that_is_gone_stands_elsewhere() -> None:
    """Positions of a group that nobody joins expire: where it had one before, nobody knows what became of it."""
    assert applied(None, note_of(BEFORE, WANTED), WANTED).outcome is PositionOutcome.MOVED


def test_wanted_where_it_stood_before_needs_nothing() -> None:
    asked = GroupPosition(offset=BEFORE.offset, metadata=BEFORE.metadata)
    assert applied(BEFORE, note_of(BEFORE, WANTED), asked).outcome is PositionOutcome.STOOD_THERE
    assert applied(WANTED, note_of(BEFORE, WANTED), asked).outcome is PositionOutcome.OTHER_WANTED


def test_other_metadata_are_another_position() -> None:
    ran_on = GroupPosition(offset=WANTED.offset, metadata="of a consumer")
    assert applied(ran_on, note_of(BEFORE, WANTED), WANTED).outcome is PositionOutcome.MOVED


def test_an_epoch_alone_is_no_other_position() -> None:
    now = GroupPosition(offset=WANTED.offset, leader_epoch=4, metadata=WANTED.metadata)
    assert applied(now, note_of(BEFORE, WANTED), WANTED).outcome is PositionOutcome.SET_EARLIER


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        (ELSE, PositionOutcome.RAN_ON),
        (GroupPosition(offset=WANTED.offset, metadata="of a consumer"), PositionOutcome.RAN_ON),
        (GroupPosition(offset=WANTED.offset - 1), PositionOutcome.MOVED),
        (None, PositionOutcome.MOVED),  # expired: where it had come to, nobody knows
        (WANTED, PositionOutcome.SET_EARLIER),
        (BEFORE, PositionOutcome.SET),  # below: somebody has put it back
    ],
)
def test_a_group_seen_at_the_wanted_position_ran_on_from_it(
    now: GroupPosition | None, outcome: PositionOutcome
) -> None:
    assert applied(now, note_of(BEFORE, WANTED, applied=True), WANTED).outcome is outcome
    assert applied(now, note_of(BEFORE, WANTED), WANTED).outcome is (
        PositionOutcome.MOVED if outcome is PositionOutcome.RAN_ON else outcome
    )


def test_a_group_that_ran_on_to_its_former_position_is_not_moved() -> None:
    """As to the end of the log, where a group stood that was set to read again."""
    end = GroupPosition(offset=50)
    assert applied(end, note_of(end, WANTED), WANTED).outcome is PositionOutcome.SET
    assert applied(end, note_of(end, WANTED, applied=True), WANTED).outcome is PositionOutcome.RAN_ON
    assert applied(end, note_of(end, OTHER, applied=True), WANTED).outcome is PositionOutcome.MOVED


def test_a_group_already_at_the_wanted_position_is_unchanged() -> None:
    note = note_of(WANTED, WANTED, applied=True)
    assert applied(WANTED, note, WANTED).outcome is PositionOutcome.STOOD_THERE
    assert applied(ELSE, note, WANTED).outcome is PositionOutcome.RAN_ON
    assert applied(WANTED, note, OTHER).outcome is PositionOutcome.SET


def untold(now: GroupPosition | None, note: GroupNote | None, as_of_ms: int | None = None) -> list[Decision]:
    return decide_untold([WantedPosition("orders", "id", 0, -1)], held(now), note, {"orders": "id"}, as_of_ms)


def test_positions_lost_from_the_archive_come_from_the_note() -> None:
    note = note_of(BEFORE, WANTED, as_of_ms=5, applied=True)
    assert untold(WANTED, note, 5) == [Decision("orders", "id", 0, BEFORE, WANTED, PositionOutcome.SET_EARLIER)]
    assert untold(ELSE, note, 5) == [Decision("orders", "id", 0, BEFORE, WANTED, PositionOutcome.RAN_ON)]
    # Seen where it is to stand, it was set, though that was not noted any more.
    assert [one.outcome for one in untold(WANTED, note_of(BEFORE, WANTED))] == [PositionOutcome.SET_EARLIER]


def test_a_note_that_does_not_prove_it_tells_nothing() -> None:
    note = note_of(BEFORE, WANTED, as_of_ms=5, applied=True)
    assert untold(WANTED, None) == []
    assert untold(BEFORE, note, 5) == []  # nothing is set by a note alone
    assert untold(GroupPosition(offset=WANTED.offset - 1), note, 5) == []
    assert untold(ELSE, note_of(BEFORE, WANTED, as_of_ms=5), 5) == []
    for as_of_ms in (6, None):  # that run was asked for another time
        assert untold(WANTED, note, as_of_ms) == []
    assert untold(WANTED, note_of(BEFORE, WANTED, "another", as_of_ms=5, applied=True), 5) == []


@pytest.mark.parametrize("live", ["another", ""])
def test_a_topic_that_is_another_one_is_left_alone(live: str) -> None:
    assert applied(None, None, WANTED, live).outcome is PositionOutcome.OTHER_TOPIC


def test_a_note_does_not_count_for_another_topic_of_the_name() -> None:
    """With it, a position that is elsewhere would be left alone."""
    found = applied(ELSE, note_of(BEFORE, WANTED, topic_id="deleted since"), WANTED)
    assert (found.outcome, found.before) == (PositionOutcome.SET, ELSE)


def test_topics_without_ids_are_told_by_their_names() -> None:
    asked = WantedPosition("orders", "", 0, 9, "w")
    (found,) = decide_application([asked], {}, note_of(None, WANTED, ""), {"orders": ""})
    assert found.outcome is PositionOutcome.SET
    (found,) = decide_application([asked], held(ELSE), note_of(None, WANTED, ""), {"orders": ""})
    assert found.outcome is PositionOutcome.MOVED
    (gone,) = decide_application([asked], {}, None, {})
    assert gone.outcome is PositionOutcome.OTHER_TOPIC


@pytest.mark.parametrize("before", [BEFORE, None])
@pytest.mark.parametrize(
    ("stands", "outcome"),
    [("wanted", PositionOutcome.SET), ("before", PositionOutcome.STOOD_THERE), ("else", PositionOutcome.MOVED)],
)
def test_what_a_rollback_does(before: GroupPosition | None, stands: str, outcome: PositionOutcome) -> None:
    now = {"before": before, "wanted": WANTED, "else": ELSE}[stands]
    (found,) = decide_rollback(note_of(before, WANTED), held(now), {"orders": "id"})
    assert (found.outcome, found.before, found.wanted) == (outcome, WANTED, before)
    (found,) = decide_rollback(note_of(before, WANTED), held(now), {"orders": "another"})
    assert found.outcome is PositionOutcome.OTHER_TOPIC
