"""Does work again, until stopped, while its errors are temporary."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from archiver.backup.ledger import Ledger
from archiver.errors import TemporaryError
from archiver.process.backoff import Backoff

log = logging.getLogger(__name__)

Value = TypeVar("Value")

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


async def persist(
    what: str,
    work: Callable[[], Awaitable[Value]],
    ledger: Ledger,
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Value:
    """Do work again until it succeeds; failures are counted as those of `what`. Only a temporary error is followed by another try; any other error is raised."""
    backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    while True:
        try:
            return await work()
        except TemporaryError as error:
            pause_s = backoff.next_s()
            log.warning("%s; trying again in %.0f s", error, pause_s)
            ledger.retried(what, error.cause)
        await wait(pause_s)
