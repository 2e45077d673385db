"""Lists the role logs of whole topics for all partitions of a process: unchanged partitions need no listing of their own."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from archiver.archive.copies.role_logs import Numbers, RoleLogs, list_role_logs, list_role_logs_at_once
from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.process.running.workers import Workers

_FEW: Final = 8  # topics are listed one by one; more of them at once, with those that other processes have


class _Listed(NamedTuple):
    begun_s: float
    logs: Mapping[str, RoleLogs]

    def numbers(self, place: RolePlace) -> Numbers:
        logs = self.logs.get(place.topic)
        return {} if logs is None else logs.numbers(place.life, place.partition)


class RoleListings:
    """Lists a topic on demand, at most twice in an interval. No decision depends on it: a changed partition is surveyed."""

    def __init__(self, archive: Archive, pool: Workers, clock: Callable[[], float], interval_s: float) -> None:
        self._archive = archive
        self._pool = pool
        self._clock = clock
        self._fresh_s = interval_s / 2
        self._topics: set[str] = set()  # requested topics
        self._listed: dict[str, _Listed] = {}
        self._listing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def numbers(self, place: RolePlace) -> Numbers:
        """Return the entries of a role log with their put times, at most half an interval old."""
        self._topics.add(place.topic)
        which = place.topic if len(self._topics) <= _FEW else ""
        async with self._listing[which]:
            known = self._listed.get(which)
            if known is None or self._clock() - known.begun_s > self._fresh_s:
                begun_s = self._clock()
                known = self._listed[which] = _Listed(begun_s, await self._pool.call(self._list, which))
        return known.numbers(place)

    def _list(self, topic: str) -> Mapping[str, RoleLogs]:
        return {topic: list_role_logs(self._archive, topic)} if topic else list_role_logs_at_once(self._archive)
