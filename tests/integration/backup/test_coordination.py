"""The coordination topic on real brokers: made where it is missing, done without where it is refused, and nothing in it stops anybody."""

import asyncio
import io
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # public, but not marked so

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
from tests.conftest import kafka_jars
from tests.support.bombs import BOMBS
from tests.support.brokers import KAFKA_41, REPOSITORY, Broker
from tests.support.instances import compacted_config, holder, instance, write
from tests.support.kafka_topics import create_topic, delete_topic, produce_values, producer_of, settings_of, with_client
from tests.support.raw_produce import produce_raw, produce_records
from tests.support.records import Rec
from tests.support.relay import delayed_address
from tests.support.round_trip import ArchiveSite
from tests.support.secure_broker import PASSWORD, USER, Certificates, SecureBroker
from tests.support.service import Instance, eventually

pytestmark = pytest.mark.kafka

OTHER = RolePlace(topic="payments", life=0, partition=0)
PLACE = RolePlace(topic="orders", life=1, partition=3)
TO_NOTHING: dict[str, Any] = {"compression.type": "zstd", "message.max.bytes": 64 << 20}
_PATIENCE_S = 30
_SLACK_S = 5  # a machine may be busy


def event(place: RolePlace = PLACE, instance: str = "a") -> CoordinationEvent:
    return CoordinationEvent(
        kind=ACTIVATE, instance=instance, place=place, generation=4, offset=7, timestamp_ms=time.time_ns() // 1_000_000
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
    coordination = Coordination(settings)
    try:
        await coordination.start()
        yield coordination
    finally:
        await coordination.close()


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
            assert (ours.ignored, theirs.ignored) == (0, 0)

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
        "offset": 7,
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


def test_what_was_told_before_is_not_heard(fresh: Broker) -> None:
    settings = settings_of(fresh.bootstrap)

    async def run() -> None:
        async with started(settings) as ours:
            await ours.tell(event(OTHER))
            async with started(settings) as theirs:
                await ours.tell(event())
                assert await heard(theirs) == {PLACE}

    asyncio.run(run())


def test_many_events_are_told(fresh: Broker) -> None:
    settings = settings_of(fresh.bootstrap)
    places = {RolePlace(topic="t" * 249, life=0, partition=number) for number in range(100)}

    async def run() -> None:
        async with started(settings) as ours, started(settings) as theirs:
            for place in places:
                await ours.tell(event(place))
            found: set[RolePlace] = set()
            while found != places:
                found |= await heard(theirs)

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
            assert theirs.ignored == 4  # two values, a batch that is too large, and a tombstone

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


def test_waiting_can_be_given_up(fresh: Broker) -> None:
    settings = settings_of(fresh.bootstrap)

    async def run() -> None:
        async with started(settings) as ours, started(settings) as theirs:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(theirs.hints(), 0.5)
            await ours.tell(event())
            assert await heard(theirs) == {PLACE}

    asyncio.run(run())


# --- rights


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    folder = tmp_path_factory.mktemp("coordination")
    broker = SecureBroker(kafka_jars(KAFKA_41), folder / "kafka", Certificates.make(folder / "certificates"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def of_user(broker: SecureBroker) -> KafkaSettings:
    return settings_of(
        broker.address("SASL"),
        **{
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        },
    )


DESCRIBE, READ, WRITE, CREATE = (
    (ResourceType.TOPIC, COORDINATION_TOPIC, operation)
    for operation in (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE)
)


@pytest.mark.parametrize(
    ("rights", "exists", "told"),
    [
        ((), False, "grant this user Describe on topic"),
        ((DESCRIBE,), False, "grant this user Create on topic"),
        ((DESCRIBE, READ), True, "grant this user Write on topic"),
        ((DESCRIBE, WRITE), True, "grant this user Read on topic"),
    ],
)
def test_a_refusal_is_told_once_and_nothing_is_raised(
    secure: SecureBroker, rights: tuple[object, ...], *, exists: bool, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with suppress(KafkaError):
        delete_topic(secure.bootstrap, COORDINATION_TOPIC)
    if exists:
        create_topic(secure.bootstrap, COORDINATION_TOPIC)
    secure.grant(*rights)  # type: ignore[arg-type]

    async def run() -> None:
        async with started(of_user(secure)) as coordination:
            for _ in range(3):
                await coordination.tell(event())
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(coordination.hints(), 1)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("archiver")]
    assert told in line
    assert line.endswith("and look now and then, which is slower and enough")


def test_with_these_rights_all_works(secure: SecureBroker, caplog: pytest.LogCaptureFixture) -> None:
    with suppress(KafkaError):
        delete_topic(secure.bootstrap, COORDINATION_TOPIC)
    secure.grant(DESCRIBE, READ, WRITE, CREATE)

    async def run() -> None:
        async with started(of_user(secure)) as ours, started(of_user(secure)) as theirs:
            await ours.tell(event())
            assert await heard(theirs) == {PLACE}

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert not [record for record in caplog.records if record.name.startswith("archiver")]


def test_without_brokers_nothing_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with started(settings_of("127.0.0.1:1", **{"socket.timeout.ms": 1000})) as coordination:
            await coordination.tell(event())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(coordination.hints(), 3)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert not [record for record in caplog.records if record.name.startswith("archiver.backup")]


@pytest.mark.installed
@pytest.mark.s3
@pytest.mark.timeout(180)
@pytest.mark.parametrize("state", ["reads bombs", "its store hangs", "it starts"])
def test_an_instance_ends_soon_after_sigterm_and_stays_small(
    fresh: Broker, site: ArchiveSite, topic: str, state: str
) -> None:
    """Of 60 batches of 7 million empty headers, 31 kB as they were sent, it took 1.9 GB, and did not end in 40 s."""
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
            before = peak_bytes_of(a)
            if state == "reads bombs":
                produce_raw(fresh.bootstrap, COORDINATION_TOPIC, [BOMBS["empty headers"](14)] * 60)
                time.sleep(5)
                assert peak_bytes_of(a) - before < 50 << 20
            elif state == "its store hangs":
                hangs.set()
                write(fresh.bootstrap, topic, {"k": "2"})
                time.sleep(3)
            begun_s = time.monotonic()
            assert a.stop() in {0, EXIT_CODE}
            took_s = time.monotonic() - begun_s
            print(f"{state}: it ended after {took_s:.1f} s")
            assert took_s < 15 + _SLACK_S


def peak_bytes_of(one: Instance) -> int:
    lines = Path(f"/proc/{one.process.pid}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
