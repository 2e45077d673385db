"""No input may read or write outside its buffer, crash or hang: mutated batches, containers and frames, in three kinds of kernels.

Compiled; uncompiled, where numpy refuses an index outside (and we a negative one);
compiled with bounds checks. The last two run in processes of their own.
"""

import pytest

from tests.support import codec_fuzz

KINDS = tuple(codec_fuzz.KINDS)
# Of each 5,000: batches and containers are what a stranger gives us, frames only we make.
SHARES = {"batches": 0.5, "containers": 0.4, "frames": 0.1}


def check_outcomes(outcomes: dict[str, int], count: int) -> None:
    """Neither may be rare, or the mutations are too mild or too wild."""
    assert sum(outcomes.values()) == count
    read = sum(number for name, number in outcomes.items() if name.startswith("read"))
    assert 0.1 * count < read < 0.9 * count, outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_compiled(kind: str, seed: int) -> None:
    count = int(5_000 * SHARES[kind])
    check_outcomes(codec_fuzz.run(kind, seed, count), count)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_long(kind: str, seed: int) -> None:
    count = int(100_000 * SHARES[kind])
    outcomes = codec_fuzz.run(kind, seed + 1, count)
    print(f"\n{kind}, seed {seed + 1}: {dict(outcomes)}")
    check_outcomes(outcomes, count)


@pytest.mark.parametrize("kind", KINDS)
def test_watched(kind: str, seed: int) -> None:
    """Those with bounds checks take half a minute to compile, and see the same as these."""
    check_outcomes(codec_fuzz.run_apart(codec_fuzz.__name__, kind, "NUMBA_DISABLE_JIT", seed, 1000), 1000)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("switch", ["NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"])
def test_watched_long(kind: str, switch: str, seed: int) -> None:
    check_outcomes(codec_fuzz.run_apart(codec_fuzz.__name__, kind, switch, seed + 1, 20_000), 20_000)
