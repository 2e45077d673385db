"""The role logs of whole topics, listed for all partitions of a process at once: whoever finds nothing new there need not look by itself."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from archiver.archive.handle import Archive
from archiver.archive.role_logs import Numbers, RoleLogs, list_role_logs
from archiver.archive.roles import RolePlace
from archiver.process.workers import Workers


class _Listed(NamedTuple):
    begun_s: float
    logs: RoleLogs


class RoleListings:
    """Lists a topic when somebody asks, at most twice in an interval. Nothing is decided on it: who finds news looks by itself."""

    def __init__(self, archive: Archive, pool: Workers, clock: Callable[[], float], interval_s: float) -> None:
        self._archive = archive
        self._pool = pool
        self._clock = clock
        self._fresh_s = interval_s / 2
        self._listed: dict[str, _Listed] = {}
        self._listing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def numbers(self, place: RolePlace) -> Numbers:
        """Return the entries of a role log, and when each was put, as they were half an interval ago, or later."""
        async with self._listing[place.topic]:
            known = self._listed.get(place.topic)
            if known is None or self._clock() - known.begun_s > self._fresh_s:
                begun_s = self._clock()
                logs = await self._pool.call(list_role_logs, self._archive, place.topic)
                known = self._listed[place.topic] = _Listed(begun_s, logs)
        return known.logs.numbers(place.life, place.partition)
