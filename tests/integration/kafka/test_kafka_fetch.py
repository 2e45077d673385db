"""Raw fetch against real brokers: the bytes, and every problem that is told apart."""

import asyncio
from contextlib import suppress

import pytest

from archiver.errors import KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.fetch import Divergence, Fetched, FetchProblem, FetchTarget, fetch
from archiver.kafka.topics.admin import KafkaAdmin
from tests.support.brokers import Broker, StartBroker
from tests.support.kafka_topics import (
    batches_in,
    create_topic,
    produce_values,
    producer_of,
    until_stable,
    with_client,
)

pytestmark = pytest.mark.kafka


async def fetch_one(
    client: KafkaClient,
    topic: str,
    offset: int = 0,
    *,
    topic_id: str | None = None,
    epoch: int = -1,
    limit: int = 1 << 22,
) -> Fetched:
    known = topic_id if topic_id is not None else (await client.describe_topics([topic]))[topic].topic_id
    target = FetchTarget(topic=topic, topic_id=known, partition=0, offset=offset, last_fetched_epoch=epoch)
    node_id = await client.leader(topic, 0)
    (fetched,) = await fetch(
        client, node_id, [target], max_bytes=limit, partition_bytes=limit, max_wait_ms=200, min_bytes=1
    )
    return fetched


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_by_id_and_by_name_give_the_same_bytes(broker: Broker, topic: str, codec: str) -> None:
    create_topic(broker.bootstrap, topic)
    produce_values(
        broker.bootstrap, topic, [b"value %d" % i for i in range(5000)], compression_type=codec, linger_ms=50
    )

    async def body(client: KafkaClient) -> None:
        by_id = await fetch_one(client, topic)
        by_name = await fetch_one(client, topic, topic_id="")
        assert (by_id.by_topic_id, by_name.by_topic_id) == (True, False)
        assert bytes(by_id.records) == bytes(by_name.records)
        batches = list(batches_in(by_id.records))
        assert [base for base, _, _ in batches] == [0, *(last + 1 for _, last, _ in batches[:-1])]
        assert batches[-1][1] == 4999
        assert sum(len(raw) for _, _, raw in batches) == len(by_id.records)
        assert (by_id.high_watermark, by_id.last_stable_offset, by_id.log_start_offset) == (5000, 5000, 0)

    with_client(broker.bootstrap, body)


def test_many_partitions_come_in_one_request(broker: Broker, topic: str) -> None:
    other = topic + "-other"
    create_topic(broker.bootstrap, topic, partitions=3)
    create_topic(broker.bootstrap, other)
    for partition in range(3):
        produce_values(broker.bootstrap, topic, [b"%d" % partition] * (partition + 1), partition)
    produce_values(broker.bootstrap, other, [b"other"])

    async def body(client: KafkaClient) -> list[Fetched]:
        ids = {name: row.topic_id for name, row in (await client.describe_topics([topic, other])).items()}
        wanted = [(topic, 2), (other, 0), (topic, 0), (topic, 1)]  # one topic twice, to keep the order
        targets = [FetchTarget(topic=name, topic_id=ids[name], partition=nr, offset=0) for name, nr in wanted]
        node_id = await client.leader(topic, 0)
        return await fetch(
            client, node_id, targets, max_bytes=1 << 20, partition_bytes=1 << 20, max_wait_ms=200, min_bytes=1
        )

    fetched = with_client(broker.bootstrap, body)
    ends = {(row.topic, row.partition): row.high_watermark for row in fetched}
    assert ends == {(topic, 0): 1, (topic, 1): 2, (topic, 2): 3, (other, 0): 1}
    assert all(list(batches_in(row.records))[-1][1] == row.high_watermark - 1 for row in fetched)


def test_a_record_above_every_limit_still_comes(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic, configs={"max.message.bytes": "20000000"})
    produce_values(broker.bootstrap, topic, [b"\x07" * 10_000_000])
    fetched = with_client(broker.bootstrap, lambda client: fetch_one(client, topic, limit=4096))
    ((_, _, raw),) = batches_in(fetched.records)
    assert raw.count(b"\x07") >= 10_000_000


