"""One file of the index of segment facts: gzip members, a line that names the topic directories, then one for each (docs/format.md §9)."""

import codecs
import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import numpy as np

from archiver.columns import Numbers, Texts, chunks, narrow, same
from archiver.entries import NUMBERS, Entries, Entry, Traits, can_be
from archiver.errors import CorruptSegmentError, FormatTooNewError
from archiver.facts import FORMAT_VERSION, TEXTS, SegmentFacts, parse_fact, spell_fact
from archiver.json_columns import JsonColumns, Values
from archiver.layout import FACT_DIGITS, SegmentKey, is_topic_name
from archiver.selection import FIRST_LONG, LAST_LONG

FORMAT = 1
_GZIP = 31  # zlib's number for it
_LEVEL = 1  # hashes do not get smaller: level 6 takes four times as long for 5 %
_MOST_BYTES = 1 << 34  # of one topic directory, uncompressed: fifty million segments
_MOST_HEADER_BYTES = 1 << 30
_PIECE_BYTES: Final = 1 << 18
_READ_BYTES: Final = 1 << 16
_SMALL_BYTES: Final = 1 << 14  # two hundred entries
# Ours are a third of what they expand to, their first lines a tenth: what expands to more of its size is none of ours.
_MOST_TIMES = 64
_FEW_BYTES = 4 << 20  # that any may expand to
_MOST_TEXT: Final = 2048  # characters of a value: the metadata of an object, of which it is a part, has no more

_BESIDE: Final = ("facts", "beside")  # the names of what SeenBeside has
_MOST_BESIDE: Final = 10**9  # objects
_MOST_LIVES: Final = 2**31

Directory = tuple[str, int]  # topic and life


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


# What a number may be; of those that are facts, `can_be` asks for more.
_RANGES: Final[Mapping[str, tuple[int, int]]] = {"partition": (0, 2**31 - 1), "size": (0, LAST_LONG)}
_ANY: Final = (FIRST_LONG, LAST_LONG)

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

    members: dict[Directory, bytes]
    beside: SeenBeside


def encode_index(entries: Iterable[tuple[Directory, Entries]], beside: SeenBeside = NOTHING_SEEN) -> bytes:
    """Write a whole file."""
    return join_members({directory: encode_member(found) for directory, found in entries}, beside)


def group_entries(entries: Iterable[IndexEntry]) -> list[tuple[Directory, Entries]]:
    """Put entries in columns, by topic directory."""
    grouped: dict[Directory, list[Entry]] = {}
    for key, size, etag, facts in entries:
        grouped.setdefault((key.topic, key.life), []).append(
            Entry(key.partition, key.next is not None, size, etag, facts)
        )
    return [(directory, Entries.of(grouped[directory])) for directory in sorted(grouped)]


def join_members(members: Mapping[Directory, bytes], beside: SeenBeside) -> bytes:
    """Make a file of what `encode_member` wrote for each topic directory."""
    names = [[topic, life, len(member)] for (topic, life), member in members.items()]
    seen = {name: dict(sorted(found.items())) for name, found in zip(_BESIDE, beside, strict=True) if found}
    return b"".join([_compress({"format": FORMAT, "directories": names, **seen}), *members.values()])


def encode_member(entries: Entries) -> bytes:
    """Write the entries of one topic directory. A column that is the same in all of them is written once."""
    columns = (text for name in _COLUMNS for text in (f',"{name}":', *_spelled_column(entries, name)))
    return _pack(chain([f'{{"count":{len(entries)}'], columns, ["}\n"]))


