"""Bytes that may be in memory at once, of what is asked for and of what has come."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """Of one event loop. Who wants more than is free waits in line."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.granted = 0  # reservations so far
        self._used = 0
        self._first_in_line = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def is_short(self) -> bool:
        """Whether somebody waits."""
        return self._first_in_line.locked()

    async def reserve(self, size: int) -> None:
        """Wait until so many bytes are free, or all: what is larger than the budget is alone."""
        async with self._first_in_line:
            while self._used and self._used + size > self.most_bytes:
                self._freed.clear()
                await self._freed.wait()
            self._used += size
            self.granted += 1

    @asynccontextmanager
    async def reserved(self, size: int) -> AsyncIterator[None]:
        """The same for a block."""
        await self.reserve(size)
        try:
            yield
        finally:
            self.free(size)

    def add(self, size: int) -> None:
        """Count bytes that are there already."""
        self._used += size

    def free(self, size: int) -> None:
        self._used -= size
        self._freed.set()