def test_aborted_transactions_are_listed(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    producer = producer_of(broker.bootstrap, transactional_id=topic)
    producer.init_transactions(30)
    for outcome in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.flush(30)
        outcome(30)

    async def body(client: KafkaClient) -> None:
        await until_stable(client, topic, 6)
        fetched = await fetch_one(client, topic)
        ((_, first_offset),) = fetched.aborted
        assert first_offset == 2  # record, marker, record
        assert fetched.last_stable_offset == fetched.high_watermark == 6

    with_client(broker.bootstrap, body)


def test_an_open_transaction_holds_the_stable_end_and_is_named(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    produce_values(broker.bootstrap, topic, [b"before"])
    producer = producer_of(broker.bootstrap, transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)

    async def body(client: KafkaClient) -> None:
        offsets = (await client.offsets([(topic, 0)]))[topic, 0]
        assert (offsets.log_start, offsets.last_stable, offsets.high_watermark) == (0, 1, 2)
        assert offsets.leader_epoch >= 0
        (transaction,) = await client.open_transactions(topic, 0)
        assert (transaction.start_offset, transaction.transactional_id) == (1, topic)
        assert transaction.last_timestamp_ms > 0
        fetched = await fetch_one(client, topic)
        assert (fetched.last_stable_offset, fetched.high_watermark) == (1, 2)
        assert [last for _, last, _ in batches_in(fetched.records)] == [0]
        await asyncio.to_thread(producer.abort_transaction, 30)
        await until_stable(client, topic, 3)
        assert await client.open_transactions(topic, 0) == []

    with_client(broker.bootstrap, body)


def test_a_recreated_topic_is_another_one(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    produce_values(broker.bootstrap, topic, [b"old"] * 3)

    async def body(client: KafkaClient) -> None:
        old = (await client.describe_topics([topic]))[topic].topic_id
        admin = KafkaAdmin(client.settings)
        await admin.delete_topic(topic)
        await admin.create_topic(topic, partitions=1, replication_factor=1)
        assert (await client.describe_topics([topic]))[topic].topic_id not in {old, ""}
        fetched = await fetch_one(client, topic, topic_id=old)
        assert fetched.error is FetchProblem.UNKNOWN_TOPIC_ID
        assert len(fetched.records) == 0

    with_client(broker.bootstrap, body)


def test_a_refused_partition_does_not_move_the_others(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        produce_values(broker.bootstrap, topic, [b"in %d" % partition], partition)

    async def body(client: KafkaClient) -> list[Fetched]:
        targets = [FetchTarget(topic=topic, topic_id="", partition=number, offset=0) for number in (7, 1, 0)]
        return await fetch(client, 1, targets, max_bytes=9999, partition_bytes=9999, max_wait_ms=100, min_bytes=1)

    absent, one, zero = with_client(broker.bootstrap, body)
    assert absent.error is FetchProblem.UNKNOWN_TOPIC_OR_PARTITION
    assert [bytes(row.records).count(b"in %d" % number) for number, row in ((1, one), (0, zero))] == [1, 1]


def test_an_offset_that_is_not_there_is_told(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    produce_values(broker.bootstrap, topic, [b"only"])

    async def body(client: KafkaClient) -> None:
        beyond = await fetch_one(client, topic, offset=2)
        assert beyond.error is FetchProblem.OFFSET_OUT_OF_RANGE
        at_end = await fetch_one(client, topic, offset=1)
        assert (at_end.error, len(at_end.records)) == (None, 0)
        absent = FetchTarget(topic=topic, topic_id="", partition=7, offset=0)
        (row,) = await fetch(client, 1, [absent], max_bytes=1000, partition_bytes=1000, max_wait_ms=100, min_bytes=1)
        assert row.error is FetchProblem.UNKNOWN_TOPIC_OR_PARTITION

    with_client(broker.bootstrap, body)


@pytest.mark.parametrize("version", [pytest.param("3.9.1", marks=pytest.mark.long), "4.1.1"])
def test_a_log_that_was_cut_back_diverges(new_broker: StartBroker, topic: str, version: str) -> None:
    """A restart begins a new leader epoch. Who claims to have read epoch 0 beyond its end read another log."""
    broker = new_broker(version)
    create_topic(broker.bootstrap, topic)
    produce_values(broker.bootstrap, topic, [b"first"] * 10)

    async def body(client: KafkaClient) -> None:
        before = (await client.offsets([(topic, 0)]))[topic, 0]
        await asyncio.to_thread(broker.restart)
        await _until_answered(client, topic)
        await asyncio.to_thread(produce_values, broker.bootstrap, topic, [b"second"] * 10)
        after = (await client.offsets([(topic, 0)]))[topic, 0]
        assert after.high_watermark == 20
        assert after.leader_epoch > before.leader_epoch
        for topic_id in (None, ""):  # by id and by name
            cut = await fetch_one(client, topic, offset=15, epoch=before.leader_epoch, topic_id=topic_id)
            assert cut.error is FetchProblem.DIVERGING_EPOCH
            assert cut.diverging == Divergence(epoch=before.leader_epoch, end_offset=10)
            same = await fetch_one(client, topic, offset=10, epoch=before.leader_epoch, topic_id=topic_id)
            assert (same.error, [base for base, _, _ in batches_in(same.records)][:1]) == (None, [10])

    with_client(broker.bootstrap, body)


async def _until_answered(client: KafkaClient, topic: str) -> None:
    """The client outlives its broker's restart; what it says meanwhile is temporary."""
    async with asyncio.timeout(30):
        while True:
            with suppress(KafkaTemporaryError):
                await client.offsets([(topic, 0)])
                return
