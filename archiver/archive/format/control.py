"""Control facts: small JSON objects about topics, restores and groups; numbered, put if absent, never changed; the highest number holds (docs/format.md §8)."""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final, NamedTuple, TypeVar

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import LAST_FACT_NUMBER, Layout
from archiver.archive.format.store_clock import epoch_ms
from archiver.errors import (
    ArchiverError,
    CorruptSegmentError,
    FormatTooNewError,
    TemporaryError,
    TooLargeError,
)
from archiver.process.running.workers import side_by_side
from archiver.process.values.json_values import LARGEST, MOST_PARSED_BYTES, as_object, parse_json, parsed_bytes
from archiver.store.port import ObjectKind, refuse_larger

FACT_FORMAT = 1
FORMAT: Final = "format"
CLUSTER = "cluster"
CLUSTER_METADATA: Final = "cluster-metadata"
PRESENT = "present"
TOPICS = "topics"
RESTORES = "restores"
MOMENTS = "moments"
_DIGEST = "sha256"
_DIGEST_LINE: Final = re.compile(rb'\n "sha256": "([0-9a-f]{64})",')
_ATTEMPTS = 32
# The largest size of a fact, by the first part of its stream. A topic with 10,000 partitions that were truncated ten times each takes
# 9 MB. The starts of a million partitions take 60 MB; 200,000 positions of groups, where a warning comes, 18 MB; a plan of
# 10,000 partitions, or a piece of a plan, up to 14 MB; 100,000 moments with the longest names 40 MB; 100,000 swept ranges 6 MB;
# the plan of a sweep of 300,000 objects up to 60 MB; an import of 100,000 files 20 MB; 100,000 ACLs 15 MB. All other facts name one thing.
_MOST_BYTES: Final[Mapping[str, int]] = {
    TOPICS: 16 << 20,
    PRESENT: 64 << 20,
    "group-positions": 64 << 20,
    "swept": 16 << 20,
    RESTORES: 64 << 20,
    MOMENTS: 64 << 20,
    "sweeps": 64 << 20,
    "imports": 64 << 20,
    CLUSTER_METADATA: 64 << 20,
}
_FEW_BYTES: Final = 1 << 20
# The largest memory of a parsed fact, estimated before parsing, where the fact may have more than `_FEW_BYTES`.
_MOST_PARSED_BYTES: Final = 128 << 20
_MOST_PARSED_ENDS_BYTES: Final = 384 << 20  # of `present`, with the ends of a million partitions
_one_large_fact = threading.RLock()
_MOST_HISTORY_BYTES: Final = 256 << 20  # of all facts of a topic together: 100,000 facts with many configs
READS_AT_ONCE = 16

Fact = Mapping[str, Any]
Decoded = TypeVar("Decoded")


def most_fact_bytes(stream: str) -> int:
    """Return the largest size of a fact of a stream, in bytes. A larger fact is neither written nor read."""
    return _MOST_BYTES.get(stream.partition("/")[0], _FEW_BYTES)


def most_parsed_bytes(stream: str) -> int:
    """Return the largest memory that a parsed fact of a stream may need."""
    kind = stream.partition("/")[0]
    if kind == PRESENT:
        return _MOST_PARSED_ENDS_BYTES
    return _MOST_PARSED_BYTES if kind in _MOST_BYTES else MOST_PARSED_BYTES


def latest_fact(archive: Archive, stream: str) -> Fact | None:
    """Return the newest fact of a stream, which holds; None when the stream has no fact."""
    newest = _newest(archive, stream)
    return None if newest is None else _read(archive, stream, newest)


def read_history(archive: Archive, stream: str) -> Iterator[tuple[int, int, Fact]]:
    """Yield the facts of a stream, oldest first, with their numbers and put times, by the store's clock."""
    listed = sorted(_listed(archive, stream))
    refuse_larger(archive.layout.control_prefix(stream), sum(one.size for one in listed), _MOST_HISTORY_BYTES)
    for one in listed:
        yield one.number, one.put_ms, _read(archive, stream, one)


def append_fact(archive: Archive, stream: str, decide: Callable[[Fact | None], Fact | None]) -> Fact | None:
    """Append the result of `decide` on the latest fact. Returns the fact that holds afterwards.

    If another writer was faster, `decide` is called again with that writer's fact; None means nothing to add.
    When the answer to our own put was lost, `decide` gets our own fact, and must recognize it.
    """
    for _ in range(_ATTEMPTS):
        newest = _newest(archive, stream)
        latest = None if newest is None else _read(archive, stream, newest)
        wanted = decide(latest)
        if wanted is None:
            return latest
        key = key_behind(archive.layout, stream, -1 if newest is None else newest.number)
        if archive.store.put_if_absent(key, encode_bounded(wanted, stream, key), {}, kind=ObjectKind.FACT) is not None:
            return wanted
    raise TemporaryError(f"{archive.layout.control_prefix(stream)}: {_ATTEMPTS} other writers were faster; try again")


