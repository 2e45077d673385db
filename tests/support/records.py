"""Records as tests compare them, and two ways of making them: Hypothesis strategies, and a seeded generator that is fast.

`classes_of` counts which kinds of record a list holds; a test that claims to cover them asserts that none is missing.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

Headers = tuple[tuple[bytes, bytes | None], ...]

NOW_MS = 1_753_000_000_000  # July 2025: a fixed present keeps seeds replayable
FAR_FUTURE_MS = 253_402_300_799_999  # the last millisecond of the year 9999
SMALL_MS = 86_400_000  # below: the first day of 1970
BIG_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Rec:
    """One record, every byte of it. Two are equal when nothing can tell them apart."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def without_offset(self) -> "Rec":
        """For comparisons across a restore, which gives new offsets."""
        return replace(self, offset=0)


def without_offsets(records: Iterable[Rec]) -> list[Rec]:
    return [record.without_offset() for record in records]


# --- classes -------------------------------------------------------------------------------------------------------

# What every ordinary client can write, and what only raw batches can.
CLIENT_CLASSES = frozenset(
    {
        *(f"{part} {kind}" for part in ("key", "value") for kind in ("null", "empty", "text", "binary")),
        *(f"headers {kind}" for kind in ("none", "one", "two to nine", "ten and more", "fifty")),
        *(f"headers {kind}" for kind in ("repeat a key", "hold null", "hold empty", "hold bytes")),
        *(f"header key {kind}" for kind in ("empty", "ascii", "not ascii")),
        *(f"timestamp {kind}" for kind in ("zero", "small", "recent", "far future", "falls")),
        "record big",
    }
)
RAW_CLASSES = frozenset({"header key not utf-8", "timestamp none"})
ALL_CLASSES = CLIENT_CLASSES | RAW_CLASSES


def classes_of(records: Sequence[Rec]) -> Counter[str]:
    """How many records of each class; a record counts in many."""
    counts: Counter[str] = Counter()
    for index, record in enumerate(records):
        found = {f"key {_kind(record.key)}", f"value {_kind(record.value)}", f"timestamp {_age(record.timestamp)}"}
        found |= _header_classes(record.headers)
        if index and record.timestamp < records[index - 1].timestamp:
            found.add("timestamp falls")
        if len(record.key or b"") + len(record.value or b"") >= BIG_BYTES:
            found.add("record big")
        counts.update(found)
    return counts


def missing_classes(counts: Counter[str], wanted: Iterable[str] = ALL_CLASSES) -> list[str]:
    return sorted(name for name in wanted if not counts[name])


def _kind(content: bytes | None) -> str:
    if content is None:
        return "null"
    if not content:
        return "empty"
    return "text" if _is_utf8(content) else "binary"


def _age(timestamp: int) -> str:
    if timestamp in {-1, 0}:
        return "none" if timestamp else "zero"
    if timestamp < 0 or timestamp > FAR_FUTURE_MS:
        return "extreme"
    if timestamp <= SMALL_MS:
        return "small"
    return "recent" if timestamp <= NOW_MS + SMALL_MS else "far future"


def _header_classes(headers: Headers) -> set[str]:
    keys = [key for key, _ in headers]
    found = {f"headers {_count(len(headers))}"}
    found |= {f"header key {_spelling(key)}" for key in keys}
    found |= {"headers hold " + ("null" if value is None else "bytes" if value else "empty") for _, value in headers}
    if len(set(keys)) < len(keys):
        found.add("headers repeat a key")
    return found


def _count(count: int) -> str:
    bounds = ((50, "fifty"), (10, "ten and more"), (2, "two to nine"), (1, "one"), (0, "none"))
    return next(name for least, name in bounds if count >= least)


def _spelling(key: bytes) -> str:
    if not key:
        return "empty"
    if key.isascii():
        return "ascii"
    return "not ascii" if _is_utf8(key) else "not utf-8"


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- the seeded generator ------------------------------------------------------------------------------------------

