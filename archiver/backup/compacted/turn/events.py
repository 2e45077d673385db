"""Encodes and decodes events between instances, as records of the coordination topic (docs/format.md §13)."""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import fastavro
import numpy as np
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.layout import MOST_OFFSET, MOST_PARTITION, is_instance, is_partition_number
from archiver.backup.compacted.turn.turn_decisions import ACTIVATE, PASSIVATE
from archiver.codec.frame import Column, Frame
from archiver.codec.rows import PlainRecord, plain_records_of
from archiver.codec.schemas import COORDINATION, load_schema

NOT_TOLD: Final = -1  # in place of an offset
_MARK: Final = b"\xc3\x01"  # of Avro's single-object encoding; the schema's fingerprint follows
_MOST_BYTES: Final = 1024  # of a key or a value: a topic's name has at most 249
_MOST_HEADER_BYTES: Final = 64
_MOST_EVENTS: Final = 10_000  # of a frame: each becomes a value of its own
_GENERATION: Final = b"generation"
_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationEvent:
    """A request to read the role log of a partition. It has no other effect.

    `offset`: the end of its copy, for people; -1: unknown.
    """

    kind: str
    instance: str
    place: RolePlace
    generation: int
    offset: int = NOT_TOLD
    timestamp_ms: int

    def __post_init__(self) -> None:
        if self.kind not in {ACTIVATE, PASSIVATE} or not is_instance(self.instance):
            raise ValueError(f"not an event of an instance: {self.kind!r} of {self.instance!r}")
        if max(self.place.life, self.place.partition) > MOST_PARTITION or self.offset < NOT_TOLD:
            raise ValueError(f"not a place in a log: {self.place}, offset {self.offset}")
        if not 0 <= self.generation <= MOST_OFFSET or min(self.timestamp_ms, MOST_OFFSET - self.timestamp_ms) < 0:
            raise ValueError(f"not a generation, or not a time: {self.generation}, {self.timestamp_ms}")


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
        "offset": event.offset,
        "timestamp": event.timestamp_ms,
    }
    fastavro.schemaless_writer(out, _schema(), fields)
    key, value, number = encode_key(event.place), out.getvalue(), str(event.generation).encode()
    header = b"".join((bytes([2 * len(one)]) + one) for one in (_GENERATION, number))  # lengths as zigzag varints
    row = (0, event.timestamp_ms, 0, 0, len(key), len(key), len(value), 0, len(header), 1)
    body, header_body = (np.frombuffer(one, np.uint8) for one in (key + value, header))
    return Frame(body=body, header_body=header_body, table=np.array(row, np.int64).reshape(len(Column), 1))


def events_in(frame: Frame) -> list[CoordinationEvent]:
    """Decode the newest events in a frame. Makes no Python value of a record whose columns rule out an event."""
    is_one = frame.column(Column.HEADER_COUNT) == 1
    bounds = (
        (Column.KEY_LENGTH, _MOST_BYTES),
        (Column.VALUE_LENGTH, _MOST_BYTES),
        (Column.HEADER_LENGTH, _MOST_HEADER_BYTES),
    )
    for column, most in bounds:
        is_one &= (frame.column(column) > 0) & (frame.column(column) <= most)
    chosen = frame.only(is_one)
    newest = chosen.rows(max(0, len(chosen) - _MOST_EVENTS), len(chosen))
    return [event for record in plain_records_of(newest) if (event := decode_event(record)) is not None]


def decode_event(record: PlainRecord) -> CoordinationEvent | None:
    """Decode an event; None for anything else: any writer of the topic may write anything."""
    key, value = record.key or b"", record.value or b""
    lead = _lead()
    if not value.startswith(lead) or len(value) > _MOST_BYTES or len(key) > _MOST_BYTES:
        return None
    source = io.BytesIO(value[len(lead) :])
    try:
        fields = cast("dict[str, Any]", fastavro.schemaless_reader(source, _schema(), None))
        return None if source.read(1) else _event_of(fields, key.decode(), record.headers)
    except Exception:  # noqa: BLE001 - fastavro does not document its errors for garbage
        return None


def _event_of(
    fields: dict[str, Any], key: str, headers: Sequence[tuple[bytes, bytes | None]]
) -> CoordinationEvent | None:
    """Raises ValueError for an impossible place, instance or number."""
    life = key.split("/")[1]
    ((name, number),) = headers
    if not is_partition_number(life) or name != _GENERATION or not _NUMBER.fullmatch(number or b""):
        return None
    event = CoordinationEvent(
        kind=fields["event"],
        instance=fields["connectorInstanceName"],
        place=RolePlace(topic=fields["topic"], life=int(life), partition=fields["partition"]),
        generation=int(number or b""),
        offset=fields["offset"],
        timestamp_ms=fields["timestamp"],
    )
    return event if encode_key(event.place).decode() == key else None


@cache
def _schema() -> Any:  # noqa: ANN401 - as fastavro has it
    return parse_schema(json.loads(load_schema(COORDINATION)))


@cache
def _lead() -> bytes:
    """Return the prefix of each value: the mark, and the CRC-64 of the schema's canonical form, little-endian."""
    digits = fingerprint(to_parsing_canonical_form(json.loads(load_schema(COORDINATION))), "CRC-64-AVRO")
    return _MARK + bytes.fromhex(digits)