def key_behind(layout: Layout, stream: str, number: int) -> str:
    """Return the key of the fact behind a number; -1: of the first fact. Raises CorruptSegmentError where none can follow."""
    if number >= LAST_FACT_NUMBER:
        raise CorruptSegmentError(
            f"{layout.fact_key(stream, LAST_FACT_NUMBER)}: is the last number that a fact can have, so nothing can be written"
            " behind it; find out who put it, and delete it if it is not a backup's or a restore's"
        )
    return layout.fact_key(stream, number + 1)


def encode_bounded(fact: Fact, stream: str, key: str) -> bytes:
    """Encode a fact. Raises ArchiverError for a fact that readers refuse as too large."""
    content = encode_fact(fact)
    problem = _excess(content, stream)
    if problem:
        raise ArchiverError(f"{key}: {problem}")
    return content


def is_readable(fact: Fact, stream: str) -> bool:
    """Return whether a fact is within the limits of readers."""
    return not _excess(encode_fact(fact), stream)


def _excess(content: bytes, stream: str) -> str:
    """Return the limit that a fact exceeds, so that readers refuse it; empty if they accept it."""
    if len(content) > most_fact_bytes(stream):
        return f"would have {len(content):,} bytes, and readers take {most_fact_bytes(stream):,}"
    expected, most = parsed_bytes(content.decode()), most_parsed_bytes(stream)
    return f"readers would need {expected:,} bytes of memory, and the limit is {most:,}" if expected > most else ""


def surplus_facts(archive: Archive, stream: str) -> list[str]:
    """Return the keys of surplus facts in a single-fact stream: all but number 0."""
    return [archive.layout.fact_key(stream, number) for number in list_numbers(archive, stream) if number]


def only_fact(archive: Archive, stream: str) -> Fact | None:
    """Return the fact of a single-fact stream; None without number 0. Later numbers are ignored; `verify` reports them."""
    return read_fact(archive, stream, 0) if list_numbers(archive, stream)[:1] == [0] else None


def append_only_fact(archive: Archive, stream: str, wanted: Fact) -> Fact:
    """Write the fact of a single-fact stream, unless it exists. Returns the fact that holds."""
    if (found := only_fact(archive, stream)) is not None:
        return found
    key = archive.layout.fact_key(stream, 0)
    content = encode_bounded(wanted, stream, key)
    is_put = archive.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT) is not None
    return wanted if is_put else read_fact(archive, stream, 0)


def newest_listed(archive: Archive, parent: str, until_ms: int = LARGEST) -> dict[str, "Listed"]:
    """List all streams below a parent in one listing, each with its newest fact, or the newest that was put by a time."""
    prefix = archive.layout.control_prefix(parent)
    newest: dict[str, Listed] = {}
    for item in archive.store.list(prefix):
        stream = f"{parent}/{item.key.removeprefix(prefix).rpartition('/')[0]}"
        number = archive.layout.parse_fact(stream, item.key)
        if number is not None and epoch_ms(item.last_modified) <= until_ms:  # listed in the order of their numbers
            newest[stream] = Listed(number, item.size, epoch_ms(item.last_modified))
    return newest


def newest_numbers(archive: Archive, parent: str) -> dict[str, int]:
    """List all streams below a parent in one listing, each with the number of its newest fact."""
    return {stream: one.number for stream, one in newest_listed(archive, parent).items()}


def list_numbers(archive: Archive, stream: str) -> list[int]:
    """List the numbers of the facts of a stream, the oldest first."""
    return sorted(one.number for one in _listed(archive, stream))


def read_fact(archive: Archive, stream: str, listed: "int | Listed") -> Fact:
    """Read a fact that was listed. Raises NotWholeError."""
    return _read(archive, stream, Listed(listed) if isinstance(listed, int) else listed)


def decode_facts(
    archive: Archive, numbers: Mapping[str, "int | Listed"], decode: Callable[[str, Fact], Decoded]
) -> dict[str, Decoded]:
    """Read one fact of each stream, several at a time, and keep only the results of `decode`: parsed facts may need much memory."""
    found = side_by_side(READS_AT_ONCE, lambda one: decode(one[0], read_fact(archive, *one)), numbers.items(), "fact")
    return dict(zip(numbers, found, strict=True))


