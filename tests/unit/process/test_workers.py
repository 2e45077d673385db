import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from archiver.process.running.ahead import run_ahead
from archiver.process.running.workers import Workers, side_by_side


def test_results_and_errors_come_back() -> None:
    workers = Workers(2, "test")
    assert workers.submit(pow, 2, 10).result(5) == 1024
    with pytest.raises(ZeroDivisionError):
        workers.submit(lambda: 1 // 0).result(5)
    assert sorted(workers.map(str, range(5))) == ["0", "1", "2", "3", "4"]
    workers.shutdown()


def test_workers_run_at_once_as_daemon_threads() -> None:
    workers = Workers(2, "test")
    meet = threading.Barrier(2)
    both = [workers.submit(meet.wait, 5) for _ in range(2)]
    assert sorted(future.result(5) for future in both) == [0, 1]
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("test-"))
    workers.shutdown()


def test_what_has_not_begun_can_be_cancelled() -> None:
    workers = Workers(1, "test")
    gate, begun = threading.Event(), threading.Event()

    def hold() -> bool:
        begun.set()
        return gate.wait(5)

    running = workers.submit(hold)
    assert begun.wait(5)
    waiting = workers.submit(pow, 1, 1)
    workers.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        waiting.result(5)
    gate.set()
    assert running.result(5)


def test_the_event_loop_waits_for_a_result() -> None:
    workers = Workers(1, "test")

    async def ask() -> int:
        return await workers.call(pow, 2, 10)

    assert asyncio.run(ask()) == 1024
    workers.shutdown()


def test_results_side_by_side_come_in_the_order_of_the_items() -> None:
    meet = threading.Barrier(2)

    def work(number: int) -> int:
        if number < 2:
            meet.wait(5)
        return number * number

    assert list(side_by_side(2, work, range(5), "test")) == [0, 1, 4, 9, 16]
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(2, lambda number: 1 // number, range(2), "test"))


def test_results_are_yielded_in_order_while_later_items_are_under_way() -> None:
    later_begun = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert later_begun.wait(30), "items are not worked on at once"
        elif item == 3:
            later_begun.set()
        return item

    assert list(run_ahead(work, range(100), 4, "work")) == list(range(100))
