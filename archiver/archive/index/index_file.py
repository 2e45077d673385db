"""Encodes and splits one file of the index: a header frame, then one zstd frame for each topic directory (docs/format.md §9)."""

import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import zstandard

from archiver.archive.format.layout import LAST_FACT_NUMBER, is_topic_name
from archiver.archive.index.index_member import cut_member, encode_member, pack, unpack
from archiver.archive.segments.entries import Entries, IndexEntry
from archiver.errors import CorruptSegmentError, FormatTooNewError
from archiver.process.values.json_values import as_list, as_number, as_object, as_text

INDEX_FORMAT = 1
# An entry takes 56 to 70 bytes, and ten million of them, merged, one file of 0.6 GB.
MOST_FILE_BYTES: Final = 2 << 30
_MOST_HEADER_BYTES = 32 << 20  # enough for 200,000 topics: a directory each, and the number of a fact
_SMALLEST_MEMBER: Final = 16  # bytes: zstd of an empty object
# A frame that every zstd decoder skips: its kind and the size of its content, which is the size of the frame behind it.
_LEAD: Final = struct.Struct("<III")
_LEAD_MARKS: Final = (0x184D2A50, 4)
# Our first lines expand to ten times their size; first lines of long, similar names to eighty times.
_MOST_HEADER_TIMES = 64
_FEW_HEADER_BYTES = 4 << 20  # any first line may expand to this

_MOST_NAME: Final = 1024  # characters, as of keys in S3
_SEEN_FIELDS: Final = ("facts", "holds")  # how the header names the fields of SeenControl
_MOST_LIFE: Final = 2**31 - 1
_ALL_FILES: Final = LAST_FACT_NUMBER + 1

Directory = tuple[str, int]  # topic and life


_NONE: Final[Mapping[str, int]] = MappingProxyType({})


class SeenControl(NamedTuple):
    """The newest numbers of notes that writers saw: the only later evidence that the last notes of a stream are missing."""

    newest_facts: Mapping[str, int] = _NONE  # by topic
    newest_holds: Mapping[str, int] = _NONE  # by name

    def joined(self, other: "SeenControl") -> "SeenControl":
        """Return the larger one of each pair of numbers: numbers only grow."""
        return SeenControl(*(_larger(one, more) for one, more in zip(self, other, strict=True)))


NOTHING_SEEN: Final = SeenControl()


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (one.keys() | other.keys())}


class IndexFile(NamedTuple):
    """A file, split into its members: one for each topic directory, still packed; and the control objects that its writer saw."""

    members: dict[Directory, bytes]
    seen_control: SeenControl
    merged_files: int  # the numbers of the previous generation below this one are merged in this file


def encode_index(entries: Iterable[tuple[Directory, Entries]], seen_control: SeenControl = NOTHING_SEEN) -> bytes:
    """Encode a whole file."""
    return join_members({directory: encode_member(found) for directory, found in entries}, seen_control)


def group_entries(entries: Iterable[IndexEntry]) -> list[tuple[Directory, Entries]]:
    """Put entries in columns, by topic directory."""
    grouped: dict[Directory, list[IndexEntry]] = {}
    for entry in entries:
        grouped.setdefault((entry.key.topic, entry.key.life), []).append(entry)
    return [(directory, Entries.of(grouped[directory])) for directory in sorted(grouped)]


def join_members(
    members: Mapping[Directory, bytes], seen_control: SeenControl, merged_files: int | None = None
) -> bytes:
    """Join the members of topic directories, from `encode_member`, into a file. `merged_files`: of the first one of a generation."""
    names = [[topic, life, len(member)] for (topic, life), member in members.items()]
    seen = {name: dict(sorted(found.items())) for name, found in zip(_SEEN_FIELDS, seen_control, strict=True) if found}
    merged = {} if merged_files is None else {"merged_files": merged_files}
    first = pack({"format": INDEX_FORMAT, "directories": names, **seen, **merged})
    return b"".join([_LEAD.pack(*_LEAD_MARKS, len(first)), first, *members.values()])


def split_file(content: bytes, key: str) -> IndexFile:
    """Split a file by topic directory, without unpacking the members. Raises NotWholeError."""
    members: dict[Directory, bytes] = {}
    try:
        header, start = _read_header(content)
        version = as_number(header.get("format"), 1)
        if version > INDEX_FORMAT:
            raise FormatTooNewError(f"{key}: format {version} is newer than this program reads ({INDEX_FORMAT})")
        for topic, life, length in map(as_list, as_list(header["directories"])):
            directory = _directory(topic, life)
            if directory in members:
                raise ValueError(f"{directory} twice")  # noqa: TRY301
            members[directory] = content[start : start + as_number(length, _SMALLEST_MEMBER, len(content) - start)]
            start += length
        if start != len(content):
            raise ValueError(f"{len(content)} bytes, {start} expected")  # noqa: TRY301
        seen_control = SeenControl(*(_numbers(header.get(name, {})) for name in _SEEN_FIELDS))
        merged_files = as_number(header.get("merged_files", _ALL_FILES), 0, _ALL_FILES)
    except (KeyError, zstandard.ZstdError, struct.error, ValueError) as error:
        raise CorruptSegmentError(f"{key}: not an index: {error!r}") from error
    return IndexFile(members, seen_control, merged_files)


def _read_header(content: bytes) -> tuple[dict[str, Any], int]:
    """Read the first line; return it with the end of its frame."""
    *marks, size = _LEAD.unpack_from(content)
    if tuple(marks) != _LEAD_MARKS:
        raise ValueError("it begins otherwise")
    end = _LEAD.size + size
    most_bytes = min(_MOST_HEADER_BYTES, _FEW_HEADER_BYTES + _MOST_HEADER_TIMES * len(content))
    header, stream = unpack(cut_member(content[_LEAD.size : end]), most_bytes)
    if stream.read(1):
        raise ValueError("more than a line")
    return header, end


def _directory(topic: object, life: object) -> Directory:
    if not is_topic_name(as_text(topic)):
        raise ValueError(f"topic {topic!r}")
    return cast("str", topic), as_number(life, 0, _MOST_LIFE)


def _numbers(found: object) -> Mapping[str, int]:
    return {as_text(name, _MOST_NAME): as_number(one, 0, LAST_FACT_NUMBER) for name, one in as_object(found).items()}
