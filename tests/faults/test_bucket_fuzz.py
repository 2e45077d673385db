"""Nothing that lies in a bucket beside segments stops a reader, hangs it, or costs it what no archive would.

Index files, control facts of each stream, plans with their pieces, offset maps and lists of chosen offsets: bent where they
are JSON, flipped and cut where they are bytes. Only errors of ours; a bound of time, memory and bytes read for each case.
"""

import re

import pytest

from tests.support import bucket_fuzz

KINDS = tuple(bucket_fuzz.KINDS)


def check_outcomes(outcomes: dict[str, int], count: int) -> None:
    """Neither what is read nor what is refused may be rare, or the mutations are too mild or too wild."""
    assert sum(outcomes.values()) == count
    refused = sum(number for name, number in outcomes.items() if name.endswith("Error") or name == "refused")
    assert 0.1 * count < refused < 0.9 * count, outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_beside_segments(kind: str, seed: int) -> None:
    outcomes, _ = bucket_fuzz.run(kind, seed, 400)
    check_outcomes(outcomes, 400)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_beside_segments_long(kind: str, seed: int) -> None:
    outcomes, peaks = bucket_fuzz.run(kind, seed + 1, 100_000)
    print(f"\n{kind}, seed {seed + 1}: {dict(outcomes)}; {peaks}")
    check_outcomes(outcomes, 100_000)


@pytest.mark.parametrize(
    ("stream", "wrong"),
    [
        ("present", {"topics": {"t": 5}}),
        ("present", {"topics": {"t": {"topic_id": "A", "ends": {"0": [5, 1, 2]}}}}),
        ("present", {"at_ms": "now"}),
        ("starts/t/0", {"offset": None}),
        ("starts/t/0", {"leader_epoch": True}),
        ("group-positions/2027-01-15", {"time_ms": "9" * 5000}),
        ("group-positions/2027-01-15", {"time_ms": 0.5}),
        ("restores/mine/t/0", {"start_offset": "1_000"}),
        ("restores/mine/t/0", {"producer_epoch": 2**15}),
        ("restores/mine/t/0", {"skipped": "key"}),
        ("restores/mine/t/0", {"verified": {"records": 5, "digest": "0x9"}}),
        ("restores/mine/t/repartition", {"producers": {"\u0665": [1, 1]}}),
        ("restores/mine/t/repartition", {"start_offsets": [2**63]}),
        ("restores/mine/t/replaced", {"replication_factor": {}}),
        ("moments/blue/0123456789abcdef", {"instance": "green"}),
        ("moments/blue/0123456789abcdef", {"moments": [{"topic": "t"}]}),
        ("moments/blue/0123456789abcdef", {"moments": {}}),
    ],
)
def test_a_value_of_another_kind_is_an_error_that_names_its_fact(stream: str, wrong: dict[str, object]) -> None:
    problems = bucket_fuzz.problems_with(stream, wrong)
    assert problems
    assert all(re.search(rf"control/{stream}\b", str(one)) for one in problems), problems


@pytest.mark.parametrize(
    "wrong", [{"holder": True}, {"replaced": {"next": 2**63}}, {"switched": "9"}, {"left": [None]}]
)
def test_a_copy_that_cannot_be_is_damage_of_its_partition(wrong: dict[str, object]) -> None:
    ((_, (problem,)),) = bucket_fuzz.damage_of_copy(wrong).items()
    assert "control/roles/t/0/0/000002.json: does not tell which copy is read: " in problem