class Listed(NamedTuple):
    """The number, size and put time of a fact, according to a listing; 0: unknown."""

    number: int
    size: int = 0
    put_ms: int = 0


def _listed(archive: Archive, stream: str) -> Iterator[Listed]:
    for item in archive.store.list(archive.layout.control_prefix(stream)):
        number = archive.layout.parse_fact(stream, item.key)
        if number is not None:
            yield Listed(number, item.size, epoch_ms(item.last_modified))


def _newest(archive: Archive, stream: str) -> Listed | None:
    return max(_listed(archive, stream), default=None)


def _read(archive: Archive, stream: str, listed: Listed) -> Fact:
    key = archive.layout.fact_key(stream, listed.number)
    refuse_larger(key, listed.size, most_fact_bytes(stream))
    found = read_with(archive, stream, listed.number, lambda content: decode_fact(content, key, stream), listed.size)
    if found is None:
        raise gone_error(key)
    return found


def gone_error(key: str) -> CorruptSegmentError:
    return CorruptSegmentError(
        f"{key}: was listed, and is gone: a retention sweep took it, or it is lost; run the same command again"
    )


def read_with(
    archive: Archive, stream: str, number: int, decode: Callable[[bytes], Decoded], size: int = 0
) -> Decoded | None:
    """Get and decode a fact; None: it was deleted. A process gets and decodes one fact above 1 MiB at a time.

    `size`: as listed. If it is unknown, a fact above 1 MiB is requested twice: its first answer is not read.
    """
    key, most_bytes = archive.layout.fact_key(stream, number), most_fact_bytes(stream)

    def read(size: int, most_bytes: int) -> Decoded | None:
        with turn_for(size):
            found = archive.store.get(key, most_bytes)
            return None if found is None else decode(found[0])

    if size <= _FEW_BYTES < most_bytes:
        with suppress(TooLargeError):
            return read(0, _FEW_BYTES)
    return read(most_bytes, most_bytes)


def turn_for(size: int) -> AbstractContextManager[object]:
    """Return a lock that one thread of this process holds at a time while it gets and decodes an object above 1 MiB."""
    return _one_large_fact if size > _FEW_BYTES else nullcontext()


def encode_fact(fact: Fact) -> bytes:
    """Encode a fact together with a digest of its content."""
    plain = json.loads(json.dumps(fact))  # JSON turns keys that are numbers into text, which sorts in another order
    return _spelled({**plain, _DIGEST: hashlib.sha256(_spelled(plain)).hexdigest()})


def decode_fact(content: bytes, key: str, stream: str = "") -> Fact:
    """Decode a fact, check its digest if it has one, and leave the digest out. Raises NotWholeError. `stream` decides its limit."""
    try:
        fact = parse_json(content, most_parsed_bytes(stream))
    except ValueError as error:
        raise CorruptSegmentError(f"{key}: not JSON: {error}") from error
    if not isinstance(fact, dict) or type(fact.get("format")) is not int:
        raise CorruptSegmentError(f"{key}: not a control fact")
    if fact["format"] > FACT_FORMAT:
        raise FormatTooNewError(f"{key}: format {fact['format']} is newer than this program reads ({FACT_FORMAT})")
    digest = fact.pop(_DIGEST, None)
    # Encoding it again takes memory and time, and is needed only for facts that other programs wrote.
    if digest is not None and not is_as_written(content) and digest != _digest_of(fact, key):
        raise CorruptSegmentError(f"{key}: does not say what was written (its sha256 is of something else)")
    return fact


def _digest_of(fact: Fact, key: str) -> str:
    try:
        return hashlib.sha256(_spelled(fact)).hexdigest()
    except RecursionError:
        raise CorruptSegmentError(f"{key}: not JSON: nested too deep") from None


def is_as_written(content: bytes) -> bool:
    """Return whether a fact is byte for byte in the spelling of this program; False also for foreign facts. It is not parsed."""
    found = _DIGEST_LINE.search(content)
    if found is None:
        return False
    digest = hashlib.sha256(content[: found.start()])
    digest.update(content[found.end() :])
    return digest.hexdigest().encode() == found[1]


def has_digest(content: bytes) -> bool:
    """Return whether a readable fact contains its digest."""
    return _DIGEST in as_object(parse_json(content, _MOST_PARSED_ENDS_BYTES))


def _spelled(fact: Fact) -> bytes:
    return json.dumps(fact, indent=1, sort_keys=True).encode()
