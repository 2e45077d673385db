"""Objects of every format version must read the same in all later versions, and broken ones must be refused by the same name."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any, cast

import fastavro
import pytest

from archiver import errors
from archiver.archive.segments.segment import open_segment
from archiver.archive.segments.segment_facts import facts_from_header, facts_from_metadata
from tests.support.frames import digest_of, of_avro, records_of
from tests.support.records import Rec

HERE = Path(__file__).parent / "format-1"
MANIFEST: dict[str, dict[str, Any]] = json.loads((HERE / "manifest.json").read_text())
whole = pytest.mark.parametrize("name", [name for name, entry in MANIFEST.items() if "records" in entry])
broken = pytest.mark.parametrize("name", [name for name, entry in MANIFEST.items() if "error" in entry])


def content_of(name: str) -> bytes:
    return (HERE / name).read_bytes()


def read(name: str, *, with_metadata: bool = True) -> list[Rec]:
    metadata = MANIFEST[name]["metadata"] if with_metadata else {}
    return records_of(*open_segment(content_of(name), metadata, name).frames("golden", 7))


def expected(name: str) -> list[Rec]:
    return [
        Rec(
            offset=record["offset"],
            timestamp=record["timestamp"],
            timestamp_type=record["timestamp_type"],
            key=spelled(record["key"]),
            value=spelled(record["value"]),
            headers=tuple((spelled(key) or b"", spelled(value)) for key, value in record["headers"]),
        )
        for record in MANIFEST[name]["records"]
    ]


def spelled(text: str | None) -> bytes | None:
    if text is None:
        return None
    return bytes(int(text.split()[0])) if text.endswith("zeros") else bytes.fromhex(text)


def test_nothing_was_regenerated() -> None:
    assert {path.name for path in HERE.iterdir()} == {*MANIFEST, "manifest.json"}
    for name, entry in MANIFEST.items():
        assert hashlib.sha256(content_of(name)).hexdigest() == entry["sha256"], name


@whole
def test_records_are_what_they_were(name: str) -> None:
    assert read(name) == expected(name)
    assert read(name, with_metadata=False) == expected(name)


@whole
def test_fastavro_reads_the_same(name: str) -> None:
    found = [of_avro(cast("dict[str, Any]", row)) for row in fastavro.reader(io.BytesIO(content_of(name)))]
    assert found == expected(name)


@whole
def test_facts_are_what_they_were(name: str) -> None:
    metadata, records = MANIFEST[name]["metadata"], expected(name)
    facts = facts_from_metadata(metadata, name)
    if facts is None:
        assert name.startswith("v1.0")
        return
    assert metadata.items() <= facts.to_metadata().items()  # they are from before the checksum of facts
    reader = fastavro.reader(io.BytesIO(content_of(name)))
    assert facts_from_header(reader.metadata, name) == facts
    assert (facts.records, facts.first, facts.last) == (len(records), records[0].offset, records[-1].offset)
    assert facts.digest == digest_of(records)
    assert (facts.base, facts.next, [str(hole) for hole in facts.holes]) == (999, 1050, ["999-999:expired"])


@broken
def test_what_is_broken_is_named(name: str) -> None:
    entry = MANIFEST[name]
    for with_metadata in (True, False):
        with pytest.raises(getattr(errors, entry["error"]), match=f"{name}: .*{entry['reason']}"):
            read(name, with_metadata=with_metadata)


def test_a_stranger_does_not_notice_the_cut() -> None:
    """The reason why counts stand outside the body."""
    assert 0 < len(list(fastavro.reader(io.BytesIO(content_of("cut-at-block.data"))))) < len(expected("zstandard.data"))
