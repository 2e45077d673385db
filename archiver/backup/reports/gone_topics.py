"""Tracks archived topics that Kafka no longer has: reported once by backups and instances, counted until a user accepts it."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.notes.cluster_topics import ClusterTopics
from archiver.archive.notes.topics import TopicFact, read_newest_topic_facts
from archiver.errors import ArchiverError, NotWholeError
from archiver.process.output.text import spell_count
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

_READ_AGAIN_S: Final = 600.0  # the longest delay until an acceptance is noticed
_NAMED: Final = 10


class GoneTopics:
    """`look` after each listing of the cluster; `names` may be read from any thread."""

    def __init__(self, archive: Archive, pool: Workers, clock: Callable[[], float] = time.monotonic) -> None:
        self._archive = archive
        self._pool = pool
        self._clock = clock
        self._read_at_s = 0.0
        self._missing: frozenset[str] = frozenset()
        self.names: frozenset[str] = frozenset()

    async def look(self, wanted: Collection[str], seen: ClusterTopics) -> None:
        """Find wanted topics that the archive has and the cluster lacks. A topic that may not be described counts as present."""
        before, self._missing = self._missing, frozenset(wanted) - seen.found.keys() - seen.refused.keys()
        if self._missing <= before and self._clock() - self._read_at_s < _READ_AGAIN_S:
            self.names &= self._missing
            return
        known = self.names
        try:
            facts = await self._read() if self._missing else {}
        except ArchiverError as error:
            log.debug("%s; whether deleted topics are accepted is read later", error)
            self._missing = before
            return
        self._read_at_s = self._clock()
        self.names = frozenset(
            name for name, fact in facts.items() if not (isinstance(fact, TopicFact) and fact.is_accepted_gone)
        )
        _report(sorted(self.names - known))

    async def _read(self) -> Mapping[str, TopicFact | NotWholeError]:
        return await self._pool.call(read_newest_topic_facts, self._archive, self._missing.__contains__)


def _report(names: Collection[str]) -> None:
    if names:
        more = len(names) - _NAMED
        named = ", ".join([*names][:_NAMED]) + (f" and {spell_count(more, 'more topic')}" if more > 0 else "")
        log.warning(
            "%s: archived, and deleted in Kafka. What is archived is kept. Restore it, or accept that it is gone:"
            " archiver topics --accept-gone NAME",
            named,
        )
