"""The coordination topic on real brokers: made where it is missing, and nothing in it stops anybody."""

import asyncio
import io
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, TopicPartition

from archiver.archive.copies.roles import RolePlace
from archiver.archive.notes.cluster_topics import COORDINATION_TOPIC
from archiver.backup.compacted.turn.events import CoordinationEvent
from archiver.backup.compacted.turn.turn_decisions import ACTIVATE
from archiver.backup.compacted.work.coordination import Coordination
from archiver.errors import KafkaError
from archiver.interrupt import EXIT_CODE
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.configs import topic_configs
from archiver.process.running.workers import Workers
from tests.support.brokers import REPOSITORY, Broker
from tests.support.instances import compacted_config, holder, instance, write
from tests.support.kafka_topics import create_topic, delete_topic, produce_values, producer_of, settings_of, with_client
from tests.support.raw_produce import produce_records
from tests.support.records import Rec
from tests.support.relay import delayed_address
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually

pytestmark = pytest.mark.kafka

OTHER = RolePlace(topic="payments", life=0, partition=0)
PLACE = RolePlace(topic="orders", life=1, partition=3)
TO_NOTHING: dict[str, Any] = {"compression.type": "zstd", "message.max.bytes": 64 << 20}
_PATIENCE_S = 30
_SLACK_S = 5  # a machine may be busy


def event(place: RolePlace = PLACE, instance: str = "a") -> CoordinationEvent:
    return CoordinationEvent(
        kind=ACTIVATE, instance=instance, place=place, generation=4, timestamp_ms=time.time_ns() // 1_000_000
    )


@pytest.fixture
def fresh(broker: Broker) -> Iterator[Broker]:
    """A broker without the topic."""

    def drop() -> None:
        with suppress(KafkaError):
            delete_topic(broker.bootstrap, COORDINATION_TOPIC)

    drop()
    yield broker
    drop()


@asynccontextmanager
async def started(settings: KafkaSettings) -> AsyncIterator[Coordination]:
    async with KafkaClient(settings) as client:
        coordination = Coordination(client, settings, Workers(1, "test"), ["a", "b"])
        await coordination.find()
        yield coordination


async def heard(listener: Coordination) -> frozenset[RolePlace]:
    return await asyncio.wait_for(listener.hints(), _PATIENCE_S)


def test_the_topic_is_made_and_an_event_arrives(fresh: Broker) -> None:
    settings = settings_of(fresh.bootstrap)

    async def run() -> None:
        async with started(settings) as ours, started(settings) as theirs:
            waiting = asyncio.ensure_future(theirs.hints())
            await ours.tell(event())
            assert await asyncio.wait_for(waiting, _PATIENCE_S) == {PLACE}
            assert await heard(ours) == {PLACE}
            await theirs.tell(event(OTHER, "b"))
            assert await heard(ours) == await heard(theirs) == {OTHER}

    asyncio.run(run())

    async def look(client: KafkaClient) -> tuple[int, str | None]:
        described = (await client.describe_topics([COORDINATION_TOPIC]))[COORDINATION_TOPIC]
        configs = await topic_configs(client, COORDINATION_TOPIC)
        return len(described.partitions), configs.own.get("cleanup.policy")

    assert with_client(fresh.bootstrap, look) == (1, "compact")
    assert first_value(fresh) == {
        "event": "ACTIVATE",
        "connectorInstanceName": "a",
        "topic": "orders",
        "partition": 3,
        "offset": -1,
    }


