"""One member of an index file: the entries of one topic directory, encoded column by column (docs/format.md §9)."""

import codecs
import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any, Final, NamedTuple, cast

import numpy as np

from archiver.archive.entries import NOT_TOLD, NUMBERS, Entries, Traits, can_be
from archiver.archive.layout import MOST_PARTITION
from archiver.archive.segment_facts import (
    FORMAT_VERSION,
    NOT_IN_ALL,
    NOT_IN_INDEX,
    TEXTS,
    UNENCRYPTED,
    SegmentFacts,
    parse_fact,
    spell_fact,
)
from archiver.codec.selection import FIRST_LONG, LAST_LONG
from archiver.errors import CorruptSegmentError
from archiver.process.columns import Numbers, Texts, chunks, narrow, same
from archiver.process.json_columns import JsonColumns, Values
from archiver.process.json_values import MOST_TEXT, as_object, parse_json

GZIP = 31  # zlib's number for it
READ_BYTES: Final = 1 << 16
_LEVEL = 1  # hashes do not get smaller: level 6 takes four times as long for 5 %
_MOST_BYTES = 1 << 34  # of one topic directory, uncompressed: fifty million segments
_PIECE_BYTES: Final = 1 << 18
_SMALL_BYTES: Final = 1 << 14  # two hundred entries
# Our members expand to three times their size; with long names that are alike, to eighty times.
_MOST_TIMES = 16
_FEW_BYTES = 1 << 20  # any member may expand to this
# Empty lists take thirty times their text in memory. Our files have one list for each topic directory or column, with text in it.
_LEAST_OF_A_LIST: Final = 8
_FEW_LISTS: Final = 16_000
_MOST_PARSED_BYTES: Final = 384 << 20  # of the longest first member, 32 MiB, with 800,000 topic directories
_MOST_TAG: Final = 256  # characters of an ETag or a hash, which lie side by side, each with room for the longest

_PLACE: Final[Mapping[str, type]] = {"partition": int, "merged": bool, "rewrite": int, "size": int, "etag": str}
_FACTS: Final = tuple(item.name for item in fields(SegmentFacts) if item.name not in NOT_IN_INDEX)
_TAGS: Final = ("etag", "sha256")
_SPELLED: Final = frozenset({"holes", "timestamp_types", "digest"})  # as in the metadata
_COLUMNS: Final[Mapping[str, type]] = {**_PLACE, **{name: str if name in TEXTS | _SPELLED else int for name in _FACTS}}
# Columns that files of earlier programs lack, and what stands for them.
_NOT_IN_ALL: Final[Mapping[str, int]] = dict.fromkeys(NOT_IN_ALL, NOT_TOLD) | {"rewrite": 0}

# The range of numbers; `can_be` asks more of numbers that are facts.
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "partition": (0, MOST_PARTITION),
    "rewrite": (0, MOST_PARTITION),
    "size": (0, LAST_LONG),
}
_ANY: Final = (FIRST_LONG, LAST_LONG)


def encode_member(entries: Entries) -> bytes:
    """Encode the entries of one topic directory. A column with one value in all rows is written as that value."""
    columns = (text for name in _COLUMNS for text in (f',"{name}":', *_spelled_column(entries, name)))
    return pack(chain([f'{{"count":{len(entries)}'], columns, ["}\n"]))


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
            yield dump(first[0])
            return
    spelled = (dump(piece)[1:-1] for piece in chain([first], before, pieces))
    yield "["
    for number, text in enumerate(spelled):
        yield f",{text}" if number else text
    yield "]"


def dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _values(entries: Entries, name: str, rows: slice) -> list[Any]:
    if name in Traits._fields:
        told = [getattr(trait, name, None) for trait in entries.traits]
        spelled = [spell_fact(name, value) for value in told] if name in _SPELLED else told
        return [spelled[kind] for kind in entries.numbers("kind")[rows].tolist()]
    if name in _TAGS:
        return entries.texts(name).texts(rows)
    found = entries.numbers(name)[rows].tolist()
    return [spell_fact(name, value) for value in found] if name in _SPELLED else found


