"""Schemas parse, and v1.0 and v2.0 read each other (docs/format.md §3) with fastavro. Java's half is in tests/spark."""

import io
import json
from typing import Any

import pytest
from fastavro import parse_schema, reader, writer

from archiver.codec import schemas

Record = dict[str, Any]

PLACE = {"topic": "orders", "partition": 3, "offset": 41, "timestamp": -1}
BARE = PLACE | {"key": b"", "value": b"v", "headers": None}
MAPPED = PLACE | {"key": None, "value": b"", "headers": {"trace": b"\x00\xff"}}
TOMBSTONE = PLACE | {"key": b"k", "value": None, "headers": None}
ADDED = {"orderedHeaders": None, "timestampType": -1}
ORDERED = BARE | {
    "orderedHeaders": [
        {"key": "a", "value": None, "rawKey": None},
        {"key": "a", "value": b"", "rawKey": None},
        {"key": "\ufffd", "value": b"x", "rawKey": b"\xff"},
    ],
    "timestampType": 1,
}


def written(name: str, records: list[Record]) -> io.BytesIO:
    body = io.BytesIO()
    writer(body, parse_schema(json.loads(schemas.load_schema(name))), records, strict=True)
    body.seek(0)
    return body


def read_with(name: str, body: io.BytesIO) -> list[Any]:
    return list(reader(body, parse_schema(json.loads(schemas.load_schema(name)))))


def test_v2_holds_what_v1_cannot() -> None:
    records = [BARE | ADDED, MAPPED | ADDED, TOMBSTONE | ADDED, ORDERED]
    assert list(reader(written(schemas.RECORD, records))) == records


@pytest.mark.parametrize(
    ("v1", "records"),
    [(schemas.RECORD_V1, [BARE, MAPPED]), (schemas.RECORD_V1_NULLABLE, [BARE, MAPPED, TOMBSTONE])],
    ids=["plain", "nullable"],
)
def test_v1_and_v2_read_each_other(v1: str, records: list[Record]) -> None:
    assert read_with(schemas.RECORD, written(v1, records)) == [record | ADDED for record in records]
    assert read_with(v1, written(schemas.RECORD, [record | ADDED for record in records])) == records


def test_a_v1_reader_loses_only_what_v1_has_no_place_for() -> None:
    assert read_with(schemas.RECORD_V1, written(schemas.RECORD, [ORDERED])) == [BARE]


def test_a_v1_reader_with_a_plain_value_stops_at_the_first_tombstone() -> None:
    records = iter(
        reader(
            written(schemas.RECORD, [BARE | ADDED, TOMBSTONE | ADDED, MAPPED | ADDED]),
            parse_schema(json.loads(schemas.load_schema(schemas.RECORD_V1))),
        )
    )
    assert next(records) == BARE
    with pytest.raises(Exception, match="null"):
        next(records)


def test_v2_keeps_every_field_of_v1_in_its_place() -> None:
    old, new = (json.loads(schemas.load_schema(name)) for name in (schemas.RECORD_V1, schemas.RECORD))
    assert (new["namespace"], new["name"]) == (old["namespace"], old["name"])
    names = [[field["name"] for field in schema["fields"]] for schema in (old, new)]
    assert names[1][: len(names[0])] == names[0]
    assert all("default" in field for field in new["fields"][len(names[0]) :])


def test_a_coordination_event_goes_through() -> None:
    event = PLACE | {"event": "PASSIVATE", "connectorInstanceName": "blue"}
    assert list(reader(written(schemas.COORDINATION, [event]))) == [event]
