"""One file of the index of segment facts: gzip members, a line that names the topic directories, then one for each (docs/format.md §9)."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from archiver.errors import CorruptSegmentError, FormatTooNewError
from archiver.facts import FORMAT_VERSION, TEXTS, SegmentFacts, parse_fact, spell_fact
from archiver.layout import FACT_DIGITS, SegmentKey

FORMAT = 1
_GZIP = 31  # zlib's number for it
_LEVEL = 1  # hashes do not get smaller: level 6 takes four times as long for 5 %
_MOST_BYTES = 1 << 30  # of one topic directory, uncompressed: three million segments
# Ours are a third of what they expand to, their first lines a tenth: what expands to more of its size is none of ours.
_MOST_TIMES = 64
_FEW_BYTES = 4 << 20  # that any may expand to
_DEFLATE_AT_MOST = 1032  # times smaller

_BESIDE: Final = ("facts", "beside")  # the names of what SeenBeside has
_MOST_BESIDE: Final = 10**9  # objects

Directory = tuple[str, int]  # topic and life
Place = tuple[int, int, int | None]  # partition, base, and the next that the name of a merged segment has
Row = tuple[Any, ...]  # an entry whose facts are not made yet: most of a large index is never asked for


class IndexEntry(NamedTuple):
    """What the index knows of one object. It holds for an object of this key that has this size and this ETag."""

    key: SegmentKey
    size: int
    etag: str
    facts: SegmentFacts


_PLACE: Final[Mapping[str, type]] = {"partition": int, "merged": bool, "size": int, "etag": str}
_FACTS: Final = tuple(item.name for item in fields(SegmentFacts))
_SPELLED: Final = frozenset({"holes", "timestamp_types", "digest"})  # as in the metadata
_COLUMNS: Final[Mapping[str, type]] = {**_PLACE, **{name: str if name in TEXTS | _SPELLED else int for name in _FACTS}}


_NONE: Final[Mapping[str, int]] = MappingProxyType({})


class SeenBeside(NamedTuple):
    """What writers saw beside the records: nothing else would tell that the last of it is gone."""

    newest_facts: Mapping[str, int] = _NONE  # by topic: the number of its newest control fact
    counts: Mapping[str, int] = _NONE  # of objects, by what they belong to (archiver.beside.count_beside)

    def joined(self, other: "SeenBeside") -> "SeenBeside":
        """Return the larger number of each: they only grow."""
        return SeenBeside(*(_larger(one, more) for one, more in zip(self, other, strict=True)))


NOTHING_SEEN: Final = SeenBeside()


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (one.keys() | other.keys())}


class IndexFile(NamedTuple):
    """A file that was split: a member for each topic directory, still packed, and what its writer saw beside the records."""

    members: Mapping[Directory, bytes]
    beside: SeenBeside


def encode_index(entries: Iterable[IndexEntry], beside: SeenBeside = NOTHING_SEEN) -> bytes:
    """Write a whole file."""
    grouped: dict[Directory, list[IndexEntry]] = {}
    for entry in entries:
        grouped.setdefault((entry.key.topic, entry.key.life), []).append(entry)
    return join_members({directory: encode_member(grouped[directory]) for directory in sorted(grouped)}, beside)


def join_members(members: Mapping[Directory, bytes], beside: SeenBeside) -> bytes:
    """Make a file of what `encode_member` wrote for each topic directory."""
    names = [[topic, life, len(member)] for (topic, life), member in members.items()]
    seen = {name: dict(sorted(found.items())) for name, found in zip(_BESIDE, beside, strict=True) if found}
    return b"".join([_compress({"format": FORMAT, "directories": names, **seen}), *members.values()])


def encode_member(entries: Sequence[IndexEntry]) -> bytes:
    """Write the entries of one topic directory. A column that is the same in all of them is written once."""
    columns: dict[str, list[Any]] = {
        "partition": [entry.key.partition for entry in entries],
        "merged": [entry.key.next is not None for entry in entries],
        "size": [entry.size for entry in entries],
        "etag": [entry.etag for entry in entries],
    }
    for name in _FACTS:
        values = [getattr(entry.facts, name) for entry in entries]
        columns[name] = [spell_fact(name, value) for value in values] if name in _SPELLED else values
    same = {name: values[0] if values.count(values[0]) == len(values) else values for name, values in columns.items()}
    return _compress({"count": len(entries), **same})


def _compress(value: object) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    text = json.dumps(value, separators=(",", ":")).encode()
    return packer.compress(text + b"\n") + packer.flush()


def split_file(content: bytes, key: str) -> IndexFile:
    """Split a file by topic directory, without looking into the members. Raises NotWholeError."""
    header, start = _decompress(content, key)
    version = header.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise FormatTooNewError(f"{key}: format {version} is newer than this program reads ({FORMAT})")
    members: dict[Directory, bytes] = {}
    try:
        for topic, life, length in header["directories"]:
            members[topic, life] = content[start : start + length]
            start += length
        facts, counts = (dict(header.get(name, {}).items()) for name in _BESIDE)
        beside = SeenBeside(
            {topic: _number_below(10**FACT_DIGITS, number) for topic, number in facts.items()},
            {name: _number_below(_MOST_BESIDE, number) for name, number in counts.items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptSegmentError(f"{key}: not an index: {error!r}") from error
    if start != len(content) or version != FORMAT:
        raise CorruptSegmentError(f"{key}: not an index: {len(content)} bytes, {start} expected")
    return IndexFile(members, beside)


def _number_below(limit: int, value: object) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"number {value!r}")
    return value


def _decompress(content: bytes, key: str) -> tuple[dict[str, Any], int]:
    """Read one member, and tell where it ends; gzip checks its bytes."""
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        text = unpacker.decompress(content, min(_MOST_BYTES, _FEW_BYTES + _MOST_TIMES * len(content)))
        value = json.loads(text)
    except (zlib.error, ValueError) as error:
        raise CorruptSegmentError(f"{key}: not an index: {error}") from error
    except RecursionError as error:
        raise CorruptSegmentError(f"{key}: not an index: nested too deep") from error
    if not unpacker.eof or not isinstance(value, dict):
        raise CorruptSegmentError(f"{key}: not an index: cut, expanding to more than it could, or no object")
    return value, len(content) - len(unpacker.unused_data)


def _column(found: Mapping[str, Any], name: str, kind: type, count: int, key: str) -> Iterable[Any]:
    values = found.get(name)
    if type(values) is kind:
        return repeat(values, count)
    if not isinstance(values, list) or len(values) != count or set(map(type, values)) != {kind}:
        raise CorruptSegmentError(f"{key}: not an index: column {name}")
    return values


_PLACES = len(_PLACE)
_SIZE, _ETAG = (list(_PLACE).index(name) for name in ("size", "etag"))
_BASE, _NEXT = (_PLACES + _FACTS.index(name) for name in ("base", "next"))


def place_of(key: SegmentKey) -> Place:
    return key.partition, key.base, key.next


def decode_member(member: bytes, key: str) -> dict[Place, Row]:
    """Read the entries of one topic directory, as rows by their place. Raises NotWholeError."""
    found, _ = _decompress(member, key)
    count = found.get("count")
    if not isinstance(count, int) or not 0 <= count <= len(member) * _DEFLATE_AT_MOST:
        raise CorruptSegmentError(f"{key}: not an index: {count!r} entries")
    rows = zip(*(_column(found, name, kind, count, key) for name, kind in _COLUMNS.items()), strict=True)
    return {(row[0], row[_BASE], row[_NEXT] if row[1] else None): row for row in rows}


def facts_of(row: Row) -> SegmentFacts:
    """Make facts of a row. Raises ValueError when they cannot be, or are of a later format."""
    facts = dict(zip(_FACTS, row[_PLACES:], strict=True))
    for name in _SPELLED:
        facts[name] = parse_fact(name, facts[name])
    if facts["format"] > FORMAT_VERSION:
        raise ValueError(f"format {facts['format']}")
    return SegmentFacts(**facts)


def entry_of(directory: Directory, row: Row) -> IndexEntry:
    """Make an entry of a row, as it was written. Raises ValueError as facts_of does."""
    facts = facts_of(row)
    topic, life = directory
    key = SegmentKey(topic=topic, life=life, partition=row[0], base=facts.base, next=facts.next if row[1] else None)
    return IndexEntry(key, row[_SIZE], row[_ETAG], facts)


def size_of(row: Row) -> int:
    """Return the size of the object that an entry is of."""
    size: int = row[_SIZE]
    return size


def reach_of(row: Row) -> tuple[int, int]:
    """Return the partition of an entry, and the offset that its object reaches up to."""
    return row[0], row[_NEXT]


def span_of(row: Row) -> tuple[int, int, int]:
    """Return the partition of an entry, and the coverage of its object: from its base up to its next."""
    return row[0], row[_BASE], row[_NEXT]


def is_of(row: Row, size: int, etag: str) -> bool:
    """Tell whether a row is of an object of this size and this ETag; without an ETag it is of none."""
    return bool(etag) and (row[_SIZE], row[_ETAG]) == (size, etag)