def _spelled_column(entries: Entries, name: str) -> Iterator[str]:
    """Spell a column, some values at a time."""
    pieces = (_values(entries, name, rows) for rows in chunks(len(entries)))
    first = next(pieces, [])
    before: list[list[Any]] = []
    if first and first.count(first[0]) == len(first):
        while (piece := next(pieces, None)) is not None:
            before.append(piece)
            if piece.count(first[0]) != len(piece):
                break
        else:
            yield _dump(first[0])
            return
    spelled = (_dump(piece)[1:-1] for piece in chain([first], before, pieces))
    yield "["
    for number, text in enumerate(spelled):
        yield f",{text}" if number else text
    yield "]"


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _values(entries: Entries, name: str, rows: slice) -> list[Any]:
    if name in Traits._fields:
        told = [getattr(trait, name, None) for trait in entries.traits]
        spelled = [spell_fact(name, value) for value in told] if name in _SPELLED else told
        return [spelled[kind] for kind in entries.numbers("kind")[rows].tolist()]
    if name in {"etag", "sha256"}:
        return entries.texts(name).texts(rows)
    found = entries.numbers(name)[rows].tolist()
    return [spell_fact(name, value) for value in found] if name in _SPELLED else found


def _pack(texts: Iterable[str]) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    return b"".join([*(packer.compress(text.encode()) for text in texts), packer.flush()])


def _compress(value: object) -> bytes:
    return _pack([_dump(value), "\n"])


def split_file(content: bytes, key: str) -> IndexFile:
    """Split a file by topic directory, without looking into the members. Raises NotWholeError."""
    header, start = _read_header(content, key)
    version = header.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise FormatTooNewError(f"{key}: format {version} is newer than this program reads ({FORMAT})")
    members: dict[Directory, bytes] = {}
    try:
        for topic, life, length in header["directories"]:
            members[_directory(topic, life)] = content[start : start + _number_below(len(content) + 1, length)]
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


def _directory(topic: object, life: object) -> Directory:
    if not isinstance(topic, str) or not is_topic_name(topic):
        raise ValueError(f"topic {topic!r}")
    return topic, _number_below(_MOST_LIVES, life)


def _number_below(limit: int, value: object) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"number {value!r}")
    return value


def _read_header(content: bytes, key: str) -> tuple[dict[str, Any], int]:
    """Read the first member, and tell where it ends; gzip checks its bytes."""
    unpacker, end, texts = zlib.decompressobj(wbits=_GZIP), 0, list[bytes]()
    left = min(_MOST_HEADER_BYTES, _FEW_BYTES + _MOST_TIMES * len(content))
    try:
        while end < len(content) and not unpacker.eof and not unpacker.unconsumed_tail:
            packed = content[end : end + _READ_BYTES]
            texts.append(unpacker.decompress(packed, left + 1))
            left -= len(texts[-1])
            end += len(packed) - len(unpacker.unused_data)
        value = json.loads(b"".join(texts))
    except (zlib.error, ValueError) as error:
        raise CorruptSegmentError(f"{key}: not an index: {error}") from error
    except RecursionError as error:
        raise CorruptSegmentError(f"{key}: not an index: nested too deep") from error
    if not unpacker.eof or left < 0 or not isinstance(value, dict):
        raise CorruptSegmentError(f"{key}: not an index: cut, expanding to more than it could, or no object")
    return value, end


# --- a member, column by column


def cut_member(member: bytes) -> deque[bytes]:
    """Cut a member into pieces, which can be given away one by one: beside its entries it would be too much."""
    return deque(member[start : start + _READ_BYTES] for start in range(0, len(member), _READ_BYTES))


class SmallMember(NamedTuple):
    """Entries of one topic directory as JSON has them: of a few, columns would cost more than they spare."""

    entries: int
    columns: Mapping[str, Any]


def decode_member(pieces: deque[bytes], key: str) -> Entries | SmallMember:
    """Read the entries of one topic directory, of which the pieces are used up. Raises NotWholeError.

    Those that cannot be, or are of a later format, have no kind of facts; what else they tell holds.
    """
    packed_bytes = sum(map(len, pieces))
    try:
        if packed_bytes <= _SMALL_BYTES:
            return _small_member(json.loads("".join(_expand(pieces))), packed_bytes)
        return _large_member(JsonColumns(_expand(pieces)), packed_bytes)
    except (zlib.error, ValueError) as error:
        raise CorruptSegmentError(f"{key}: not an index: {error}") from error
    except RecursionError as error:
        raise CorruptSegmentError(f"{key}: not an index: nested too deep") from error


