"""What is told of a Spark job while it runs, and when it has ended."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.errors import ArchiverError
from archiver.restore.fill.sending import RateLimit
from archiver.spark.session import tasks


class Tracker:
    """Spark's, which knows of a stage as long as it is active; then it knows nothing."""

    def __init__(self, completed: Sequence[int]) -> None:
        self._completed: Iterator[int] = iter(completed)

    def getActiveStageIds(self) -> Sequence[int]:  # noqa: N802 - Spark's name
        self._now = next(self._completed, None)
        return [] if self._now is None else [7]

    def getStageInfo(self, _: int) -> SimpleNamespace:  # noqa: N802 - Spark's name
        return SimpleNamespace(numCompletedTasks=self._now)


def watched(monkeypatch: pytest.MonkeyPatch, completed: Sequence[int], seconds: float) -> list[tuple[int, int]]:
    monkeypatch.setattr(tasks, "_TOLD_EVERY_S", 0.01)
    spark = cast("Any", SimpleNamespace(statusTracker=lambda: Tracker(completed)))
    told: list[tuple[int, int]] = []

    def collect() -> list[object]:
        time.sleep(seconds)
        return ["report"]

    assert tasks._watched(spark, collect, 8, lambda done, total: told.append((done, total))) == ["report"]
    return told


def test_the_end_of_a_short_job_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, [], 0) == [(8, 8)]


def test_reported_progress_never_falls_and_ends_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told = watched(monkeypatch, [0, 3, 5], 0.3)
    assert told[:3] == [(0, 8), (3, 8), (5, 8)]
    assert set(told[3:-1]) == {(5, 8)}
    assert told[-1] == (8, 8)


def test_a_job_that_failed_has_no_end() -> None:
    told: list[tuple[int, int]] = []

    def fail() -> list[object]:
        raise ArchiverError("lost")

    spark = cast("Any", SimpleNamespace(statusTracker=lambda: Tracker([])))
    with pytest.raises(ArchiverError, match="lost"):
        tasks._watched(spark, fail, 8, lambda done, total: told.append((done, total)))
    assert (8, 8) not in told


def test_tasks_of_first_topics_run_before_all_others() -> None:
    """Neither behind what is larger, nor in one share with something that may come later."""
    sizes = {f"large {number}": 100 - number for number in range(50)} | {"first 1": 1, "first 2": 2}
    shares = tasks.share_out(list(sizes), sizes.__getitem__, lambda name: name.startswith("first"), 4)
    assert shares[:2] == [["first 2"], ["first 1"]]
    assert [share[0] for share in shares[2:]] == [f"large {number}" for number in range(4)]
    assert sorted(name for share in shares for name in share) == sorted(sizes)


def test_no_more_run_at_once_than_share_a_rate() -> None:
    """Each Spark task is one share: a cluster that gets more executors meanwhile runs no more of them."""
    dealt: list[list[list[str]]] = []

    def parallelize(shares: list[list[str]], slices: int) -> object:
        assert slices == len(shares)
        dealt.append(shares)
        reports = [one for share in shares for one in share]
        return SimpleNamespace(mapPartitions=lambda _: SimpleNamespace(collect=lambda: reports))

    names = [f"large {number}" for number in range(50)] + ["first 1", "first 2"]
    for master in ("spark://a:7077", "local[2]"):
        spark = cast("Any", SimpleNamespace(master=master, defaultParallelism=2, parallelize=parallelize))
        tasks.run_on_spark(spark, names, str, lambda _: 1, None, lambda name: name.startswith("first"), 3)
    on_cluster, here = dealt
    assert [share[0] for share in on_cluster[:2]] == ["first 1", "first 2"]
    assert len(on_cluster) == 3 < len(here)
    assert sorted(one for share in on_cluster for one in share) == sorted(names)


def test_a_single_batch_keeps_to_the_rate_too() -> None:
    """Of many small tasks each sends but one."""

    async def waited_s() -> float:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        await RateLimit(10_000).wait_for(1_000)
        return loop.time() - started_s

    assert asyncio.run(waited_s()) > 0.09
