"""What a plan takes of the driver's memory grows by 200 bytes at most with each object, for every command that looks at all of them; a sweep's by 900.

`python -m benchmarks.planning --objects 10000000` shows the same of ten million; the figures are in docs/growth.md.
"""

import gc
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from archiver.archive.index import learned_facts
from benchmarks.planning import SHARES, TASKS
from tests.support.generated_store import GeneratedStore, Shape

MOST_BYTES = 200
MOST_SWEPT_BYTES = 900  # each object that goes is named, with what it told, until it is deleted
MIDDLE = Shape(2, 2, 2_500), Shape(2, 2, 6_000)  # what is held for a moment does not grow any more
LARGE = Shape(2, 2, 5_000), Shape(2, 2, 12_000)
ASKED = Shape(1, 2, 3_000), Shape(1, 2, 7_000)  # each object is asked, which takes long
SWEPT = Shape(1, 2, 1_000), Shape(1, 2, 2_500)
SMALL = Shape(30, 5, 100), Shape(90, 5, 100)  # a hundred objects share what a partition takes
CASES = [
    *((task, MIDDLE, SHARES) for task in ("plan", "query")),
    *(pytest.param(task, MIDDLE, SHARES, marks=pytest.mark.long) for task in ("choose", "ls", "start")),
    pytest.param("verify", ASKED, SHARES, marks=pytest.mark.long),
    ("sweep", SWEPT, SHARES),
    *(pytest.param(task, LARGE, SHARES, marks=pytest.mark.long) for task in TASKS if task not in {"verify", "sweep"}),
    pytest.param("plan", ASKED, (), marks=pytest.mark.long),  # no index, or it is lost
    *(pytest.param(task, SMALL, SHARES, marks=pytest.mark.long) for task in ("plan", "ls")),
    pytest.param("plan", ASKED, (0.5,), marks=pytest.mark.long),  # the index lacks what came since
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("task", "shapes", "shares"), CASES)
def test_memory_grows_by_little_with_each_object(
    task: str, shapes: tuple[Shape, Shape], shares: Sequence[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned_facts, "_SHARED_AT_ONCE", 500)  # what a file of the index takes does not grow either
    most_bytes(task, Shape(1, 1, 10), shares, tmp_path / "first")  # it loads code
    few, many = shapes
    grown = most_bytes(task, many, shares, tmp_path / "many") - most_bytes(task, few, shares, tmp_path / "few")
    assert grown / (many.objects - few.objects) <= (MOST_SWEPT_BYTES if task == "sweep" else MOST_BYTES)


def most_bytes(task: str, shape: Shape, shares: Sequence[float], folder: Path) -> int:
    """Return how much Python had allocated at once, of which the archive itself is no part."""
    folder.mkdir()
    store = GeneratedStore(shape, folder)
    store.write_index(shares)
    store.warm_up()
    gc.collect()
    tracemalloc.start()
    try:
        TASKS[task][1](store)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
