"""docs/format.md §13: an event as a record of the coordination topic, and what is no event."""

import io
import json
import random
import struct

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.copies.roles import RolePlace
from archiver.backup.compacted.turn.events import CoordinationEvent, decode_event, encode_event
from archiver.backup.compacted.turn.turn_decisions import ACTIVATE, PASSIVATE
from archiver.codec.rows import PlainRecord, plain_records_of
from tests.support.brokers import REPOSITORY

SCHEMA = json.loads((REPOSITORY / "schemas/AvroCompactedLogBackupCoordination-v1.0.avsc").read_text())
EVENT = CoordinationEvent(
    kind=ACTIVATE,
    instance="blue",
    place=RolePlace(topic="orders", life=2, partition=10),
    generation=7,
    timestamp_ms=1_800_000_000_000,
)
# The CRC-64 of Avro's specification of the schema's canonical form, written out by hand there and computed here bit by bit.
CANONICAL = (
    '{"name":"ch.tbd.kafka.backuprestore.model.avro.AvroCompactedLogBackupCoordination","type":"record","fields":['
    '{"name":"event","type":{"name":"ch.tbd.kafka.backuprestore.model.avro.EnumType","type":"enum",'
    '"symbols":["ACTIVATE","PASSIVATE"]}},{"name":"connectorInstanceName","type":"string"},{"name":"topic","type":"string"},'
    '{"name":"partition","type":"int"},{"name":"offset","type":"long"},{"name":"timestamp","type":"long"}]}'
)


def crc_64_avro(text: bytes) -> int:
    empty = found = 0xC15D213AA4D7A795
    for byte in text:
        found ^= byte
        for _ in range(8):
            found = (found >> 1) ^ (empty if found & 1 else 0)
    return found


def record_of(event: CoordinationEvent) -> PlainRecord:
    (record,) = plain_records_of(encode_event(event))
    return record


def test_the_checksum_is_that_of_the_specification() -> None:
    assert crc_64_avro(b'"null"') == 0x63DD24E7CC258F8A


def test_a_stranger_reads_an_event_with_the_schema_alone() -> None:
    record = record_of(EVENT)
    assert record.value is not None
    assert record.value[:10] == b"\xc3\x01" + struct.pack("<Q", crc_64_avro(CANONICAL.encode()))
    assert fastavro.schemaless_reader(io.BytesIO(record.value[10:]), fastavro.parse_schema(SCHEMA), None) == {
        "event": "ACTIVATE",
        "connectorInstanceName": "blue",
        "topic": "orders",
        "partition": 10,
        "offset": -1,
        "timestamp": 1_800_000_000_000,
    }
    assert (record.key, record.headers) == (b"orders/2/10", [(b"generation", b"7")])
    assert (record.timestamp, record.timestamp_type) == (1_800_000_000_000, 0)


PLACES = st.builds(
    RolePlace,
    topic=st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in {".", ".."}),
    life=st.integers(0, 2**31 - 1),
    partition=st.integers(0, 2**31 - 1),
)
EVENTS = st.builds(
    CoordinationEvent,
    kind=st.sampled_from([ACTIVATE, PASSIVATE]),
    instance=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    place=PLACES,
    generation=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(0, 2**63 - 1),
)


@given(EVENTS)
def test_an_event_comes_back(event: CoordinationEvent) -> None:
    assert decode_event(record_of(event)) == (event.instance, event.place)


VALUE = record_of(EVENT).value or b""


@pytest.mark.parametrize(
    "changes",
    [
        {"key": None},
        {"key": b""},
        {"key": b"orders/2/11"},
        {"key": b"orders/02/10"},
        {"key": b"orders/2/10/"},
        {"key": b"\xff/2/10"},
        {"key": b"k" * 5000},
        {"value": None},  # a tombstone
        {"value": b""},
        {"value": VALUE[:-1]},
        {"value": VALUE + b"\0"},
        {"value": VALUE[10:]},
        {"value": b"\xc3\x01" + bytes(8) + VALUE[10:]},
        {"value": VALUE[:10] + b"\x04" + VALUE[11:]},  # the third of two symbols
        {"value": VALUE[:11] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"},  # a text of 2**63 - 1 bytes
        {"value": VALUE[:11] + b"\x01"},  # a text of -1 bytes
        {"value": VALUE.replace(b"blue", b"b/ue")},
    ],
)
def test_what_is_no_event_is_ignored(changes: dict[str, object]) -> None:
    record = record_of(EVENT)
    assert decode_event(record) == (EVENT.instance, EVENT.place)
    assert decode_event(record._replace(**changes)) is None  # type: ignore[arg-type]


def test_no_value_stops_a_reader(seed: int) -> None:
    rng = random.Random(seed)
    record = record_of(EVENT)
    for _ in range(3000):
        value = bytearray(VALUE)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(10, len(value))
            value[at] = rng.randrange(256)
        event = decode_event(record._replace(value=bytes(value[: rng.randrange(10, len(value) + 1)])))
        assert event is None or event.place == EVENT.place  # as the key has it
