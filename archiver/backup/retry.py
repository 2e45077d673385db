"""Does work again, until stopped, while its errors are temporary."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from archiver.backup.ledger import Ledger
from archiver.backup.troubles import Troubles
from archiver.errors import TemporaryError
from archiver.process.backoff import Backoff

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
    backoff, troubles = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), Troubles()
    while True:
        try:
            done = await work()
        except TemporaryError as error:
            pause_s = backoff.next_s()
            troubles.note(error, f"{error}; trying again in {pause_s:.0f} s", what)
            ledger.retried(what, error.cause)
        else:
            troubles.note_works(what)
            return done
        await wait(pause_s)
