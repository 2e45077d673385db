"""Defines the facts of one segment, and encodes them as text for metadata and Avro header (docs/format.md §4)."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import NamedTuple

from archiver.codec.selection import FIRST_LONG, LAST_LONG
from archiver.errors import CorruptSegmentError, FormatTooNewError
from archiver.process.values.json_values import MOST_TEXT, spelled_digest, spelled_number

FORMAT_VERSION = 2  # the newest format that this program reads
_FIRST_FORMAT = 1  # written wherever readers of that format understand the whole object
PREFIX_IN_METADATA = "archiver-"
PREFIX_IN_HEADER = "archiver."
FACTS_SHA256 = PREFIX_IN_METADATA + "facts-sha256"
SIGNATURE = (
    PREFIX_IN_METADATA + "signature"
)  # added by programs that sign objects; not a fact, and not in the checksum of facts
UNENCRYPTED = "none"  # the only known name of a block codec
NOT_IN_ALL = ("unserved", "stable_end")  # facts that objects of earlier programs lack
NOT_IN_INDEX = ("transactions",)  # facts of few objects, needed only by readers of the whole object
MOST_TRANSACTIONS = 8  # ranges in one object: metadata may take 2 KB
_MOST_CODEC = 60  # the most characters of a name in a message
# Some stores drop metadata with an empty value; the checksum shows that it existed.
_MAY_BE_EMPTY = (PREFIX_IN_METADATA + "topic-id", PREFIX_IN_METADATA + "holes")


class HoleCause(StrEnum):
    """Why offsets inside a coverage could not be read."""

    EXPIRED = "expired"  # the log start had moved past the position
    BEFORE_START = "before-start"  # `backup.start` set a later beginning
    UNREADABLE = "unreadable"  # Kafka had an unreadable batch there, which `backup.unreadable: skip` skipped
    UNDECIDED = "undecided"  # records of a transaction without an outcome, left out on purpose
    ERASED = "erased"  # records that a later rewrite of the object left out on request


_FIRST_CAUSES = frozenset({HoleCause.EXPIRED, HoleCause.BEFORE_START})  # the causes of the first format


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Offsets first_offset..last_offset, inclusive, that Kafka no longer had, or that could not be read from it."""

    first_offset: int
    last_offset: int
    cause: HoleCause

    def __post_init__(self) -> None:
        if not 0 <= self.first_offset <= self.last_offset:
            raise ValueError(f"not a range: {self.first_offset}-{self.last_offset}")

    def __str__(self) -> str:
        return f"{self.first_offset}-{self.last_offset}:{self.cause}"

    @classmethod
    def parse(cls, text: str) -> "Hole":
        match = re.fullmatch(r"([0-9]+)-([0-9]+):([a-z-]+)", text)
        if match is None:
            raise ValueError(f"not a hole: {text!r}")
        first, last = (spelled_number(part) for part in match.groups()[:2])
        return cls(first_offset=first, last_offset=last, cause=HoleCause(match[3]))


