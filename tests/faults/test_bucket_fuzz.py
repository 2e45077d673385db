"""Nothing that lies in a bucket beside segments stops a reader, hangs it, or costs it what no archive would.

Index files, control facts of each stream, plans with their pieces, offset maps and lists of chosen offsets: bent where they
are JSON, flipped and cut where they are bytes. Only errors of ours; a bound of time, memory and bytes read for each case.
"""

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
