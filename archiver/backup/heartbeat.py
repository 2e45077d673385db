"""Whether the event loop of a process runs: the answer of `/healthz`."""

import asyncio
from collections.abc import Callable
from typing import Final

_EVERY_S: Final = 1.0
_STUCK_S: Final = 60.0


class Heartbeat:
    """`beat` runs on the loop; `why_not_healthy` may be asked from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._beat_at_s = clock()

    async def beat(self) -> None:
        while True:
            self._beat_at_s = self._clock()
            await asyncio.sleep(_EVERY_S)

    def why_not_healthy(self) -> str | None:
        silent_s = self._clock() - self._beat_at_s
        return f"the event loop has not run for {silent_s:.0f} s" if silent_s > _STUCK_S else None