def pack(texts: Iterable[str]) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=GZIP)
    return b"".join([*(packer.compress(text.encode()) for text in texts), packer.flush()])


def parse_flat(text: str) -> object:
    if text.count("[") + text.count("{") > _FEW_LISTS + len(text) // _LEAST_OF_A_LIST:
        raise ValueError("more lists than it could have")
    return parse_json(text, _MOST_PARSED_BYTES)


def cut_member(member: bytes) -> deque[bytes]:
    """Cut a member into pieces that are freed one by one: the member and its entries at once would take too much memory."""
    return deque(member[start : start + READ_BYTES] for start in range(0, len(member), READ_BYTES))


class SmallMember(NamedTuple):
    """A few entries of one topic directory, as JSON has them: columns would cost more than they save."""

    entries: int
    columns: Mapping[str, Any]


def decode_member(pieces: deque[bytes], key: str) -> Entries | SmallMember:
    """Decode the entries of one topic directory; `pieces` are used up. Raises NotWholeError.

    Entries whose facts are impossible, or of a later format, come without facts; their other columns hold.
    """
    packed_bytes = sum(map(len, pieces))
    try:
        if packed_bytes <= _SMALL_BYTES:
            return _small_member(parse_flat("".join(_expand(pieces))), packed_bytes)
        return _large_member(JsonColumns(_expand(pieces)), packed_bytes)
    except (zlib.error, ValueError) as error:
        raise CorruptSegmentError(f"{key}: not an index: {error}") from error
    except RecursionError as error:
        raise CorruptSegmentError(f"{key}: not an index: nested too deep") from error


def entries_of(members: Sequence[SmallMember]) -> Entries:
    """Join members, in order, into columns."""

    def lists(name: str) -> Values:
        found = ((one.entries, one.columns[name]) for one in members)
        return (value if isinstance(value, list) else [value] * count for count, value in found)

    columns = {name: gather(lists(name)) for name, gather in _GATHERED.items()}
    return _entries(columns, sum(one.entries for one in members))


def _small_member(told: object, packed_bytes: int) -> SmallMember:
    found = as_object(told)
    count = _checked_count(found.get("count"), packed_bytes)
    columns = {name: found.get(name, _NOT_IN_ALL.get(name)) for name in _COLUMNS}
    for (name, value), kind in zip(columns.items(), _COLUMNS.values(), strict=True):
        if isinstance(value, list) and len(value) != count:
            raise ValueError(f"column {name}")
        several: list[Any] = value if isinstance(value, list) else [value]
        _check(several, kind, _RANGES.get(name, _ANY))
        if name in _TAGS:
            _check_tags(several)
    return SmallMember(count, columns)


def _check_tags(values: Sequence[str]) -> None:
    if max(map(len, values), default=0) > _MOST_TAG or not "".join(values).isascii():
        raise ValueError("an ETag or a hash that cannot be")


def _check(values: Sequence[Any], kind: type, limits: tuple[int, int] = _ANY) -> None:
    """Raise ValueError where a column cannot have these values. Later, when columns are made, nobody expects an error."""
    if set(map(type, values)) - {kind}:
        raise ValueError(f"a value that is no {kind.__name__}")
    if kind is int and values and not limits[0] <= min(values) <= max(values) <= limits[1]:
        raise ValueError("a number that is too small or too large")
    if kind is str:
        if max(map(len, values), default=0) > MOST_TEXT:
            raise ValueError("a text that is too long")
        "".join(values).encode()  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair


def _checked_count(count: object, packed_bytes: int) -> int:
    """Check the number of entries: each has a digest, which takes more than a byte of the packed member."""
    if type(count) is not int or not 0 <= count <= packed_bytes:
        raise ValueError(f"{count!r} entries")
    return count


def _no_more(lists: Values, most: int) -> Values:
    """Yield lists; raise ValueError at more values than there can be entries. `count` may come after them in the member."""
    for some in lists:
        most -= len(some)
        if most < 0:
            raise ValueError("more values than entries")
        yield some


