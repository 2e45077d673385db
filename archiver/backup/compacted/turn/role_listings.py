"""Lists all role logs at once for the partitions of a process: unchanged partitions need no listing of their own."""

import asyncio
import math
from collections.abc import Callable, Mapping

from archiver.archive.copies.role_logs import Numbers, RoleLogs, list_role_logs_at_once
from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.process.running.workers import Workers


class RoleListings:
    """Lists on demand, at most twice in an interval. No decision depends on it: a changed partition is surveyed."""

    def __init__(self, archive: Archive, pool: Workers, clock: Callable[[], float], interval_s: float) -> None:
        self._archive = archive
        self._pool = pool
        self._clock = clock
        self._fresh_s = interval_s / 2
        self._logs: Mapping[str, RoleLogs] = {}
        self._begun_s = -math.inf
        self._listing = asyncio.Lock()

    async def numbers(self, place: RolePlace) -> Numbers:
        """Return the entries of a role log with their put times, at most half an interval old."""
        async with self._listing:
            now_s = self._clock()
            if now_s - self._begun_s > self._fresh_s:
                self._logs, self._begun_s = await self._pool.call(list_role_logs_at_once, self._archive), now_s
        logs = self._logs.get(place.topic)
        return {} if logs is None else logs.numbers(place.life, place.partition)
