"""Yields a function's results for many items in order, computed by threads a bounded number of items ahead."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_WAITING = 4  # results that may wait for each thread: they are yielded in order, and an early item may take the longest


def run_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], at_once: int, thread_name: str
) -> Iterator[Result]:
    """Yield results in the order of the items. An executor's `map` would hold a future for each of millions of items."""
    under_way: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix=thread_name) as pool:
        try:
            for item in items:
                under_way.append(pool.submit(function, item))
                if len(under_way) > _WAITING * at_once:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for one in under_way:
                one.cancel()
