"""The client when things go wrong: brokers that hang, waits that are cancelled, addresses where nobody is."""

import asyncio
import os
import signal

import pytest

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.client import KafkaClient
from archiver.kafka.fetch import FetchTarget, fetch
from archiver.kafka.wire import Call, Reader, Writer
from tests.support.brokers import Broker, StartBroker
from tests.support.kafka_topics import create_topic, settings_of, with_client

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
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                with pytest.raises(KafkaTemporaryError, match=r"Fetch to broker 1: .*TimedOut"):
                    await wait_for_records(client, topic, 10)
                with pytest.raises(KafkaTemporaryError, match=r"no Kafka broker answers at .*bootstrap\.servers"):
                    await client.cluster_id()
            finally:
                os.kill(broker.pid, signal.SIGCONT)
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

    def write(self, out: Writer, version: int) -> None:  # noqa: ARG002 one version
        out.count(0)
        out.raw(b"\0\0\0")

    def read(self, answer: Reader, version: int) -> bytes:  # noqa: ARG002 one version
        return bytes(answer.take(100_000))


def test_an_answer_that_does_not_parse_is_final_and_harms_nothing(broker: Broker) -> None:
    async def body(client: KafkaClient) -> None:
        with pytest.raises(KafkaError, match=r"broker 1 sent an answer to MetadataMisread v12.* does not parse"):
            await client.send(1, MetadataMisreadCall())
        assert await client.cluster_id()

    with_client(broker.bootstrap, body)


def test_no_broker_there_is_a_clear_error() -> None:
    async def body() -> None:
        async with KafkaClient(settings_of("127.0.0.1:1")):
            raise AssertionError("connected to nothing")

    with pytest.raises(KafkaTemporaryError, match=r"bootstrap\.servers 127\.0\.0\.1:1"):
        asyncio.run(body())


def test_a_server_that_is_no_broker_is_a_clear_error() -> None:
    async def body() -> None:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            async with KafkaClient(settings_of(f"{host}:{port}", socket_timeout_ms=2000)):
                raise AssertionError("connected to a web server")

    with pytest.raises(KafkaTemporaryError, match=r"plaintext listener"):
        asyncio.run(body())