_WORDS = ("orders", "trace-id", "größe", "цена", "源", "é", "x", "content-type", "🦜")
_BROKEN = (b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\x80", b"ok\x80")


def generate(
    seed: int,
    count: int,
    *,
    raw: bool = True,
    timestamp_type: int = 0,
    first_offset: int = 0,
    big_bytes: int = BIG_BYTES,
    big_every: int = 400,
) -> list[Rec]:
    """`count` records, the same for the same arguments. 2,000 hold every class (`raw`: also those of RAW_CLASSES)."""
    rng = random.Random(seed)
    return [
        Rec(
            offset=first_offset + index,
            timestamp=_timestamp(rng, raw),
            timestamp_type=timestamp_type,
            key=_content(rng, 24),
            value=rng.randbytes(big_bytes) if index % big_every == big_every // 2 else _content(rng, 300),
            headers=_headers(rng, raw),
        )
        for index in range(count)
    ]


def _timestamp(rng: random.Random, raw: bool) -> int:
    kind = rng.random()
    if kind < 0.7:
        return NOW_MS - rng.randrange(10_000_000)
    if kind < 0.8:
        return rng.randrange(1, SMALL_MS)
    if kind < 0.9:
        return rng.choice((FAR_FUTURE_MS, NOW_MS + 100 * 365 * SMALL_MS))
    return -1 if raw and kind < 0.95 else 0


def _content(rng: random.Random, most: int) -> bytes | None:
    kind = rng.random()
    if kind < 0.15:
        return None
    if kind < 0.3:
        return b""
    if kind < 0.65:
        return b"\xff" + rng.randbytes(rng.randrange(most))  # never UTF-8
    return json.dumps({"id": rng.randrange(10**9), "name": rng.choice(_WORDS)}, ensure_ascii=False).encode()


def _headers(rng: random.Random, raw: bool) -> Headers:
    (most,) = rng.choices((0, 1, 9, 20, 50), weights=(40, 20, 30, 9, 1))
    count = most if most in {0, 1, 50} else rng.randint(2, most)
    headers = [(_header_key(rng, raw), _header_value(rng)) for _ in range(count)]
    if count > 1 and rng.random() < 0.3:
        headers[-1] = (headers[0][0], _header_value(rng))
    return tuple(headers)


def _header_key(rng: random.Random, raw: bool) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return b""
    if raw and kind < 0.2:
        return rng.choice(_BROKEN)
    return (rng.choice(_WORDS) + rng.choice(("", str(rng.randrange(100))))).encode()


def _header_value(rng: random.Random) -> bytes | None:
    kind = rng.random()
    if kind < 0.15:
        return None
    return b"" if kind < 0.3 else rng.randbytes(rng.randint(1, 40))


# --- Hypothesis strategies -----------------------------------------------------------------------------------------


def contents(most: int = 60) -> st.SearchStrategy[bytes | None]:
    return st.none() | st.just(b"") | st.binary(max_size=most) | st.text(max_size=most // 4).map(str.encode)


def timestamps(*, raw: bool = True, extreme: bool = False) -> st.SearchStrategy[int]:
    """`extreme`: any 64-bit value; a broker's logs are spared those."""
    usual = st.sampled_from((0, 1, NOW_MS, FAR_FUTURE_MS)) | st.integers(0, FAR_FUTURE_MS)
    usual |= st.just(-1) if raw else st.nothing()
    return usual | st.integers(-(2**63), 2**63 - 1) if extreme else usual


def header_keys(*, raw: bool = True) -> st.SearchStrategy[bytes]:
    usual = st.sampled_from(_WORDS).map(str.encode) | st.text(max_size=8).map(str.encode)
    return usual | st.sampled_from(_BROKEN) | st.binary(max_size=8) if raw else usual


def header_lists(*, raw: bool = True) -> st.SearchStrategy[Headers]:
    pairs = st.tuples(header_keys(raw=raw), contents(20))
    return (st.lists(pairs, max_size=4) | st.lists(pairs, max_size=50)).map(tuple)


@st.composite
def record_lists(
    draw: st.DrawFn,
    *,
    raw: bool = True,
    extreme: bool = False,
    timestamp_type: int = 0,
    least: int = 0,
    most: int = 20,
    largest_gap: int = 0,
    first_offsets: st.SearchStrategy[int] | None = None,
) -> list[Rec]:
    """Records in offset order; `largest_gap` > 0 leaves out offsets, as compaction and markers do.

    Under LogAppendTime (type 1) a batch has one timestamp for all.
    """
    offset = draw(first_offsets) if first_offsets is not None else 0
    one_timestamp = draw(timestamps(raw=raw, extreme=extreme)) if timestamp_type == 1 else None
    records = []
    for _ in range(draw(st.integers(least, most))):
        timestamp = draw(timestamps(raw=raw, extreme=extreme)) if one_timestamp is None else one_timestamp
        headers = draw(header_lists(raw=raw))
        records.append(Rec(offset, timestamp, timestamp_type, draw(contents()), draw(contents()), headers))
        offset += 1 + draw(st.integers(0, largest_gap))
    return records
