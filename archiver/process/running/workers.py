"""Thread pools for blocking work: codec and puts. They are daemons, so that a hanging store does not block the program's end."""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Item = TypeVar("Item")
Value = TypeVar("Value")
_Job = tuple[Future[Any], Callable[[], Any]]


class Workers(Executor):
    """An executor with up to `count` threads, which are started when they are needed.

    At its end the interpreter does not wait for these threads, as it does for those of `concurrent.futures`.
    """

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._name = name
        self._threads: list[threading.Thread] = []
        self._adding = threading.Lock()
        self._idle = threading.Semaphore(0)

    def _add_thread(self) -> None:
        with self._adding:
            if len(self._threads) < self.count:
                thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def submit(self, fn: Callable[Given, Value], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Value]:
        future: Future[Value] = Future()
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        if not self._idle.acquire(blocking=False):
            self._add_thread()
        return future

    async def call(self, fn: Callable[Given, Value], /, *args: Given.args, **kwargs: Given.kwargs) -> Value:
        """Run a function in a thread, and wait for its result on the event loop."""
        return await asyncio.wrap_future(self.submit(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the threads after the queued jobs, or drop jobs that have not started."""
        while cancel_futures and not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _next_job(self) -> _Job | None:
        try:
            return self._jobs.get_nowait()
        except queue.Empty:
            self._idle.release()
            return self._jobs.get()

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - the future passes it to the waiting caller
                    future.set_exception(error)
            del job, future, call  # a thread that waits must not keep the last job's records in memory


def side_by_side(count: int, function: Callable[[Item], Value], items: Iterable[Item], name: str) -> Iterator[Value]:
    """Yield a function's result for each item, in the order of the items, computed by several threads."""
    with workers(count, name) as pool:
        yield from pool.map(function, items)


@contextmanager
def workers(count: int, name: str) -> Iterator[Workers]:
    """Yield an executor for a `with` block. Its end does not wait for running jobs."""
    made = Workers(count, name)
    try:
        yield made
    finally:
        made.shutdown(wait=False, cancel_futures=True)
