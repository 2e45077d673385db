"""No input of an import may read outside its buffer, crash, hang, or give a record that its checksum contradicts.

Compiled; uncompiled, where numpy refuses an index outside; compiled with bounds checks. The last two run in processes of their own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import import_fuzz

REPOSITORY = Path(__file__).parents[2]
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
    check_outcomes(run_apart("sets", "NUMBA_DISABLE_JIT", seed, 150), 150)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("switch", ["NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"])
def test_watched_long(switch: str, seed: int) -> None:
    check_outcomes(run_apart("sets", switch, seed + 1, 5_000), 5_000)


def run_apart(kind: str, switch: str, seed: int, count: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.support.import_fuzz", kind, str(seed), str(count)]
    environment = {**os.environ, switch: "1"}
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes: dict[str, int] = json.loads(done.stdout)
    return outcomes
