"""No input of an import may read outside its buffer, crash, hang, or give a record that its checksum contradicts.

Compiled; uncompiled, where numpy refuses an index outside; compiled with bounds checks. The last two run in processes of their own.
"""

import pytest

from tests.support import codec_fuzz, import_fuzz

KINDS = tuple(import_fuzz.KINDS)
COUNTS = {"sets": 1_000, "logs": 40}  # in each run
LONG = {"sets": 85_000, "logs": 15_000}
LEAST_READ = 0.1


def check_outcomes(outcomes: dict[str, int], count: int) -> None:
    """Neither may be rare, or the mutations are too mild or too wild."""
    assert sum(outcomes.values()) == count
    spoiled = count - outcomes.get("read", 0)
    read = sum(number for name, number in outcomes.items() if name.startswith("read") and "nothing" not in name)
    assert read > LEAST_READ * count, outcomes
    assert spoiled > LEAST_READ * count, outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_compiled(kind: str, seed: int) -> None:
    count = COUNTS[kind]
    check_outcomes(import_fuzz.run(kind, seed, count), count)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_long(kind: str, seed: int) -> None:
    count = LONG[kind]
    outcomes = import_fuzz.run(kind, seed + 1, count)
    print(f"\n{kind}, seed {seed + 1}: {dict(outcomes)}")
    check_outcomes(outcomes, count)


def test_watched(seed: int) -> None:
    """Message sets, which kernels index; those with bounds checks take long to compile, and see the same as these."""
    check_outcomes(codec_fuzz.run_apart(import_fuzz.__name__, "sets", "NUMBA_DISABLE_JIT", seed, 150), 150)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("switch", ["NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"])
def test_watched_long(switch: str, seed: int) -> None:
    check_outcomes(codec_fuzz.run_apart(import_fuzz.__name__, "sets", switch, seed + 1, 5_000), 5_000)