class TransactionRange(NamedTuple):
    """Offsets first_offset..last_offset, inclusive: a record there may count only so many ms after its timestamp."""

    first_offset: int
    last_offset: int
    within_ms: int

    def __str__(self) -> str:
        return f"{self.first_offset}-{self.last_offset}:{self.within_ms}"

    @classmethod
    def parse(cls, text: str) -> "TransactionRange":
        match = re.fullmatch(r"([0-9]+)-([0-9]+):([0-9]+)", text)
        if match is None:
            raise ValueError(f"not a range of transactions: {text!r}")
        return cls(*(spelled_number(part) for part in match.groups()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """The facts of a segment, known without its body. Field names are the fact names, `-` for `_`."""

    format: int = _FIRST_FORMAT
    writer: str
    cluster_id: str
    topic_id: str
    leader_epoch: int
    base: int
    first: int
    last: int
    next: int
    records: int
    tombstones: int
    min_timestamp: int
    max_timestamp: int
    timestamp_types: tuple[int, ...]
    bytes: int
    largest_record: int
    source_bytes: int
    holes: tuple[Hole, ...] = field(default=())
    unserved: int | None = None  # None: written by a program that did not count it
    stable_end: int | None = None  # the highest last stable offset of its fetches; None: unknown
    transactions: tuple[TransactionRange, ...] | None = None  # of `__consumer_offsets`; None: it has none
    sha256: str
    digest: int
    encryption: str = UNENCRYPTED

    def __post_init__(self) -> None:
        if not 0 <= self.base <= self.first <= self.last < self.next:
            raise ValueError(f"not base <= first <= last < next: {self.base} {self.first} {self.last} {self.next}")
        if not 1 <= self.records <= self.last - self.first + 1:
            raise ValueError(f"{self.records} records cannot lie in {self.first}..{self.last}")
        if not 0 <= self.tombstones <= self.records:
            raise ValueError(f"{self.tombstones} tombstones of {self.records} records")
        if not 0 <= (self.unserved or 0) <= self.next - self.base - self.records:
            raise ValueError(f"{self.unserved} offsets of {self.base}..{self.next} without a record")
        if self.min_timestamp > self.max_timestamp:
            raise ValueError(f"timestamps {self.min_timestamp}..{self.max_timestamp}")
        for one in self.transactions or ():
            if not self.base <= one.first_offset <= one.last_offset < self.next:
                raise ValueError(f"a transaction at {one.first_offset}-{one.last_offset}")
        stable_end = self.stable_end or 0
        sizes = self.bytes, self.source_bytes, self.largest_record
        largest = max(self.next, self.max_timestamp, *sizes, self.digest, stable_end)
        smallest = min(*sizes, self.leader_epoch + 1, stable_end)
        if largest > LAST_LONG or self.min_timestamp < FIRST_LONG or smallest < 0 or self.leader_epoch >= 2**31:
            raise ValueError("a number that is too small or too large for what it tells")

    def lacks_until(self, begin: int = 0) -> int:
        """Return the offset that is above all successors of missing records; 0: nothing is missing.

        Holes below `begin` do not count. The largest number: unknown, or no record replaced the missing ones.
        """
        if any(hole.last_offset >= begin for hole in self.holes):
            return LAST_LONG
        if self.unserved == 0 or self.next - self.base == self.records:
            return 0
        return LAST_LONG if None in {self.unserved, self.stable_end} else self.stable_end or 0

    def expired_above(self, offset: int) -> int | None:
        """Return the start of the first `expired` hole above an offset; None if none exists."""
        holes = (hole for hole in self.holes if hole.cause is HoleCause.EXPIRED)
        return min((hole.first_offset for hole in holes if hole.first_offset > offset), default=None)

    def differing(self, other: "SegmentFacts") -> list[str]:
        """Return the names of the facts that differ in another segment."""
        ours, theirs = self._texts(), other._texts()  # noqa: SLF001 - of the same class
        return [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]

    def is_noted_as(self, noted: object) -> bool:
        """Return whether facts noted in an index equal these; programs that do not know a later fact leave it out."""
        if not isinstance(noted, SegmentFacts):
            return False
        left_out = {name: None for name in (*NOT_IN_ALL, *NOT_IN_INDEX) if getattr(noted, name) is None}
        return noted == replace(self, **left_out)  # type: ignore[arg-type]

    def to_metadata(self) -> dict[str, str]:
        """Return the facts as object metadata, with a checksum: checksums of the bytes do not cover metadata."""
        texts = {PREFIX_IN_METADATA + name: text for name, text in self._texts().items()}
        return {**texts, FACTS_SHA256: _checksum(texts)}

    def to_header(self) -> dict[str, str]:
        """Return the facts as entries of the Avro header."""
        return {PREFIX_IN_HEADER + name: text for name, text in self._texts().items()}

    def _texts(self) -> dict[str, str]:
        told = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name.replace("_", "-"): spell_fact(name, value) for name, value in told if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of a v1.0 object: `base` from its name, the rest from its first and last record (§3.2)."""

    base: int
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.base <= self.first <= self.last:
            raise ValueError(f"not base <= first <= last: {self.base} {self.first} {self.last}")

    @property
    def next(self) -> int:
        return self.last + 1


class PartFacts(NamedTuple):
    """The facts of an object, or of its chosen records, in a plan."""

    is_exact: (
        bool  # facts of exactly the wanted records; otherwise upper bounds, as only a part of the object is wanted
    )
    records: int
    min_timestamp: int
    max_timestamp: int
    bytes: int
    source_bytes: int
    largest_record: int

    @property
    def is_unknown(self) -> bool:
        """Whether the object has no facts, and only its size is known."""
        return not self.is_exact and (self.min_timestamp, self.max_timestamp) == (FIRST_LONG, LAST_LONG)


def check_named(facts: SegmentFacts | Bounds, base: int, named_next: int | None, key: str) -> None:
    """Compare facts with the name of their object; only merged objects have `named_next`. Raises CorruptSegmentError."""
    if facts.base != base or named_next not in {None, facts.next}:
        raise CorruptSegmentError(
            f"{key}: its facts cover {facts.base}..{facts.next}, its name says otherwise; bring its older version back"
        )


def named_facts(metadata: Mapping[str, str], base: int, named_next: int | None, key: str) -> SegmentFacts:
    """Return the facts in object metadata, which must fit the object's name. Raises CorruptSegmentError, also for an object of v1.0."""
    facts = facts_from_metadata(metadata, key)
    if facts is None:
        raise CorruptSegmentError(f"{key}: has no facts")
    check_named(facts, base, named_next, key)
    return facts


def spell_fact(name: str, value: object) -> str:
    """Spell one fact, as in metadata and header."""
    if isinstance(value, tuple):
        return ("," if name == "timestamp_types" else ";").join(str(part) for part in value)
    return f"{value:016x}" if name == "digest" else str(value)


def facts_from_metadata(metadata: Mapping[str, str], key: str) -> SegmentFacts | None:
    """Return the facts in object metadata; None if it has none of ours (a v1.0 object)."""
    if not any(map(_is_fact, metadata)):
        return None
    whole = dict.fromkeys(_MAY_BE_EMPTY, "") | dict(metadata)
    facts = _parse(whole, PREFIX_IN_METADATA, key)
    if metadata.get(FACTS_SHA256) != _checksum(whole):
        raise CorruptSegmentError(
            f"{key}: its facts are not those that were written ({FACTS_SHA256} is missing, or differs); bring its older version back"
        )
    return facts


def facts_from_header(header: Mapping[str, str], key: str) -> SegmentFacts | None:
    """Return the facts in an Avro header; None if it has none of ours (a v1.0 object)."""
    return _parse(header, PREFIX_IN_HEADER, key)


def _is_fact(name: str) -> bool:
    return name.startswith(PREFIX_IN_METADATA) and name != SIGNATURE


def _checksum(metadata: Mapping[str, str]) -> str:
    lines = sorted(f"{name}: {text}\n" for name, text in metadata.items() if _is_fact(name) and name != FACTS_SHA256)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _parse(texts: Mapping[str, str], prefix: str, key: str) -> SegmentFacts | None:
    ours = {
        name[len(prefix) :].replace("-", "_"): text
        for name, text in texts.items()
        if name.startswith(prefix) and name != SIGNATURE
    }
    if not ours:
        return None
    version = ours.get("format", "")
    if re.fullmatch(r"[0-9]{1,9}", version) and int(version) > FORMAT_VERSION:
        raise FormatTooNewError(
            f"{key}: format {version} is newer than this program reads ({FORMAT_VERSION}); use a later version"
        )
    codec = ours.get("encryption", UNENCRYPTED)
    if codec != UNENCRYPTED:
        raise FormatTooNewError(
            f"{key}: its blocks are encrypted by the codec {codec[:_MOST_CODEC]!r}, which this program does not know; use a"
            " later version"
        )
    optional = (*NOT_IN_ALL, *NOT_IN_INDEX)
    try:
        names = [item.name for item in fields(SegmentFacts) if item.name in ours or item.name not in optional]
        return SegmentFacts(**{name: parse_fact(name, ours[name]) for name in names})  # type: ignore[arg-type]
    except KeyError as error:
        raise CorruptSegmentError(f"{key}: the fact {error.args[0]} is missing") from error
    except ValueError as error:
        raise CorruptSegmentError(f"{key}: facts that cannot be: {str(error)[:200]}") from error


def format_for(holes: Iterable[Hole]) -> int:
    """Return the version to write: readers of the first format treat the later causes as damage."""
    return FORMAT_VERSION if any(hole.cause not in _FIRST_CAUSES for hole in holes) else _FIRST_FORMAT


TEXTS = frozenset({"writer", "cluster_id", "topic_id", "sha256", "encryption"})


def parse_fact(name: str, text: str) -> object:
    """Parse one fact, only in the exact spelling of `spell_fact`. Raises ValueError."""
    if len(text) > MOST_TEXT:
        raise ValueError(f"a text of {len(text):,} characters")
    if name in TEXTS:
        return text
    if name == "digest":
        return spelled_digest(text)
    if name == "holes":
        return tuple(Hole.parse(part) for part in text.split(";") if part)
    if name == "transactions":
        return tuple(TransactionRange.parse(part) for part in text.split(";", MOST_TRANSACTIONS))
    if name == "timestamp_types":
        return tuple(spelled_number(part, -1, 1) for part in text.split(",", 3))
    return spelled_number(text, FIRST_LONG)