def entries_of(members: Sequence[SmallMember]) -> Entries:
    """Put members that follow each other into columns."""

    def lists(name: str) -> Values:
        found = ((one.entries, one.columns[name]) for one in members)
        return (value if isinstance(value, list) else [value] * count for count, value in found)

    columns = {name: gather(lists(name)) for name, gather in _GATHERED.items()}
    return _entries(columns, sum(one.entries for one in members))


def _small_member(found: object, packed_bytes: int) -> SmallMember:
    if not isinstance(found, dict):
        raise ValueError("no object")  # noqa: TRY004 - as for all that is wrong
    count = _checked_count(found.get("count"), packed_bytes)
    for name, kind in _COLUMNS.items():
        value = found.get(name)
        values: list[Any] = value if isinstance(value, list) else [value]
        if isinstance(value, list) and len(value) != count:
            raise ValueError(f"column {name}")
        _check(values, kind, _RANGES.get(name, _ANY))
    return SmallMember(count, found)


def _check(values: Sequence[Any], kind: type, limits: tuple[int, int] = _ANY) -> None:
    """Raise ValueError where a column cannot have these values. It is put together later, when nobody expects an error."""
    if set(map(type, values)) - {kind}:
        raise ValueError(f"a value that is no {kind.__name__}")
    if kind is int and values and not limits[0] <= min(values) <= max(values) <= limits[1]:
        raise ValueError("a number that is too small or too large")
    if kind is str:
        if max(map(len, values), default=0) > _MOST_TEXT:
            raise ValueError("a text that is too long")
        "".join(values).encode()  # half a surrogate pair cannot be


def _checked_count(count: object, packed_bytes: int) -> int:
    """A digest alone takes more than a byte of what is packed."""
    if type(count) is not int or not 0 <= count <= packed_bytes:
        raise ValueError(f"{count!r} entries")
    return count


def _large_member(columns: JsonColumns, packed_bytes: int) -> Entries:
    found: dict[str, _Column] = {}
    count: object = None
    for name, value in columns:
        lists = value if isinstance(value, Iterator) else iter([[value]])
        if name in _COLUMNS:
            found[name] = _GATHERED[name](lists)._replace(is_same=lists is not value)
        elif name == "count":
            count = value
        for _ in lists:
            pass
    count = _checked_count(count, packed_bytes)
    for name in _COLUMNS:
        if name not in found or not (found[name].is_same or len(found[name].places) == count):
            raise ValueError(f"column {name}")
    return _entries(found, count)


def _expand(pieces: deque[bytes]) -> Iterator[str]:
    """Unpack a member piece by piece; gzip checks its bytes at the end."""
    unpacker, decoder = zlib.decompressobj(wbits=_GZIP), codecs.getincrementaldecoder("utf-8")()
    left = min(_MOST_BYTES, _FEW_BYTES + _MOST_TIMES * sum(map(len, pieces)))
    while pieces:
        packed = pieces.popleft()
        while packed and not unpacker.eof:
            piece = unpacker.decompress(packed, _PIECE_BYTES)
            packed = unpacker.unconsumed_tail
            left -= len(piece)
            if left < 0:
                raise ValueError("expanding to more than it could")
            yield decoder.decode(piece)
    if not unpacker.eof:
        raise ValueError("cut")
    yield decoder.decode(b"", final=True)


class _Column(NamedTuple):
    """What a column has: its values, or for each which of a few that are."""

    places: Numbers | Texts
    values: Sequence[Any] = ()
    is_same: bool = False  # there is one, and all have it

    def expanded(self, count: int) -> Numbers | Texts:
        if not self.is_same:
            return self.places
        if isinstance(self.places, Texts):
            return Texts.same(self.places[0], count)
        return np.broadcast_to(self.places[0], count)


