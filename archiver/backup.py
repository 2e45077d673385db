"""A backup up to the end of now: topics -> positions and ends -> the pump -> a report for each partition."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from archiver.control import TopicFact, settle_topic
from archiver.errors import KafkaError, KafkaTemporaryError, NotWholeError, UsageError
from archiver.inventory import ArchivedEnd, position_of
from archiver.kafka.admin import KafkaAdmin
from archiver.kafka.client import KafkaClient, PartitionOffsets, TopicDescription
from archiver.kafka.settings import KafkaSettings
from archiver.pump import Feed, PartitionReport, Pump, cut_back
from archiver.segment import PartitionSource
from archiver.writer import Archive, PartitionWriter, refuse_stranger

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRequest:
    """What to archive, from where, to where."""

    kafka: KafkaSettings
    select_topics: Callable[[Iterable[str]], Sequence[str]]
    archive: Archive
    memory_bytes: int


async def back_up_until_end(
    request: BackupRequest, notice: Callable[[Sequence[PartitionReport]], None] = lambda _: None
) -> list[PartitionReport]:
    """Archive every partition of the selected topics up to its last stable offset of now.

    One partition's failure does not stop the others; it stands in its report. `notice` is called now and then.
    """
    async with KafkaClient(request.kafka) as client:
        topics = await _selected(client, request)
        with ThreadPoolExecutor(max_workers=(os.cpu_count() or 1) + 2, thread_name_prefix="writer") as pool:
            feeds = await _open_feeds(client, topics, request, pool)
            pump = Pump(
                client,
                feeds,
                pool=pool,
                memory_bytes=request.memory_bytes,
                clock=request.archive.clock,
                notice=notice,
            )
            await pump.run()
            return [feed.report() for feed in feeds]


async def _selected(client: KafkaClient, request: BackupRequest) -> list[TopicDescription]:
    described = await client.describe_topics(None)
    names = request.select_topics(described)
    if not names:
        raise UsageError(f"no topic of the cluster's {len(described)} matches topics.include; nothing to archive")
    return [described[name] for name in names]


async def _open_feeds(
    client: KafkaClient, topics: Sequence[TopicDescription], request: BackupRequest, pool: ThreadPoolExecutor
) -> list[Feed]:
    loop = asyncio.get_running_loop()
    cluster_id = await client.cluster_id()
    configs = await KafkaAdmin(request.kafka).topic_configs([topic.name for topic in topics])
    archive = request.archive

    def settle(topic: TopicDescription) -> TopicFact:
        return settle_topic(
            archive.store,
            archive.layout,
            topic=topic.name,
            topic_id=topic.topic_id,
            cluster_id=cluster_id,
            partitions=len(topic.partitions),
            configs=configs[topic.name],
        )

    facts = await asyncio.gather(*(loop.run_in_executor(pool, settle, topic) for topic in topics))
    sources = [
        PartitionSource(
            topic=topic.name,
            partition=number,
            life=fact.life_of_partition(topic.topic_id, number).life,
            topic_id=topic.topic_id,
            cluster_id=cluster_id,
        )
        for topic, fact in zip(topics, facts, strict=True)
        for number in topic.partitions
    ]

    def position(source: PartitionSource) -> ArchivedEnd | NotWholeError:
        try:
            return _own_end(archive, source)
        except NotWholeError as error:
            return error

    positions = await asyncio.gather(*(loop.run_in_executor(pool, position, source) for source in sources))
    offsets = await client.offsets([(source.topic, source.partition) for source in sources])
    feeds = [
        _open_feed(source, at, offsets[source.topic, source.partition], archive)
        for source, at in zip(sources, positions, strict=True)
    ]
    for feed in feeds:
        await _name_open_transactions(client, feed, offsets[feed.key])
    return feeds


def _own_end(archive: Archive, source: PartitionSource) -> ArchivedEnd:
    end = position_of(archive.store, archive.layout, source.topic, source.life, source.partition)
    if end.key:
        refuse_stranger(source, end.key, topic_id=end.topic_id, cluster_id=end.cluster_id)
    return end


def _open_feed(
    source: PartitionSource, found: ArchivedEnd | NotWholeError, offsets: PartitionOffsets, archive: Archive
) -> Feed:
    end = found if isinstance(found, ArchivedEnd) else ArchivedEnd()
    position = end.next
    writer = PartitionWriter(source, position, archive, end.leader_epoch)
    feed = Feed(
        writer=writer,
        end_offset=offsets.last_stable,
        topic_id=source.topic_id,
        from_offset=position,
        fetch_offset=position,
        fetched_epoch=end.leader_epoch,
    )
    if isinstance(found, NotWholeError):
        feed.error = found
    elif position > offsets.high_watermark:
        feed.error = cut_back(source, position, offsets)
    elif position < offsets.log_start:
        writer.skip(offsets.log_start)
        feed.go_on_where_the_writer_is()
    return feed


async def _name_open_transactions(client: KafkaClient, feed: Feed, offsets: PartitionOffsets) -> None:
    if offsets.last_stable >= offsets.high_watermark:
        return
    topic, partition = feed.key
    try:
        feed.open_transactions = tuple(await client.open_transactions(topic, partition))
    except (KafkaError, KafkaTemporaryError) as error:
        log.warning("%s: who holds back the last stable offset is not known: %s", feed.writer.source, error)
    for transaction in feed.open_transactions:
        log.warning(
            "%s: an open transaction holds the end back at offset %d: producer id %d%s, begun at offset %d",
            feed.writer.source,
            offsets.last_stable,
            transaction.producer_id,
            f" ({transaction.transactional_id})" if transaction.transactional_id else "",
            transaction.start_offset,
        )