def _large_member(columns: JsonColumns, packed_bytes: int) -> Entries:
    found: dict[str, _MemberColumn] = {}
    count: object = None
    for name, value in columns:
        lists = _no_more(value, packed_bytes) if isinstance(value, Iterator) else iter([[value]])
        if name in _COLUMNS:
            found[name] = _GATHERED[name](lists)._replace(is_same=not isinstance(value, Iterator))
        elif name == "count":
            count = value
        for _ in lists:
            pass
    count = _checked_count(count, packed_bytes)
    for name, value in _NOT_IN_ALL.items():
        found.setdefault(name, _GATHERED[name](iter([[value]]))._replace(is_same=True))
    for name in _COLUMNS:
        if name not in found or not (found[name].is_same or len(found[name].places) == count):
            raise ValueError(f"column {name}")
    return _entries(found, count)


def _expand(pieces: deque[bytes]) -> Iterator[str]:
    """Unpack a member piece by piece; gzip checks its bytes at the end."""
    unpacker, decoder = zlib.decompressobj(wbits=GZIP), codecs.getincrementaldecoder("utf-8")()
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


class _MemberColumn(NamedTuple):
    """A column: its values, or a few values and which of them each row has."""

    places: Numbers | Texts
    values: Sequence[Any] = ()
    is_same: bool = False  # one value that all rows have

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


def _numbers(limits: tuple[int, int]) -> Callable[[Values], _MemberColumn]:
    return lambda lists: _joined([np.array(values, np.int64) for values in _checked(lists, int, limits)])


def _joined(pieces: Sequence[Numbers]) -> _MemberColumn:
    return _MemberColumn(narrow(np.concatenate(pieces)) if pieces else np.zeros(0, np.int64))


def _truths(lists: Values) -> _MemberColumn:
    return _joined([np.array(values, bool) for values in _checked(lists, bool)])


def _tags(lists: Values) -> _MemberColumn:
    pieces: list[Texts] = []
    for values in _checked(lists, str):
        _check_tags(values)
        pieces.append(Texts.of(values))
    return _MemberColumn(Texts.join(pieces) if pieces else Texts.of(()))


def _digests(lists: Values) -> _MemberColumn:
    return _joined([np.array([_digest_in(text) for text in values], np.int64) for values in _checked(lists, str)])


def _digest_in(text: str) -> int:
    """Parse a digest; -1, which is no digest, for text that cannot be one."""
    try:
        found = int(text, 16)
    except ValueError:
        return -1
    return found if 0 <= found <= LAST_LONG else -1


def _few(kind: type) -> Callable[[Values], _MemberColumn]:
    """Gather a column with few different values."""

    def gather(lists: Values) -> _MemberColumn:
        values: dict[Any, int] = {}
        pieces = [
            np.array([values.setdefault(value, len(values)) for value in some], np.int64)
            for some in _checked(lists, kind)
        ]
        return _joined(pieces)._replace(values=list(values))

    return gather


_GATHERED: Final[Mapping[str, Callable[[Values], _MemberColumn]]] = {
    **{name: _few(kind) for name, kind in _COLUMNS.items() if name in Traits._fields},
    **{name: _numbers(_RANGES.get(name, _ANY)) for name in (*NUMBERS, *_RANGES)},
    "merged": _truths,
    **dict.fromkeys(_TAGS, _tags),
    "digest": _digests,
}


def _entries(found: dict[str, _MemberColumn], count: int) -> Entries:
    kinds, traits = _kinds(found, count)
    columns: dict[str, Numbers | Texts] = {name: found[name].expanded(count) for name in (*_PLACE, "sha256", *NUMBERS)}
    possible = [
        can_be({name: cast("Numbers", columns[name])[rows].astype(np.int64) for name in NUMBERS})
        for rows in chunks(count)
    ]
    if not all(map(np.all, possible)):
        kinds = np.where(np.concatenate(possible), kinds, len(traits))  # without facts
    return Entries({**columns, "kind": narrow(kinds)}, [*traits, None])


def _kinds(found: Mapping[str, _MemberColumn], count: int) -> tuple[Numbers, list[Traits | None]]:
    """Return the number of the traits of each entry, and the traits."""
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
    is_known = told.format <= FORMAT_VERSION and told.encryption == UNENCRYPTED
    return told if is_known and -1 <= told.leader_epoch < 2**31 else None
