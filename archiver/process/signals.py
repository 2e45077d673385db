"""SIGTERM and SIGINT as an event that the work waits for."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from archiver.errors import StoppedError

Value = TypeVar("Value")

_CANCEL_S = 1.0  # for cancelled work to clean up


def stop_on_signals() -> asyncio.Event:
    """Return an event that a signal sets. Signals reach the main thread only: elsewhere nobody ever sets it."""
    stop = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    return stop


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, Value]) -> Value:
    """Do the work; StoppedError when the event comes first."""
    running = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        raise StoppedError
    finally:
        stopped.cancel()
        running.cancel()
        await asyncio.wait([running], timeout=_CANCEL_S)
