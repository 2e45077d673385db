"""Encodes and decodes events between instances, as records of the coordination topic (docs/format.md §13)."""

import io
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, cast

import fastavro
import numpy as np
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.layout import is_instance
from archiver.codec.frame import Column, Frame
from archiver.codec.rows import PlainRecord, plain_records_of
from archiver.codec.schemas import COORDINATION, load_schema

_NOT_TOLD: Final = -1  # in place of an offset, which is for people
_MARK: Final = b"\xc3\x01"  # of Avro's single-object encoding; the schema's fingerprint follows
# Bytes of an event: a topic's name has at most 249.
_MOST_BYTES: Final[Mapping[Column, int]] = {
    Column.KEY_LENGTH: 1024,
    Column.VALUE_LENGTH: 1024,
    Column.HEADER_LENGTH: 64,
}
_MOST_EVENTS: Final = 10_000  # of a frame: each becomes a value of its own


class CoordinationEvent(NamedTuple):
    """A request to read the role log of a partition. It has no other effect."""

    kind: str
    instance: str
    place: RolePlace
    generation: int
    timestamp_ms: int


class Heard(NamedTuple):
    """The part of an event that counts: its sender, and the partition."""

    instance: str
    place: RolePlace


def encode_key(place: RolePlace) -> bytes:
    return f"{place.topic}/{place.life}/{place.partition}".encode()


def encode_event(event: CoordinationEvent) -> Frame:
    """Encode an event as a record: its value in Avro's single-object encoding."""
    out = io.BytesIO()
    out.write(_lead())
    fields = {
        "event": event.kind,
        "connectorInstanceName": event.instance,
        "topic": event.place.topic,
        "partition": event.place.partition,
        "offset": _NOT_TOLD,
        "timestamp": event.timestamp_ms,
    }
    fastavro.schemaless_writer(out, _schema(), fields)
    key, value, number = encode_key(event.place), out.getvalue(), str(event.generation).encode()
    header = b"".join((bytes([2 * len(one)]) + one) for one in (b"generation", number))  # lengths as zigzag varints
    row = (0, event.timestamp_ms, 0, 0, len(key), len(key), len(value), 0, len(header), 1)
    body, header_body = (np.frombuffer(one, np.uint8) for one in (key + value, header))
    return Frame(body=body, header_body=header_body, table=np.array(row, np.int64).reshape(len(Column), 1))


def events_in(frame: Frame) -> Iterator[Heard]:
    """Decode the newest events in a frame. Makes no Python value of a record whose columns rule out an event."""
    is_one = frame.column(Column.HEADER_COUNT) == 1
    for column, most in _MOST_BYTES.items():
        is_one &= (frame.column(column) > 0) & (frame.column(column) <= most)
    chosen = frame.only(is_one)
    newest = chosen.rows(max(0, len(chosen) - _MOST_EVENTS), len(chosen))
    return (event for record in plain_records_of(newest) if (event := decode_event(record)) is not None)


def decode_event(record: PlainRecord) -> Heard | None:
    """Decode an event; None for anything else: any writer of the topic may write anything."""
    key, value, lead = record.key or b"", record.value or b"", _lead()
    if not value.startswith(lead):
        return None
    try:
        source = io.BytesIO(value[len(lead) :])
        fields = cast("dict[str, Any]", fastavro.schemaless_reader(source, _schema(), None))
        place = RolePlace(topic=fields["topic"], life=int(key.split(b"/")[1]), partition=fields["partition"])
    except Exception:  # noqa: BLE001 - fastavro does not document its errors for garbage
        return None
    instance, is_whole = fields["connectorInstanceName"], not source.read(1)
    is_event = is_whole and is_instance(instance) and encode_key(place) == key
    return Heard(instance, place) if is_event else None


@cache
def _schema() -> Any:  # noqa: ANN401 - as fastavro has it
    return parse_schema(json.loads(load_schema(COORDINATION)))


@cache
def _lead() -> bytes:
    """Return the prefix of each value: the mark, and the CRC-64 of the schema's canonical form, little-endian."""
    digits = fingerprint(to_parsing_canonical_form(json.loads(load_schema(COORDINATION))), "CRC-64-AVRO")
    return _MARK + bytes.fromhex(digits)
