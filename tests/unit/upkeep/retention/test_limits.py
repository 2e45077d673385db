"""What a topic keeps, as Kafka reads its configs; the longest of several; floors and factors."""

from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits, limits_of, longest, widened

MOST = 2**63 - 1
values = st.none() | st.integers(0, MOST)
any_limits = st.builds(Limits, ms=values, bytes=values)


def configs(policy: str = "delete", ms: str = "604800000", size: str = "-1") -> Mapping[str, str]:
    return {"cleanup.policy": policy, "retention.ms": ms, "retention.bytes": size}


@pytest.mark.parametrize(
    ("effective", "kept"),
    [
        (configs(), Limits(ms=604800000)),
        (configs(ms="-1"), FOR_EVER),
        (configs(ms="0"), Limits(ms=0)),
        (configs(size="0"), Limits(ms=604800000, bytes=0)),
        (configs(ms="-1", size="1073741824"), Limits(bytes=1073741824)),
        (configs(ms=str(MOST), size=str(MOST)), Limits(ms=MOST, bytes=MOST)),
        (configs("compact", "1", "1"), FOR_EVER),
        (configs("compact,delete", "1", "1"), Limits(ms=1, bytes=1)),
        (configs("compact, delete", "1", "1"), Limits(ms=1, bytes=1)),
        (configs("delete,compact", "1", "1"), Limits(ms=1, bytes=1)),
        (configs("", "1", "1"), FOR_EVER),
        (configs("DELETE", "1", "1"), FOR_EVER),
        (configs("undeleted", "1", "1"), FOR_EVER),
        ({**configs(), "local.retention.ms": "1"}, Limits(ms=604800000)),
    ],
)
def test_a_topic_keeps_what_kafka_keeps(effective: Mapping[str, str], kept: Limits) -> None:
    assert limits_of(effective) == kept


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.ms", "retention.bytes"])
def test_what_is_not_known_is_no_limit(name: str) -> None:
    """A config that was refused or hidden is absent, and absence is no proof."""
    effective = {one: value for one, value in configs().items() if one != name}
    with pytest.raises(ValueError, match=f"^{name} is not known$"):
        limits_of(effective)


@pytest.mark.parametrize(
    "value", ["", "-2", "1.0", "1e3", "+1", " 1", "1_000", "01", "\u0661", str(MOST + 1), "null", "9" * 5000]
)
@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
def test_what_is_no_number_is_no_limit(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} is '") as raised:
        limits_of({**configs(), name: value})
    assert len(str(raised.value)) < 100


def is_kept(limits: Limits, age_ms: int, behind: int) -> bool:
    """Whether an object stays, by the rules: both limits must keep it."""
    return not (limits.ms is not None and age_ms > limits.ms) and not (
        limits.bytes is not None and behind >= limits.bytes
    )


@given(st.lists(any_limits, min_size=1, max_size=4), st.integers(0, MOST), st.integers(0, MOST))
def test_the_longest_keeps_whatever_any_keeps(several: list[Limits], age_ms: int, behind: int) -> None:
    assert is_kept(longest(several), age_ms, behind) or not any(is_kept(one, age_ms, behind) for one in several)
    of_each = [[one.ms for one in several], [one.bytes for one in several]]
    ends = [None if None in found else max(one for one in found if one is not None) for found in of_each]
    assert longest(several) == Limits(ms=ends[0], bytes=ends[1])


def test_of_nothing_the_longest_is_for_ever() -> None:
    assert longest([]) == FOR_EVER
    assert FOR_EVER.keeps_all
    assert not Limits(ms=0).keeps_all
    assert not Limits(bytes=0).keeps_all
    assert [str(one) for one in (FOR_EVER, Limits(floor_ms=3), Limits(ms=0), Limits(ms=1, bytes=2, floor_ms=3))] == [
        "for ever", "for ever", "retention.ms 0", "retention.ms 1, retention.bytes 2, retention.floor 3",
    ]  # fmt: skip


@given(any_limits, st.floats(0, 1e9))
@example(Limits(ms=2**53 + 1, bytes=MOST), 1.0)  # as a float, both would be other numbers
@example(Limits(ms=10, bytes=10), 0.5)
def test_who_widens_keeps_no_less(limits: Limits, factor: float) -> None:
    wider = widened(limits, factor)
    for value, found in ((limits.ms, wider.ms), (limits.bytes, wider.bytes)):
        if value is None:
            assert found is None
        else:
            assert found is not None
            assert found >= value


def test_a_factor_is_the_one_that_was_given() -> None:
    assert widened(Limits(ms=1000, bytes=7), 1.0) == Limits(ms=1000, bytes=7)
    assert widened(Limits(ms=1000, bytes=7), 1.5) == Limits(ms=1500, bytes=11)
    assert widened(FOR_EVER, 2.0) == FOR_EVER


def test_the_higher_floor_of_several_counts_and_no_factor_raises_it() -> None:
    assert longest([Limits(ms=1, floor_ms=5), Limits(ms=3, floor_ms=2)]) == Limits(ms=3, floor_ms=5)
    assert longest([]) == FOR_EVER
    assert widened(Limits(ms=2, floor_ms=5), 3) == Limits(ms=6, floor_ms=5)