def first_value(broker: Broker) -> dict[str, object]:
    """As a stranger reads it: the schema, and ten bytes before the value."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "stranger", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(COORDINATION_TOPIC, 0, 0)])
        message = consumer.poll(_PATIENCE_S)
    finally:
        consumer.close()
    assert message is not None
    assert (message.error(), message.key()) == (None, b"orders/1/3")
    schema = json.loads((REPOSITORY / "schemas/AvroCompactedLogBackupCoordination-v1.0.avsc").read_text())
    value = message.value() or b""
    found = fastavro.schemaless_reader(io.BytesIO(value[10:]), fastavro.parse_schema(schema), None)
    assert isinstance(found, dict)
    del found["timestamp"]
    return found


def test_an_instance_reads_no_events_from_before_its_start(fresh: Broker) -> None:
    settings = settings_of(fresh.bootstrap)

    async def run() -> None:
        async with started(settings) as ours:
            await ours.tell(event(OTHER))
            async with started(settings) as theirs:
                await ours.tell(event())
                assert await heard(theirs) == {PLACE}

    asyncio.run(run())


def test_what_is_no_event_is_ignored(fresh: Broker) -> None:
    """Whoever may write to the topic may write anything, also as a transaction, or compressed to nearly nothing."""
    settings = settings_of(fresh.bootstrap)
    create_topic(fresh.bootstrap, COORDINATION_TOPIC)  # not compacted, so that records without a key may be there, too

    async def run() -> None:
        async with started(settings) as ours, started(settings) as theirs:
            produce_values(fresh.bootstrap, COORDINATION_TOPIC, [b"x", b"\xc3\x01" + bytes(40)])
            produce_values(
                fresh.bootstrap,
                COORDINATION_TOPIC,
                [bytes(40 << 20)],
                **TO_NOTHING,
            )
            produce_records(fresh.bootstrap, COORDINATION_TOPIC, [Rec(0, 5, 0, b"orders/1/3", None)])
            producer = producer_of(fresh.bootstrap, **{"transactional.id": "stranger"})
            producer.init_transactions(_PATIENCE_S)
            producer.begin_transaction()
            producer.produce(COORDINATION_TOPIC, b"aborted", partition=0)
            producer.flush(_PATIENCE_S)
            producer.abort_transaction(_PATIENCE_S)
            await ours.tell(event())
            assert await heard(theirs) == {PLACE}

    asyncio.run(run())


def test_a_topic_that_is_made_again_is_found_again(fresh: Broker) -> None:
    settings = settings_of(fresh.bootstrap)

    async def run() -> None:
        async with started(settings) as ours, started(settings) as theirs:
            await ours.tell(event(OTHER))
            assert await heard(theirs) == {OTHER}
            waiting = asyncio.ensure_future(theirs.hints())
            await asyncio.to_thread(delete_topic, fresh.bootstrap, COORDINATION_TOPIC)
            async with asyncio.timeout(_PATIENCE_S):
                while not waiting.done():
                    await ours.tell(event())
                    await asyncio.wait([waiting], timeout=0.5)
            assert waiting.result() == {PLACE}

    asyncio.run(run())


@pytest.mark.installed
@pytest.mark.s3
@pytest.mark.timeout(180)
@pytest.mark.parametrize("state", ["its store hangs", "it starts"])
def test_an_instance_ends_soon_after_sigterm(fresh: Broker, site: ArchiveSite, topic: str, state: str) -> None:
    create_topic(fresh.bootstrap, topic, 1, {"cleanup.policy": "compact"})
    create_topic(fresh.bootstrap, COORDINATION_TOPIC)
    hangs = threading.Event()
    scheme, _, address = site.bucket.s3.endpoint.partition("://")
    with delayed_address(address, 0.0, hangs) as near:
        config = compacted_config(site, fresh.bootstrap, topic)
        config["storage"] |= {"endpoint": f"{scheme}://{near}"}
        if state == "it starts":
            hangs.set()
        with instance(site, config, "a", "--initial-role", "active") as a:
            if state == "it starts":
                eventually(lambda: bool(a.metrics_text()))
            else:
                write(fresh.bootstrap, topic, {"k": "1"})
                eventually(lambda: holder(site, topic).startswith("a:"))
                hangs.set()
                write(fresh.bootstrap, topic, {"k": "2"})
                time.sleep(3)
            begun_s = time.monotonic()
            assert a.stop() in {0, EXIT_CODE}
            took_s = time.monotonic() - begun_s
            print(f"{state}: it ended after {took_s:.1f} s")
            assert took_s < 15 + _SLACK_S
