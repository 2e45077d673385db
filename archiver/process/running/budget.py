"""Limits the bytes of requested and received answers that are in memory at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """A byte budget of one event loop. A request for more than the free bytes waits in line."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.granted = 0  # reservations so far
        self._used = 0
        self._first_in_line = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def is_short(self) -> bool:
        """Whether a caller is waiting for bytes to become free."""
        return self._first_in_line.locked()

    async def reserve(self, size: int) -> None:
        """Wait until this many bytes are free. A request larger than the whole budget waits until all of it is free."""
        async with self._first_in_line:
            while self._used and self._used + size > self.most_bytes:
                self._freed.clear()
                await self._freed.wait()
            self._used += size
            self.granted += 1

    @asynccontextmanager
    async def reserved(self, size: int) -> AsyncIterator[None]:
        """Reserve bytes for a `with` block."""
        await self.reserve(size)
        try:
            yield
        finally:
            self.free(size)

    def add(self, size: int) -> None:
        """Count bytes that are in memory already, without waiting."""
        self._used += size

    def free(self, size: int) -> None:
        self._used -= size
        self._freed.set()
