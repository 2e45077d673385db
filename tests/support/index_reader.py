"""Reads and writes files of the index by docs/format.md §9 alone: it shares no code with the archiver."""

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import zstandard

NUMBERS = (
    "kind", "partition", "merged", "rewrite", "size", "base", "first", "last", "next", "records", "tombstones",
    "min_timestamp", "max_timestamp", "bytes", "largest_record", "source_bytes", "digest", "unserved", "stable_end",
)  # fmt: skip
TEXTS = ("etag", "sha256")
SKIPPED = bytes.fromhex("502a4d1804000000")


class Member(NamedTuple):
    """The line of a member, and its columns."""

    header: dict[str, Any]
    numbers: dict[str, list[int]]
    texts: dict[str, list[str]]


def read_file(content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the first line, and the members as they are."""
    size = struct.unpack_from("<I", content, 8)[0]
    first = json.loads(expand(content[12 : 12 + size]))
    members, at = [], 12 + size
    for _, _, length in first["directories"]:
        members.append(content[at : at + length])
        at += length
    return first, members


def read_member(frame: bytes) -> Member:
    line, _, rest = expand(frame).partition(b"\n")
    header, numbers, texts, at = json.loads(line), {}, {}, 0
    count = header["count"]
    for name in NUMBERS:
        numbers[name] = list(struct.unpack_from(f"<{count}q", rest, at))
        at += 8 * count
    for name in TEXTS:
        width = header[name]
        padded = [rest[at + width * row : at + width * (row + 1)] for row in range(count)]
        texts[name] = [text.rstrip(b"\0").decode() for text in padded]
        at += width * count
    return Member(header, numbers, texts)


def facts_of(member: Member, row: int) -> dict[str, Any]:
    """Return the columns of one entry, and the facts that it shares with others."""
    numbers = {name: column[row] for name, column in member.numbers.items()}
    texts = {name: column[row] for name, column in member.texts.items()}
    return {**numbers, **texts, **member.header["kinds"][numbers["kind"]]}


def write_member(member: Member) -> bytes:
    header, numbers, texts = member
    columns = [struct.pack(f"<{len(column)}q", *column) for column in numbers.values()]
    padded = [text.encode().ljust(header[name], b"\0") for name, column in texts.items() for text in column]
    return compress(b"".join([json.dumps(header).encode(), b"\n", *columns, *padded]))


def write_file(first: object, members: Iterable[bytes] = ()) -> bytes:
    line = compress(json.dumps(first).encode() + b"\n")
    return b"".join([SKIPPED, struct.pack("<I", len(line)), line, *members])


def write_topics(members: Mapping[str, bytes]) -> bytes:
    """Return a file with a member for each of these topics."""
    directories = [[topic, 0, len(member)] for topic, member in members.items()]
    return write_file({"format": 1, "directories": directories}, members.values())


def expand(frame: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(frame).read()


def compress(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)
