"""Encodes and decodes one member of an index file: a topic directory's entries, as columns in zstd behind a JSON line (docs/format.md §9)."""

import io
import json
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, BinaryIO, Final, cast

import numpy as np
import zstandard

from archiver.archive.format.layout import MOST_PARTITION
from archiver.archive.segments.entries import NUMBERS, Entries, Traits, can_be
from archiver.archive.segments.segment_facts import FORMAT_VERSION, UNENCRYPTED, parse_fact, spell_fact
from archiver.codec.selection import FIRST_LONG, LAST_LONG
from archiver.errors import CorruptSegmentError
from archiver.process.values.columns import Numbers, Texts, chunks, narrow, narrowest
from archiver.process.values.json_values import MOST_PARSED_BYTES, as_list, as_number, as_object, as_text, parse_json

_LEVEL = 1  # hashes do not compress: level 3 takes four times as long without a gain
_READ_BYTES: Final = 1 << 16
_MOST_WINDOW_BYTES: Final = 8 << 20  # our own members have a window of half a megabyte
# Our members expand to four times their size; with long, similar names to eighty times.
_MOST_TIMES: Final = 16
_FEW_BYTES: Final = 1 << 20  # any member may expand to this
# Parsed, the line of a file takes fifteen times its text; empty lists take sixty times.
_MOST_PARSED_TIMES: Final = 20
_MOST_LINE_BYTES: Final = 384 << 20  # parsed: of the longest first line, 32 MiB, with 800,000 topic directories
_MOST_TAG: Final = 256  # characters of an ETag or a hash: each takes the width of the longest

# The columns of a member in their order, and the range of their values; `can_be` checks facts more strictly.
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "kind": (0, LAST_LONG),
    "partition": (0, MOST_PARTITION),
    "merged": (0, 1),
    "rewrite": (0, MOST_PARTITION),
    "size": (0, LAST_LONG),
    **dict.fromkeys(NUMBERS, (FIRST_LONG, LAST_LONG)),
}
_TAGS: Final = ("etag", "sha256")
_NUMBER: Final = np.dtype("<i8")


def encode_member(entries: Entries) -> bytes:
    """Encode the entries of one topic directory. All entries have facts."""
    used, kind = np.unique(entries.numbers("kind"), return_inverse=True)
    numbers = {name: kind if name == "kind" else entries.numbers(name) for name in _NUMBERS}
    tags = {name: entries.texts(name) for name in _TAGS}
    widths = {name: texts.width for name, texts in tags.items()}
    kinds = [_spelled(cast("Traits", entries.traits[number])) for number in used.tolist()]
    pieces = (column.astype(_NUMBER).tobytes() for column in numbers.values())
    padded = (texts.only(rows).padded() for texts in tags.values() for rows in chunks(len(entries)))
    size = len(entries) * _row_bytes(widths)
    return pack({"count": len(entries), **widths, "kinds": kinds}, chain(pieces, padded), size)


def _spelled(traits: Traits) -> dict[str, str]:
    return {name: spell_fact(name, value) for name, value in traits._asdict().items()}


def _row_bytes(widths: Mapping[str, int]) -> int:
    return _NUMBER.itemsize * len(_NUMBERS) + sum(widths.values())


def pack(header: Mapping[str, object], columns: Iterable[bytes] = (), columns_bytes: int = 0) -> bytes:
    """Pack a line of JSON and the columns behind it into one zstd frame."""
    line = f"{json.dumps(header, separators=(',', ':'))}\n".encode()
    packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj(size=len(line) + columns_bytes)
    return b"".join([packer.compress(line), *map(packer.compress, columns), packer.flush()])


def unpack(pieces: deque[bytes], most_bytes: int) -> tuple[dict[str, Any], BinaryIO]:
    """Read the line of a frame; return it with a reader of the columns behind it. Consumes `pieces`. Raises ValueError or ZstdError."""
    unpacker = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES)
    frame = unpacker.stream_reader(cast("BinaryIO", _Pieces(pieces)))
    stream: BinaryIO = io.BufferedReader(cast("io.RawIOBase", frame))
    line = stream.readline(most_bytes)
    if not line.endswith(b"\n"):
        raise ValueError("cut, or expanding to more than it could")
    most_parsed = min(MOST_PARSED_BYTES + _MOST_PARSED_TIMES * len(line), _MOST_LINE_BYTES)
    return as_object(parse_json(line, most_parsed)), stream


