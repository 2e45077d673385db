"""Detects that a Kafka log was cut back, for logs without fetches and for copies of compacted topics.

A log that was cut back may have grown again to the end of its archive. A fetch would show that, since it names the epoch of
the last batch before it; without a fetch, the leader is asked for the end of that epoch (decision 7).
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from archiver.archive.index.archived_end import ArchivedEnd
from archiver.archive.notes.topics import PartitionSource
from archiver.backup.partition.feed import Feed
from archiver.errors import CutBackError, KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.calls import EpochEnd
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicPartition
from archiver.kafka.records.epochs import end_of_epoch, ends_of_epochs
from archiver.process.output.text import spell_count

log = logging.getLogger(__name__)


async def find_parted(
    client: KafkaClient, feeds: Sequence[Feed], offsets: Mapping[TopicPartition, PartitionOffsets]
) -> Sequence[Feed]:
    """Return feeds whose logs were cut back below the archive. Asks each leader at most once; skips logs with fetches ahead."""
    beyond = {feed.key: feed for feed in feeds if feed.fetches.offset > offsets[feed.key].high_watermark}
    untold = [feed for feed in feeds if _is_untold(feed, offsets[feed.key])]
    asked = {feed.key: feed for feed in untold if feed.key not in beyond}
    ends, refused = await ends_of_epochs(client, {key: feed.fetches.epoch for key, feed in asked.items()})
    if refused:
        (topic, partition), error = min(refused.items())
        log.warning(
            "%s-%d: whether the log was cut back and has grown again to offset %d, where its archive ends, was not told: %s"
            " (so for %s). It is left as it is; the next backup asks again",
            topic,
            partition,
            asked[topic, partition].fetches.offset,
            error,
            spell_count(len(refused), "partition"),
        )
    return [*beyond.values(), *(asked[key] for key, end in ends.items() if _has_parted(asked[key], end, offsets[key]))]


async def is_cut_below(client: KafkaClient, key: TopicPartition, archived: ArchivedEnd) -> bool:
    """Return whether a compacted log was cut back below the end of an archived object. False if unknown.

    A replica of a compacted log may lack the requested epoch. The begin of the next epoch is enough.
    """
    if not archived.key or archived.leader_epoch < 0:
        return False
    end = await end_of_epoch(client, *key, archived.leader_epoch)
    if end.leader_epoch < 0:
        return 0 <= (await client.offsets([key]))[key].leader_epoch < archived.leader_epoch
    return end.end_offset < archived.next


class CutLogCheck:
    """Checks that a log is still the one in the copy of readers. `patience_s`: the longest wait for the cluster's answer."""

    def __init__(
        self, client: KafkaClient, source: PartitionSource, *, clock: Callable[[], float], patience_s: float
    ) -> None:
        self._client = client
        self._source = source
        self._clock = clock
        self._patience_s = patience_s
        self._untold_since_s: float | None = None

    async def refuse_cut_log(self, given: Iterable[ArchivedEnd]) -> None:
        """Raise CutBackError if the log is another one: a copy of it belongs to another life.

        A reader that continues behind the cut detects it by itself. A copy that began anew does not read that position.
        A cluster that does not answer is asked again, but no copy waits longer than `patience_s` for that alone.
        """
        try:
            for archived in given:
                if await is_cut_below(self._client, (self._source.topic, self._source.partition), archived):
                    raise CutBackError(
                        f"{self._source}: what readers are given of it reaches offset {archived.next}, and the log there is"
                        " not the one that was read: the log was cut back"
                    )
        except (KafkaError, KafkaTemporaryError) as error:
            now_s = self._clock()
            self._untold_since_s = now_s if self._untold_since_s is None else self._untold_since_s
            if now_s - self._untold_since_s < self._patience_s:
                raise
            log.warning(
                "%s: whether the log was cut back below what readers are given was not told for %.0f s: %s. It is taken to be"
                " the same",
                self._source,
                now_s - self._untold_since_s,
                error,
            )
        else:
            self._untold_since_s = None


def _is_untold(feed: Feed, offsets: PartitionOffsets) -> bool:
    """Return whether the feed is at its end, and the log has older records, of a known epoch."""
    return feed.is_at_end and feed.fetches.epoch >= 0 and offsets.log_start < feed.fetches.offset


def _has_parted(feed: Feed, end: EpochEnd, offsets: PartitionOffsets) -> bool:
    if end.leader_epoch < 0:  # the log has no epoch as high, or keeps none at all
        return 0 <= offsets.leader_epoch < feed.fetches.epoch
    return end.leader_epoch < feed.fetches.epoch or end.end_offset < feed.fetches.offset
