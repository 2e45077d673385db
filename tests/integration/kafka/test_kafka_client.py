"""The client when things go wrong: brokers that hang, waits that are cancelled, addresses where nobody is."""

import asyncio
import random
import subprocess

import pytest

from archiver.demo.sandbox import JAVA_OPTIONS
from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter
from archiver.kafka.records.fetch import FetchProblem, FetchTarget, fetch
from archiver.kafka.records.produce import ProduceOutcome, init_producer_id, produce
from tests.support.brokers import Broker, StartBroker
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import batches_in, build_batch, create_topic, produce_values, settings_of, with_client
from tests.support.processes import standing_still

pytestmark = pytest.mark.kafka


async def wait_for_records(client: KafkaClient, topic: str, max_wait_ms: int) -> int:
    targets = [FetchTarget(topic=topic, topic_id="", partition=0, offset=0)]
    (row,) = await fetch(client, 1, targets, max_bytes=1000, partition_bytes=1000, max_wait_ms=max_wait_ms, min_bytes=1)
    return len(row.records)


def test_a_long_fetch_holds_up_nothing_else(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)

    async def body(client: KafkaClient) -> None:
        waiting = asyncio.create_task(wait_for_records(client, topic, 10_000))
        async with asyncio.timeout(5):
            for _ in range(20):
                await client.offsets([(topic, 0)])
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with_client(broker.bootstrap, body)


def test_a_broker_that_hangs_is_temporary(new_broker: StartBroker, topic: str) -> None:
    broker = new_broker()
    create_topic(broker.bootstrap, topic)

    async def body() -> None:
        async with KafkaClient(settings_of(broker.bootstrap, socket_timeout_ms=500)) as client:
            assert await wait_for_records(client, topic, 10) == 0
            with standing_still(broker.pid):
                with pytest.raises(KafkaTemporaryError, match=r"Fetch to broker 1: .*TimedOut"):
                    await wait_for_records(client, topic, 10)
                with pytest.raises(KafkaTemporaryError, match=r"no Kafka broker answers at .*bootstrap\.servers"):
                    await client.cluster_id()
            async with asyncio.timeout(30):
                assert (await client.offsets([(topic, 0)]))[topic, 0].high_watermark == 0
            assert await wait_for_records(client, topic, 10) == 0

    asyncio.run(body())


def test_the_metadata_refresh_asks_for_no_topics(broker: Broker, topic: str) -> None:
    """The topics of a large cluster every five minutes, for nothing."""
    create_topic(broker.bootstrap, topic)

    async def body(client: KafkaClient) -> None:
        assert await client._client.force_metadata_update()
        assert client._client.cluster.topics() == set()
        assert client._nodes() == [1]

    with_client(broker.bootstrap, body)


def test_a_new_topic_is_served_at_once(broker: Broker, topic: str) -> None:
    """Metadata names the leaders of many partitions before these serve; creation waits for them."""
    create_topic(broker.bootstrap, topic, partitions=150)

    async def body(client: KafkaClient) -> None:
        targets = [FetchTarget(topic=topic, topic_id="", partition=nr, offset=0) for nr in range(150)]
        rows = await fetch(client, 1, targets, max_bytes=1000, partition_bytes=1000, max_wait_ms=0, min_bytes=0)
        assert {row.error for row in rows} == {None}

    with_client(broker.bootstrap, body)


class MetadataMisreadCall(Call[bytes]):
    """Reads more than there is, as a broker's defect or ours would have it."""

    api_key = 3
    lowest = highest = 12
    flexible_from = 9

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.count(0)
        out.raw(b"\0\0\0")

    def read(self, answer: AnswerReader, version: int) -> bytes:  # noqa: ARG002 one version
        return bytes(answer.take(100_000))


def test_an_answer_that_does_not_parse_is_final_and_harms_nothing(broker: Broker) -> None:
    async def body(client: KafkaClient) -> None:
        with pytest.raises(KafkaError, match=r"broker 1 sent an answer to MetadataMisread that does not parse"):
            await client.send(1, MetadataMisreadCall())
        assert await client.cluster_id()

    with_client(broker.bootstrap, body)


def test_a_quota_slows_and_nothing_fails(new_broker: StartBroker, topic: str) -> None:
    """Above its quota a client gets an answer without partitions, and is not read from for a while."""
    broker = new_broker(**{"quota.window.num": "2"})  # 11 seconds may be spent at once otherwise
    create_topic(broker.bootstrap, topic, partitions=2)
    for partition in range(2):
        produce_values(broker.bootstrap, topic, [random.randbytes(50_000)] * 6, partition, batch_num_messages=1)
    set_quotas(broker, "consumer_byte_rate=100000,producer_byte_rate=100000")
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(seconds)

    async def body() -> None:
        # Shorter than the throttle: a request that is sent into it would time out.
        settings = settings_of(broker.bootstrap, socket_timeout_ms=1000)
        async with KafkaClient(settings, sleep=sleep) as client:
            positions, throttled = [0, 0], 0
            while positions != [6, 6]:
                targets = [
                    FetchTarget(topic=topic, topic_id="", partition=number, offset=at)
                    for number, at in enumerate(positions)
                ]
                rows = await fetch(
                    client, 1, targets, max_bytes=120_000, partition_bytes=60_000, max_wait_ms=10, min_bytes=1
                )
                throttled += sum(row.error is FetchProblem.THROTTLED for row in rows)
                for number, row in enumerate(rows):
                    positions[number] = max([positions[number], *(last + 1 for _, last, _ in batches_in(row.records))])
            assert throttled
            assert sum(pauses) > 1
            del pauses[:]
            identity = await init_producer_id(client)
            for sequence in range(6):
                batch = build_batch(
                    [b"x" * 80_000], producer_id=identity.producer_id, epoch=identity.epoch, base_sequence=sequence
                )
                assert (await produce(client, topic, 0, batch, 1000)).outcome is ProduceOutcome.DONE
            assert sum(pauses) > 1

    asyncio.run(body())


def set_quotas(broker: KafkaBroker, quotas: str) -> None:
    """For every client that has none of its own."""
    command = ["java", *JAVA_OPTIONS, "-cp", f"{broker.jars}/*", "kafka.admin.ConfigCommand"]
    change = ["--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", "clients", "--entity-default"]
    subprocess.run([*command, *change, "--add-config", quotas], check=True, capture_output=True, timeout=60)
