"""Adds new objects of a backup, and of a killed one before it, to the index of segment facts, and merges the index's files."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

from archiver.archive.format.control import newest_numbers
from archiver.archive.format.handle import Archive
from archiver.archive.index.fresh_entries import FreshEntries
from archiver.archive.index.index_file import NOTHING_SEEN, Directory, SeenControl
from archiver.archive.index.index_generations import MOST_FILES, append_to_index, merge_index, read_index
from archiver.archive.index.inventory import learn_unknown
from archiver.archive.notes.holds import HOLDS
from archiver.archive.notes.topics import list_newest_topic_facts
from archiver.archive.segments.entries import IndexEntry
from archiver.errors import ArchiverError, StoppedError, StoreTemporaryError
from archiver.process.running.signals import unless_stopped
from archiver.process.running.workers import workers

log = logging.getLogger(__name__)

# Between two files of an instance. Each object that was put since costs every reader a HEAD.
EVERY_S: Final = 600.0
_MANY = 2_000  # this many entries are written before that time
_BRING_IN_EVERY_S = 10.0
_LAST_S = 2.0  # the last file may take so much of the 15 s of a stop
_END_S = 30.0  # the same at the end of a backup that was not stopped


class Indexer:
    """Writes in a thread of its own, so that nothing waits. A failure costs readers a HEAD per object."""

    def __init__(
        self,
        archive: Archive,
        fresh: FreshEntries,
        *,
        clock: Callable[[], float],
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._archive = archive
        self._fresh = fresh
        self._clock = clock
        self._wait = wait
        self._seen_control = NOTHING_SEEN  # entries that this instance has written into the index, or read there
        self._has_read = False
        self._merge_at = MOST_FILES  # files: more while a merge fails, since each attempt reads all of them

    async def run(self) -> None:
        """Write regularly, until stopped."""
        with workers(1, "indexer") as worker:
            written_at_s = self._clock()
            while True:
                await self._wait(_BRING_IN_EVERY_S)
                await worker.call(self.bring_in)
                if len(self._fresh) >= _MANY or self._clock() - written_at_s >= EVERY_S:
                    written_at_s = self._clock()
                    await worker.call(self.write)

    @asynccontextmanager
    async def attend(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Write while a block runs, and at its end; a signal shortens that."""
        running = asyncio.create_task(self.run())
        try:
            yield
            with suppress(StoppedError):
                await unless_stopped(stop, self._finish(_END_S, has_time=True))
        except StoppedError:
            await self.finish()
            raise
        finally:
            running.cancel()

    async def finish(self) -> None:
        """Write the remaining entries when the backup is stopped: quickly, without merging."""
        await self._finish(_LAST_S, has_time=False)

    async def _finish(self, most_s: float, *, has_time: bool) -> None:
        with workers(1, "last-index") as worker:
            try:
                async with asyncio.timeout(most_s):
                    write = partial(self.write, has_time=has_time, is_last=has_time)
                    bring_in = partial(self.bring_in, most_s / 3)
                    # Fresh entries are written first. Without any, `bring_in` runs first, so that the index is read only once.
                    for work in (write, bring_in) if len(self._fresh) else (bring_in, write):
                        await worker.call(work)
            except TimeoutError:
                log.debug("the index of facts was not written in time")

    def _news_of_control(self, entries: Iterable[IndexEntry]) -> SeenControl:
        """Return the numbers of the newest notes of topics and holds, as far as the index lacks them."""
        topics = {entry.key.topic for entry in entries}
        known = list_newest_topic_facts(self._archive)
        seen = self._seen_control
        holds = {stream.removeprefix(f"{HOLDS}/"): one for stream, one in newest_numbers(self._archive, HOLDS).items()}
        return SeenControl(
            {
                topic: number
                for topic, number in known.items()
                if topic in topics or number > seen.newest_facts.get(topic, -1)
            },
            {name: number for name, number in holds.items() if number > seen.newest_holds.get(name, -1)},
        )

    def write(self, *, has_time: bool = True, is_last: bool = False) -> None:
        """Write fresh entries, if any, and merge when the files became many. Never raises.

        Without time, nothing is merged. At the end of a backup (`is_last`), news of notes is written also without an entry:
        perhaps no segment is put later.
        """
        entries = self._fresh.take()
        if not entries and not is_last:
            return
        try:
            if not entries and not self._has_read:
                self._seen_control = self._seen_control.joined(read_index(self._archive, lambda _: False).seen_control)
            news = self._news_of_control(entries)
            if not entries and not any(news):
                return
            self._append(entries, news, may_merge=has_time)
        except StoreTemporaryError as error:
            # Perhaps the file was written: entries that are written twice do no harm.
            self._fresh.give_back(entries)
            log.info("the index of facts was not written, and is tried again: %s", error)
        except Exception as error:  # a cache must not stop a backup
            log.info("the index of facts was not written: %s", error, exc_info=log.isEnabledFor(logging.DEBUG))

    def bring_in(self, most_s: float = math.inf) -> None:
        """Add objects of an earlier process that was killed before it wrote them into the index. Never raises.

        The next backup adds entries that were not added in time, or could not be.
        """
        try:
            self._bring_in(self._fresh.take_found(), self._clock() + most_s)
        except Exception as error:  # as above
            log.info("the index of facts was not mended: %s", error, exc_info=log.isEnabledFor(logging.DEBUG))

    def _bring_in(self, found: Mapping[Directory, Mapping[int, int]], until_s: float) -> None:
        waiting: list[IndexEntry] = []
        for entries in self._unknown(found):
            waiting += entries
            is_over = self._clock() >= until_s
            if waiting and (is_over or len(waiting) >= _MANY):
                self._append(waiting)
                waiting = []
            if is_over:
                return
        if waiting:
            self._append(waiting)

    def _unknown(self, found: Mapping[Directory, Mapping[int, int]]) -> Iterator[list[IndexEntry]]:
        """Add index entries for objects that this process found."""
        if not found:
            return
        topics = {topic for topic, _ in found}
        index = read_index(self._archive, topics.__contains__)
        self._seen_control, self._has_read = self._seen_control.joined(index.seen_control), True
        for (topic, life), ends in found.items():
            for partition in index.not_whole((topic, life), ends):
                yield from learn_unknown(self._archive, index, topic, life, partition)
            index.forget((topic, life))

    def _append(
        self, entries: Sequence[IndexEntry], news: SeenControl = NOTHING_SEEN, *, may_merge: bool = False
    ) -> None:
        files = append_to_index(self._archive, entries, news)
        self._seen_control = self._seen_control.joined(news)
        if files >= self._merge_at and may_merge:
            self._merge(files)

    def _merge(self, files: int) -> None:
        try:
            merge_index(self._archive)
            self._merge_at = MOST_FILES
        except ArchiverError as error:  # the new file is written
            self._merge_at = files + MOST_FILES
            log.warning("the files of the index of facts were not merged: %s", error)
