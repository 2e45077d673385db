"""The seeds of tests/conftest.py, as tests get them: by pytest itself, in processes of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
DRAWING = """
import os, random, uuid
from pathlib import Path
import pytest
from hypothesis import given, strategies as st

def note(*drawn):
    Path(os.environ["DRAWN"], uuid.uuid4().hex).write_text(repr(drawn))

@pytest.mark.parametrize("number", range(4))
def test_ours(seed, number):
    note("ours", number, seed, random.random())

@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", range(6))
def test_of_many_cases(case):
    note("case", case)

@given(st.lists(st.integers(), min_size=9))
def test_by_hypothesis(drawn):
    note("hypothesis", drawn)

@pytest.mark.seeds(77)
def test_found(seed):
    note("found", seed)
"""


def drawn_by(folder: Path, *arguments: str) -> tuple[str, set[str]]:
    """What the tests have drawn in one run, and the seed that its header tells."""
    (folder / "test_drawing.py").write_text(DRAWING)
    drawn = folder / "-".join(["drawn", *arguments])
    drawn.mkdir()
    command = [sys.executable, "-m", "pytest", "-c", str(REPOSITORY / "pyproject.toml"), "-p", "tests.conftest"]
    command += ["-p", "no:cacheprovider", *arguments, str(folder / "test_drawing.py")]
    environment = {**os.environ, "DRAWN": str(drawn)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"--hypothesis-seed=(\d+)", done.stdout)
    assert told is not None
    return told[1], {path.read_text() for path in drawn.iterdir()}


def cases_in(drawn: Iterable[str]) -> int:
    """How many of a sampled test have run."""
    return sum(one.startswith("('case'") for one in drawn)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, set[str]]:
    """A run without options."""
    return drawn_by(tmp_path_factory.mktemp("plain"))


def test_each_run_draws_the_same_in_whatever_process(tmp_path: Path, plain: tuple[str, set[str]]) -> None:
    seed, drawn = plain
    assert len(drawn) > 40
    assert {f"('found', {seed})", "('found', 77)"} <= drawn
    assert cases_in(drawn) == 2
    others_ran_before = ("-p", "archiver.backup.service.backup_service")  # and have imported something
    assert drawn_by(tmp_path, "-n", "2", *others_ran_before) == (seed, drawn)


def test_a_long_run_hunts_with_a_seed_that_it_tells(tmp_path: Path, plain: tuple[str, set[str]]) -> None:
    seed, drawn = drawn_by(tmp_path, "--long", "-n", "2")
    assert seed != plain[0]
    assert cases_in(drawn) == 6
    assert drawn_by(tmp_path, "--long", f"--hypothesis-seed={seed}") == (seed, drawn)
