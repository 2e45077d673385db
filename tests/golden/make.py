"""Wrote the objects of format version 1. Ran once: it never overwrites, and readers of all later versions must read these objects.

`python -m tests.golden.make` in the root of the repository. A later format version gets a script and a folder of its own.
"""

import hashlib
import io
import json
import tempfile
from pathlib import Path

import fastavro

from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment_facts import Hole, HoleCause
from archiver.archive.segments.segment_writer import FinishedSegment, OpenSegment, SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.codec import schemas
from archiver.codec.compression import BlockCodec
from tests.support.frames import avro_of, frame_of
from tests.support.records import Headers, Rec

HERE = Path(__file__).parent / "format-1"
SOURCE = PartitionSource(
    topic="golden", partition=7, life=0, topic_id="Z29sZGVuLXRvcGljLWlkIQ", cluster_id="golden-cluster"
)
BASE, NEXT = 1000, 1050
_TWENTY: Headers = tuple((f"key-{index}".encode(), b"%d" % index) for index in range(20))

# Everything that a record can be. The large value ends a block.
RECORDS = [
    Rec(1000, 1_753_000_000_000, 0, b"key", b'{"n": 1}'),
    Rec(1001, 1_753_000_000_001, 0, None, b"value"),
    Rec(1002, 1_753_000_000_002, 0, b"tombstone", None),
    Rec(1003, 0, 0, b"", b""),
    Rec(1005, -1, 0, None, None, ((b"one", b"1"),)),
    Rec(1006, -(2**63), 0, b"\x00\xff", b"\xff\x00" * 20, ((b"b", b"1"), (b"a", b"2"))),
    Rec(1007, 2**63 - 1, 0, b"big", bytes(600_000), ((b"same", b"1"), (b"same", b"1"))),
    Rec(1010, 5, 1, b"append time", b"v", ((b"null", None), (b"empty", b""), (b"", b"\x00"))),
    Rec(1011, 6, 1, "größe".encode(), "🦜".encode(), (("ключ".encode(), b"v"), ("源".encode(), b""))),
    Rec(1012, 7, -1, b"k", b"v", ((b"caf\xe9", b"latin"), (b"\xff", None), ("\ufffd".encode(), b"utf-8"))),
    Rec(1020, 8, 0, b"big again", bytes(600_000), _TWENTY),
    Rec(1040, 9, 0, b"last", b"v", (*_TWENTY, (b"key-3", b"again"))),
]


def main() -> None:
    HERE.mkdir()
    manifest: dict[str, object] = {}
    for codec in BlockCodec:
        # Uncompressed or by snappy, zeros are too many for a repository.
        small = codec in {BlockCodec.NULL, BlockCodec.SNAPPY}
        records = [record for record in RECORDS if not small or len(record.value or b"") < 1000]
        finished, content = write(records, codec)
        facts = finished.facts.to_metadata()
        manifest[f"{codec.value}.data"] = keep(f"{codec.value}.data", content, facts, records)
    for name, schema in (("v1.0.avro", schemas.RECORD_V1), ("v1.0-nullable.avro", schemas.RECORD_V1_NULLABLE)):
        records = old_records(tombstone=schema == schemas.RECORD_V1_NULLABLE)
        manifest[name] = keep(name, write_old(schema, records), {}, records)
    finished, content = write(RECORDS, BlockCodec.ZSTANDARD)
    manifest |= broken(content, finished.facts.to_metadata())
    with (HERE / "manifest.json").open("x") as file:
        json.dump(manifest, file, indent=1)


def write(records: list[Rec], codec: BlockCodec) -> tuple[FinishedSegment, bytes]:
    with tempfile.TemporaryDirectory() as spool:
        segment = OpenSegment(
            SOURCE, BASE - 1, SegmentLimits(uncompressed_bytes=0, codec=codec, level=1), Spool(Path(spool))
        )
        segment.note_hole(Hole(first_offset=BASE - 1, last_offset=BASE - 1, cause=HoleCause.EXPIRED))
        segment.append(frame_of(records), 0)
        segment.cover(NEXT, leader_epoch=12, source_bytes=4321)
        finished = segment.finish()
        with finished.open_body() as body:
            return finished, body.read()


def old_records(*, tombstone: bool) -> list[Rec]:
    """What v1.0 can hold: no timestamp type, headers as a map."""
    records = [
        Rec(1, 1_753_000_000_000, -1, b"key", b"value"),
        Rec(2, -1, -1, None, b"", ((b"one", b"1"),)),
        Rec(5, 2**63 - 1, -1, b"", b"\xff\x00", ((b"b", b"1"), (b"a", b""), ("ключ".encode(), b"\xff"))),
    ]
    return [*records, Rec(9, 0, -1, b"tombstone", None)] if tombstone else records


def write_old(schema: str, records: list[Rec]) -> bytes:
    target = io.BytesIO()
    values = [avro_of(record, SOURCE.topic, SOURCE.partition) for record in records]
    for value, record in zip(values, records, strict=True):
        value["headers"] = {key.decode(): content for key, content in record.headers} or None
    parsed = fastavro.parse_schema(json.loads(schemas.load_schema(schema)))
    fastavro.writer(target, parsed, values, codec="deflate", sync_interval=40)
    return target.getvalue()


def broken(content: bytes, facts: dict[str, str]) -> dict[str, object]:
    sync = content[-16:]
    first_boundary = content.index(sync) + 16
    flipped = bytearray(content)
    flipped[first_boundary + 40] ^= 0x04
    cut = content[: content.index(sync, first_boundary) + 16]
    future = content.replace(b"\x1earchiver.format\x021", b"\x1earchiver.format\x0499")
    later = facts | {"archiver-format": "99"}
    return {
        "flipped-bit.data": keep_broken("flipped-bit.data", bytes(flipped), facts, "CorruptSegmentError", "SHA-256"),
        "cut-at-block.data": keep_broken("cut-at-block.data", cut, facts, "CorruptSegmentError", "SHA-256"),
        "future.data": keep_broken("future.data", future, later, "FormatTooNewError", "format 99 is newer"),
    }


def keep(name: str, content: bytes, facts: dict[str, str], records: list[Rec]) -> dict[str, object]:
    return put(name, content, facts) | {"records": [spell_record(record) for record in records]}


def keep_broken(name: str, content: bytes, facts: dict[str, str], error: str, reason: str) -> dict[str, object]:
    return put(name, content, facts) | {"error": error, "reason": reason}


def put(name: str, content: bytes, facts: dict[str, str]) -> dict[str, object]:
    with (HERE / name).open("xb") as file:
        file.write(content)
    return {"sha256": hashlib.sha256(content).hexdigest(), "metadata": facts}


def spell_record(record: Rec) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": spell(record.key),
        "value": spell(record.value),
        "headers": [[spell(key), spell(value)] for key, value in record.headers],
    }


def spell(content: bytes | None) -> str | None:
    """Hexadecimal; many zeros as their number."""
    if content is None:
        return None
    return f"{len(content)} zeros" if len(content) > 1000 and not any(content) else content.hex()


if __name__ == "__main__":
    main()
