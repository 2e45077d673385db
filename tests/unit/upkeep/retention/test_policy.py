"""Which policy a sweep goes by: against what was in force at each single moment of the time of grace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.policies import NotedPolicy
from archiver.upkeep.retention.limits import Limits, limits_of
from archiver.upkeep.retention.policy import policy_in_force

numbers = st.sampled_from(["-1", "0", "5", "9", "100"])
policies = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["delete", "delete", "delete", "compact", "compact,delete"]),
        "retention.ms": numbers,
        "retention.bytes": numbers,
    }
)


def noted(effective: dict[str, str], since_ms: int) -> NotedPolicy:
    return NotedPolicy(topic="t", topic_id="T", effective=effective, since_ms=since_ms)


def keeps(limits: Limits, age_ms: int, behind: int) -> bool:
    return (limits.ms is None or age_ms <= limits.ms) and (limits.bytes is None or behind < limits.bytes)


@given(
    st.dictionaries(st.integers(0, 40), policies, min_size=1, max_size=5).map(
        lambda one: sorted(one.items(), key=lambda row: row[0])
    ),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_the_longest_of_each_moment_of_grace_counts(
    history: list[tuple[int, dict[str, str]]], later: int, grace_ms: int
) -> None:
    now_ms = history[-1][0] + later
    seen = [noted(effective, since) for since, effective in history]
    found = policy_in_force(seen, now_ms, grace_ms)
    of_moments = []
    for moment in range(now_ms - grace_ms, now_ms + 1):
        before = [one for one in seen if one.since_ms <= moment]
        of_moments += [limits_of(before[-1].effective)] if before else []
    for name in ("ms", "bytes"):
        values = [getattr(one, name) for one in of_moments]
        assert getattr(found, name) == (None if None in values else max(values))


@given(st.lists(st.tuples(st.integers(0, 9), policies), min_size=1, max_size=4), st.integers(0, 20), st.integers(0, 9))
def test_what_the_newest_keeps_is_kept(rows: list[tuple[int, dict[str, str]]], now_ms: int, grace_ms: int) -> None:
    """Also where several were noted in one millisecond, or the clock is behind what was noted; and a longer grace keeps no less."""
    seen = [noted(effective, since) for since, effective in sorted(rows, key=lambda row: row[0])]
    found = policy_in_force(seen, now_ms, grace_ms)
    newest, longer = limits_of(seen[-1].effective), policy_in_force(seen, now_ms, grace_ms + 5)
    for age_ms in (0, 3, 5, 7, 9, 50, 100, 101):
        for behind in (0, 4, 5, 8, 9, 99, 100):
            assert not keeps(newest, age_ms, behind) or keeps(found, age_ms, behind)
            assert not keeps(found, age_ms, behind) or keeps(longer, age_ms, behind)


def test_a_purge_by_config_counts_when_the_grace_is_over() -> None:
    week, purge = (
        {"cleanup.policy": "delete", "retention.ms": ms, "retention.bytes": "-1"} for ms in ("604800000", "1000")
    )
    seen = [noted(week, 0), noted(purge, 100)]
    assert policy_in_force(seen, 149, 50) == Limits(ms=604800000)
    assert policy_in_force(seen, 150, 50) == Limits(ms=1000)
    assert policy_in_force([*seen, noted(week, 120)], 1000, 50) == Limits(ms=604800000)
    assert policy_in_force(seen[1:], 100, 50) == Limits(ms=1000)  # nothing else was ever seen


def test_what_does_not_tell_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was noted"):
        policy_in_force([], 0, 0)
    unknown = noted({"cleanup.policy": "delete", "retention.ms": "1"}, 0)
    known = noted({"cleanup.policy": "delete", "retention.ms": "1", "retention.bytes": "1"}, 10)
    with pytest.raises(ValueError, match=r"retention\.bytes is not known"):
        policy_in_force([unknown, known], 15, 10)
    assert policy_in_force([unknown, known], 25, 10) == Limits(ms=1, bytes=1)