def _checked(lists: Values, kind: type, limits: tuple[int, int] = _ANY) -> Iterator[list[Any]]:
    for values in lists:
        _check(values, kind, limits)
        yield values


def _numbers(limits: tuple[int, int]) -> Callable[[Values], _Column]:
    return lambda lists: _joined([np.array(values, np.int64) for values in _checked(lists, int, limits)])


def _joined(pieces: Sequence[Numbers]) -> _Column:
    return _Column(narrow(np.concatenate(pieces)) if pieces else np.zeros(0, np.int64))


def _truths(lists: Values) -> _Column:
    return _joined([np.array(values, bool) for values in _checked(lists, bool)])


def _texts(lists: Values) -> _Column:
    pieces = [Texts.of(values) for values in _checked(lists, str)]
    return _Column(Texts.join(pieces) if pieces else Texts.of(()))


def _digests(lists: Values) -> _Column:
    return _joined([np.array([_digest_in(text) for text in values], np.int64) for values in _checked(lists, str)])


def _digest_in(text: str) -> int:
    """Parse a digest; -1, which none is: it cannot be one."""
    try:
        found = int(text, 16)
    except ValueError:
        return -1
    return found if 0 <= found <= LAST_LONG else -1


def _few(kind: type) -> Callable[[Values], _Column]:
    """Gather values of which there are few different ones."""

    def gather(lists: Values) -> _Column:
        values: dict[Any, int] = {}
        pieces = [
            np.array([values.setdefault(value, len(values)) for value in some], np.int64)
            for some in _checked(lists, kind)
        ]
        return _joined(pieces)._replace(values=list(values))

    return gather


_GATHERED: Final[Mapping[str, Callable[[Values], _Column]]] = {
    **{name: _few(kind) for name, kind in _COLUMNS.items() if name in Traits._fields},
    **{name: _numbers(_RANGES.get(name, _ANY)) for name in (*NUMBERS, *_RANGES)},
    "merged": _truths,
    **dict.fromkeys(("etag", "sha256"), _texts),
    "digest": _digests,
}


def _entries(found: dict[str, _Column], count: int) -> Entries:
    kinds, traits = _kinds(found, count)
    columns: dict[str, Numbers | Texts] = {name: found[name].expanded(count) for name in (*_PLACE, "sha256", *NUMBERS)}
    for rows in chunks(count):
        possible = can_be({name: cast("Numbers", columns[name])[rows].astype(np.int64) for name in NUMBERS})
        if not possible.all():
            kinds = kinds.astype(np.int64)
            kinds[rows][~possible] = len(traits)  # none
    return Entries({**columns, "kind": narrow(kinds)}, [*traits, None])


def _kinds(found: Mapping[str, _Column], count: int) -> tuple[Numbers, list[Traits | None]]:
    """Tell of each entry which of the traits it has, of those that are."""
    if not count:
        return same(0, 0), []
    columns = [found[name] for name in Traits._fields]
    varying = [column.places for column in columns if not column.is_same]
    kinds: dict[tuple[int, ...], int] = {}
    pieces = [
        np.array([kinds.setdefault(kind, len(kinds)) for kind in zip(*several, strict=True)], np.int32)
        for rows in chunks(count)
        if (several := [cast("Numbers", places)[rows].tolist() for places in varying])
    ]
    traits: list[Traits | None] = []
    for kind in kinds or [()]:
        which = iter(kind)
        traits.append(_traits([column.values[0 if column.is_same else next(which)] for column in columns]))
    return (np.concatenate(pieces) if pieces else same(0, count)), traits


def _traits(values: Iterable[Any]) -> Traits | None:
    try:
        told = Traits._make(
            parse_fact(name, value) if name in _SPELLED else value
            for name, value in zip(Traits._fields, values, strict=True)
        )
    except ValueError:
        return None
    return told if told.format <= FORMAT_VERSION and -1 <= told.leader_epoch < 2**31 else None
