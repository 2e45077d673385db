"""Groups in a topic that was dealt into another number of partitions: what a real consumer reads from their positions, and what it should."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, TopicPartition

from archiver.archive.handle import open_archive
from archiver.config.model import ArchiverConfig
from archiver.kafka.client import KafkaClient
from archiver.kafka.settings import KafkaSettings
from archiver.restore.dealt_positions import DealtTopic
from archiver.restore.notes import RestoreNotes
from archiver.restore.request import RestoreRequest
from tests.support.dealt_records import Rows
from tests.support.round_trip import ArchiveSite

Committed = Mapping[str, Mapping[int, int]]
Place = tuple[int, int]  # of a record: its source partition, and its number there


def dealt_topic(
    site: ArchiveSite, bootstrap: str, target: str, restore_id: str, request: RestoreRequest, committed: Committed
) -> DealtTopic:
    """Take plan and claim from the notes of a restore."""
    storage = ArchiverConfig.model_validate(site.config(bootstrap, ())).storage
    kafka = KafkaSettings.parse({"bootstrap.servers": bootstrap})

    async def describe() -> tuple[str, str]:
        async with KafkaClient(kafka) as client:
            return await client.cluster_id(), (await client.describe_topics([target]))[target].topic_id

    cluster_id, topic_id = asyncio.run(describe())
    notes = RestoreNotes(open_archive(storage), restore_id, cluster_id)
    return DealtTopic(
        restore_id=restore_id,
        storage=storage,
        kafka=kafka,
        plan=notes.plans({target: topic_id}, request.terms)[target],
        claim=notes.topic_claims({target: topic_id})[target],
        committed=committed,
    )


def unread(written: Rows, committed: Mapping[int, int]) -> set[Place]:
    """Return the records at or behind a group's commits; all of a source partition without one."""
    return {
        (source, at) for source, rows in written.items() for at in range(len(rows)) if at >= committed.get(source, 0)
    }


def read_on(bootstrap: str, topic: str, group: str, offsets: Sequence[int]) -> Counter[Place]:
    """Set a group to offsets, and let a consumer of it read up to the end. A position that cannot be is an error."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    setter = Consumer(settings)
    wanted = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    setter.commit(offsets=wanted, asynchronous=False)
    setter.close()
    consumer = Consumer({**settings, "auto.offset.reset": "error", "enable.partition.eof": True})
    consumer.subscribe([topic])
    found, ended = Counter[Place](), set[int | None]()
    try:
        while len(ended) < len(offsets):
            message = consumer.poll(20)
            assert message is not None, "nothing came"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            headers = dict(message.headers() or [])
            told = headers["at"]
            assert isinstance(told, bytes)
            source, _, at = told.partition(b"/")
            found[int(source), int(at)] += 1
    finally:
        consumer.close()
    return found
