"""Which life a stretch of time is of, by what is known of each, with clocks that differ."""

import pytest

from archiver.groups.log.lives import AMBIGUOUS, NO_ROOT, NOT_ARCHIVED, PositionSpan, Root, life_at, lives_of

MINUTE = 60_000
HOUR = 60 * MINUTE
SEEN = [Root(0, "", 10 * HOUR), Root(2, "", 20 * HOUR)]


@pytest.mark.parametrize(
    ("from_ms", "until_ms", "life"),
    [
        (8 * HOUR, 9 * HOUR, 0),  # before the first one was seen
        (10 * HOUR - MINUTE - 1, 12 * HOUR, 0),
        (10 * HOUR - MINUTE, 12 * HOUR, AMBIGUOUS),  # by another clock that was behind it
        (11 * HOUR, 12 * HOUR, AMBIGUOUS),  # of a third topic, perhaps
        (11 * HOUR, 20 * HOUR + 2 * MINUTE + 1, 2),
        (11 * HOUR, 20 * HOUR + 2 * MINUTE, AMBIGUOUS),  # removals of the topic before were under way
        (9 * HOUR, 21 * HOUR, AMBIGUOUS),  # a removal was missed
        (22 * HOUR, 23 * HOUR, 2),
        (None, 12 * HOUR, AMBIGUOUS),
        (None, 21 * HOUR, 2),
        (9 * HOUR, None, 0),
    ],
)
def test_a_stretch_alone(from_ms: int | None, until_ms: int | None, life: int) -> None:
    assert lives_of(SEEN, [PositionSpan(from_ms, until_ms)]) == [life]


def test_stretches_follow_each_other_as_lives_do() -> None:
    unsure = PositionSpan(None, None)
    named = PositionSpan(11 * HOUR, 12 * HOUR, 0)
    assert lives_of(SEEN, [unsure, named, unsure, PositionSpan(13 * HOUR, 21 * HOUR), unsure]) == [
        0,
        0,
        AMBIGUOUS,
        2,
        2,
    ]
    assert lives_of(SEEN, [PositionSpan(9 * HOUR, 21 * HOUR), unsure]) == [AMBIGUOUS, AMBIGUOUS]  # it tells of no other
    assert lives_of(SEEN, [PositionSpan(22 * HOUR, 23 * HOUR, NO_ROOT)]) == [AMBIGUOUS]


def test_what_was_archived_of_a_topic_shows_how_long_it_was_there() -> None:
    between = [PositionSpan(11 * HOUR, 15 * HOUR)]
    assert lives_of([Root(0, "", 10 * HOUR, 12 * HOUR), SEEN[1]], between) == [0]
    # Records may be older than their topic, and times may contradict each other.
    assert lives_of([SEEN[0], Root(2, "", 20 * HOUR, 12 * HOUR)], between) == [AMBIGUOUS]
    assert lives_of([Root(0, "", 10 * HOUR, 9 * HOUR), SEEN[1]], [PositionSpan(10 * HOUR - 2 * MINUTE, 12 * HOUR)]) == [
        0
    ]
    assert lives_of([Root(0, "", 10 * HOUR, 21 * HOUR), SEEN[1]], between) == [AMBIGUOUS]
    assert lives_of(SEEN[::-1], between) == [AMBIGUOUS]


def test_a_moment() -> None:
    assert [life_at(SEEN, hour * HOUR, hour * HOUR) for hour in (9, 10, 12, 20, 21)] == [
        0,
        AMBIGUOUS,
        AMBIGUOUS,
        AMBIGUOUS,
        2,
    ]
    assert life_at(SEEN, 9 * HOUR, 10 * HOUR) == AMBIGUOUS  # at some time of that hour
    assert life_at([], 1, 1) == NOT_ARCHIVED
    assert life_at(SEEN[1:], 1, 1) == 2
