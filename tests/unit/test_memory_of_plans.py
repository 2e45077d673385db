"""What a plan takes of the driver's memory grows by 200 bytes at most with each object, for every command that looks at all of them.

`python -m benchmarks.planning --objects 10000000` shows the same of ten million; the figures are in docs/growth.md.
"""

import gc
import tracemalloc
from pathlib import Path

import pytest

from benchmarks.planning import SHARES, TASKS
from tests.support.generated_store import GeneratedStore, Shape

MOST_BYTES = 200
FEW, MANY = Shape(2, 2, 5_000), Shape(2, 2, 15_000)  # what is held for a moment does not grow any more
SMALLER = Shape(1, 2, 3_000), Shape(1, 2, 9_000)  # each object is asked, which takes long


@pytest.mark.parametrize("task", TASKS)
def test_memory_grows_by_little_with_each_object(task: str, tmp_path: Path) -> None:
    most_bytes(task, Shape(1, 1, 10), tmp_path / "first")  # it loads code
    few, many = SMALLER if task == "verify" else (FEW, MANY)
    grown = most_bytes(task, many, tmp_path / "many") - most_bytes(task, few, tmp_path / "few")
    assert grown / (many.objects - few.objects) <= MOST_BYTES


def most_bytes(task: str, shape: Shape, folder: Path) -> int:
    """Return how much Python had allocated at once, of which the archive itself is no part."""
    folder.mkdir()
    store = GeneratedStore(shape, folder)
    store.write_index(SHARES)
    store.warm_up()
    gc.collect()
    tracemalloc.start()
    try:
        TASKS[task][1](store)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
