"""Turns SIGTERM and SIGINT into an event that stops the work, and ends a process that hangs after the signal."""

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from archiver.errors import StoppedError
from archiver.interrupt import EXIT_CODE

Value = TypeVar("Value")

_CANCEL_S = 1.0  # for cancelled work to clean up
_END_S: Final = 14.0  # after a signal; longer than flushing open segments takes


def stop_on_signals() -> asyncio.Event:
    """Return an event that a signal sets. Signals reach only the main thread; in other threads it is never set.

    If the loop has not ended 14 seconds later, because a store, a broker or a name server hangs, the process ends as if it was
    killed: unwritten records are still in Kafka.
    """
    stop = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()

        def end() -> None:
            stop.set()
            timer = threading.Timer(_END_S, _leave, (loop,))
            timer.daemon = True
            timer.start()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
    return stop


def _leave(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        os.write(2, b"archiver: did not end in time; what was not durable is still in Kafka, and is read again\n")
        os._exit(EXIT_CODE)


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, Value]) -> Value:
    """Do the work. Raises StoppedError if the event comes first."""
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
