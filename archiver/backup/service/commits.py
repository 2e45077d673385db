"""Commits positions to the group after the puts. They are hints that save the next owner a long listing."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from archiver.backup.partition.feed import Feed
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group import Hint
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.running.failpoints import reach

_EVERY_S = 1.0


class Commits:
    """Collects the durable end of each partition, and commits changes."""

    def __init__(
        self, commit: Callable[[Sequence[Hint]], None], *, archive: str, age_s: float, clock: Callable[[], float]
    ) -> None:
        self._commit = commit
        self._archive = archive  # the mark of the archive
        self._age_s = age_s
        self._clock = clock
        self._hints: dict[TopicPartition, Hint] = {}
        self._moved: set[TopicPartition] = set()
        self._committed_at_s = clock()

    def note(self, feed: Feed) -> None:
        """Note that a segment of this partition became durable."""
        topic, partition = feed.key
        self._hints[feed.key] = Hint(
            topic=topic,
            partition=partition,
            offset=feed.writer.durable_position,
            base=feed.writer.newest_base,
            archive=self._archive,
        )
        self._moved.add(feed.key)

    def take(self, partitions: Iterable[TopicPartition]) -> list[Hint]:
        """Remove partitions. Returns their uncommitted hints."""
        hints = []
        for key in partitions:
            hint = self._hints.pop(key, None)
            if hint is not None and key in self._moved:
                hints.append(hint)
            self._moved.discard(key)
        return hints

    def all_hints(self) -> list[Hint]:
        return self.take(list(self._hints))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            self.hand_over()

    def hand_over(self) -> None:
        """Commit hints that moved. A commit is itself a record of `__consumer_offsets`: if only that topic moved, wait `age_s`, or this never ends."""
        is_worth_it = any(topic != OFFSETS_TOPIC for topic, _ in self._moved)
        if self._moved and (is_worth_it or self._clock() - self._committed_at_s >= self._age_s):
            self._commit([self._hints[key] for key in sorted(self._moved)])
            self._moved.clear()
            self._committed_at_s = self._clock()
            reach("commit.sent")