class _Pieces:
    """A file whose bytes are freed while it is read."""

    def __init__(self, pieces: deque[bytes]) -> None:
        self._pieces = pieces

    def read(self, _size: int) -> bytes:
        return self._pieces.popleft() if self._pieces else b""


def cut_member(member: bytes) -> deque[bytes]:
    """Cut a member into pieces that are freed one by one: the member and its entries at once would take too much memory."""
    return deque(member[start : start + _READ_BYTES] for start in range(0, len(member), _READ_BYTES))


def decode_member(pieces: deque[bytes], key: str) -> Entries:
    """Decode the entries of one topic directory; consumes `pieces`. Raises CorruptSegmentError.

    Entries with impossible facts, or facts of a later format, come without facts; their other columns hold.
    """
    try:
        return _decode(pieces, sum(map(len, pieces)))
    except (zstandard.ZstdError, ValueError) as error:
        raise CorruptSegmentError(f"{key}: not an index: {error}") from error


def _decode(pieces: deque[bytes], packed_bytes: int) -> Entries:
    most_bytes = _FEW_BYTES + _MOST_TIMES * packed_bytes
    header, stream = unpack(pieces, most_bytes)
    count = as_number(header.get("count"), 1, packed_bytes)  # each entry has a digest, which does not compress
    widths = {name: as_number(header.get(name), 1, _MOST_TAG) for name in _TAGS}
    if count * _row_bytes(widths) > most_bytes:
        raise ValueError("expanding to more than it could")
    traits = [_traits(as_object(one)) for one in as_list(header.get("kinds"))]
    columns: dict[str, Numbers | Texts] = {
        name: _read_numbers(stream, count, least, len(traits) - 1 if name == "kind" else most)
        for name, (least, most) in _NUMBERS.items()
    }
    columns |= {name: _read_texts(stream, count, width) for name, width in widths.items()}
    if stream.read(1):  # reading past the end of the frame checks its checksum
        raise ValueError("more than its columns")
    kind, possible = cast("Numbers", columns["kind"]), _can_be(columns, count)
    kinds = kind if possible.all() else np.where(possible, kind, len(traits))  # without facts
    return Entries(
        {**columns, "merged": cast("Numbers", columns["merged"]).astype(bool), "kind": narrow(kinds)}, [*traits, None]
    )


def _take(stream: BinaryIO, size: int) -> bytes:
    found = stream.read(size)
    if len(found) != size:
        raise ValueError("cut")
    return found


def _read_numbers(stream: BinaryIO, count: int, least: int, most: int) -> Numbers:
    found = np.frombuffer(_take(stream, count * _NUMBER.itemsize), _NUMBER)
    smallest, largest = int(found.min()), int(found.max())
    if not least <= smallest <= largest <= most:
        raise ValueError("a number that is too small or too large")
    return found if smallest < 0 else found.astype(narrowest(largest), copy=False)


def _read_texts(stream: BinaryIO, count: int, width: int) -> Texts:
    return Texts.join([Texts.unpad(_take(stream, width * (rows.stop - rows.start)), width) for rows in chunks(count)])


def _can_be(columns: Mapping[str, Numbers | Texts], count: int) -> Numbers:
    numbers = {name: cast("Numbers", columns[name]) for name in NUMBERS}
    return np.concatenate(
        [can_be({name: column[rows].astype(np.int64) for name, column in numbers.items()}) for rows in chunks(count)]
    )


def _traits(told: Mapping[str, Any]) -> Traits | None:
    """Parse the common facts of entries; None for facts of a later format, and for impossible ones."""
    texts = [as_text(told.get(name)) for name in Traits._fields]
    try:
        found = Traits._make(map(parse_fact, Traits._fields, texts))
    except ValueError:
        return None
    is_known = found.format <= FORMAT_VERSION and found.encryption == UNENCRYPTED
    return found if is_known and -1 <= found.leader_epoch < 2**31 else None
