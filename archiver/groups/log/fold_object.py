"""Encodes and decodes a fold: the reduced beginning of a partition of `__consumer_offsets`, as one Avro object (docs/format.md §12).

The object has plain records, and its facts in the header, so that it can be read alone. A control fact
(archiver.groups.log.folds) repeats the facts, and makes the fold valid.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, Strict

from archiver.archive.format.control import FACT_FORMAT, decode_fact, encode_fact
from archiver.archive.format.fact_model import Digest, FactModel, Item, Number
from archiver.archive.format.layout import MOST_PARTITION, FoldKey
from archiver.archive.segments.segment_facts import PREFIX_IN_HEADER, PREFIX_IN_METADATA
from archiver.codec.avro import SYNC_BYTES, BlockEncoder, decode_blocks, decode_header, encode_header
from archiver.codec.compression import BlockCodec
from archiver.codec.frame import Column, Frame
from archiver.codec.kernels.rows import offsets_rise
from archiver.codec.schemas import RECORD
from archiver.codec.selection import FIRST_LONG, LAST_LONG
from archiver.codec.tally import Tally
from archiver.errors import CorruptSegmentError
from archiver.groups.log.doubts import Doubt

MOST_FOLD_BYTES: Final = 1 << 30  # a million positions take 30 MB
_MOST_BLOCK_BYTES: Final = 64 << 20  # uncompressed: ours have 0.5 MiB, or one record
MOST_DOUBTS: Final = 1_000
HOW_TO_MEND: Final = (
    "bring its older version back, or delete it with the facts that name it, while the objects it was made of are there"
)
FOLD_DIGEST: Final = PREFIX_IN_METADATA + "sha256"  # of the whole object, in its metadata
DIGITS_IN_KEY: Final = 24
_FOLD: Final = PREFIX_IN_HEADER + "fold"
_LEVEL: Final = 1

_Place = Annotated[Number, Field(le=MOST_PARTITION)]
_Time = Annotated[int, Strict(), Field(ge=FIRST_LONG, le=LAST_LONG)]
_Sha256 = Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{64}$")]
_Doubt = tuple[Number, Number, Annotated[bool, Strict()]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of a fold: an earlier fold, if `earlier_next` is not 0, and objects above it."""

    earlier_next: Number
    earlier_sha256: Annotated[str, Strict(), Field(pattern=r"^(?:[0-9a-f]{64})?$")]
    objects: Number
    objects_sha256: _Sha256  # of the objects' content ids, a line each


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldFacts:
    """The partition and range of a fold, and the sums of its records."""

    topic: Annotated[str, Strict(), Field(pattern="^__consumer_offsets$")]
    life: _Place
    partition: _Place
    next: Annotated[Number, Field(ge=1)]  # the fold replaces all offsets below
    records: Number  # in the fold
    others: Number  # records below `next` that concern no position and no group, which folds leave out
    first_ms: _Time  # of the oldest and the newest of all records below `next`, whether the fold has them or not
    last_ms: _Time
    digest: Digest  # of the fold's records (docs/format.md §5)
    doubts: Annotated[
        tuple[Item[_Doubt], ...], Field(max_length=MOST_DOUBTS)
    ]  # possibly missing records of its sources
    sources: Sources
    # The latest time from which all of them count, if it is later: commits in transactions count from their markers on.
    settled_ms: Annotated[_Time | None, Field(exclude_if=lambda at_ms: at_ms is None)] = None

    @property
    def counts_ms(self) -> int:
        """The time from which all records below `next` count."""
        return self.last_ms if self.settled_ms is None else self.settled_ms

    def __post_init__(self) -> None:
        if not self.first_ms <= self.last_ms <= self.counts_ms or self.records + self.others > self.next:
            raise ValueError(
                f"{self.records} and {self.others} records of times {self.first_ms} to {self.last_ms} below {self.next}"
            )
        if self.sources.earlier_next >= self.next:
            raise ValueError(f"made of a fold up to {self.sources.earlier_next}, and ends at {self.next}")
        for first, last, _ in self.doubts:
            if not first <= last < self.next:
                raise ValueError(f"a doubt about offsets {first} to {last}")

    def key(self, sha256: str) -> FoldKey:
        """Return the key of an object with these facts and this SHA-256: two objects never share a key."""
        return FoldKey(life=self.life, partition=self.partition, next=self.next, digest=sha256[:DIGITS_IN_KEY])


_FACTS: Final = FactModel(FoldFacts)


def encode_fold(facts: FoldFacts, frame: Frame) -> bytes:
    """Make the object of a fold."""
    sync = os.urandom(SYNC_BYTES)
    encoder = BlockEncoder(
        topic=facts.topic, partition=facts.partition, codec=BlockCodec.ZSTANDARD, level=_LEVEL, sync=sync
    )
    pieces, row = list[bytes](), 0
    while row < len(frame):
        row = encoder.append(frame, row, len(frame))
        pieces += encoder.flush()
    return b"".join((encode_header(BlockCodec.ZSTANDARD, sync, _spelled(facts)), *pieces))


def _spelled(facts: FoldFacts) -> dict[str, str]:
    fact = json.loads(encode_fact(_FACTS.write(facts)))  # in one line: a header's values need no second one
    return {PREFIX_IN_HEADER + "format": str(FACT_FORMAT), _FOLD: json.dumps(fact, sort_keys=True)}


def facts_of_fold(content: bytes, key: str) -> FoldFacts:
    """Read the facts in the header of a fold. Raises NotWholeError."""
    header = decode_header(memoryview(content), key, (RECORD,))
    return _FACTS.read(decode_fact(header.metadata.get(_FOLD, "").encode(), key), lambda why: _no_fold(key, why))


def read_fold(content: bytes, facts: FoldFacts, key: str) -> Iterator[Frame]:
    """Read the records of a fold; at the end, compare their sums with its facts. Raises NotWholeError."""
    if facts_of_fold(content, key) != facts:
        raise _no_fold(key, "its header says something else than the fact that names it")
    view, tally, previous = memoryview(content), Tally(), -1
    header = decode_header(view, key, (RECORD,))
    topic, number, most_bytes = facts.topic, facts.partition, _MOST_BLOCK_BYTES
    for frame in decode_blocks(view, header, topic=topic, partition=number, key=key, most_bytes=most_bytes):
        times = frame.column(Column.TIMESTAMP)
        if not offsets_rise(frame.table, previous) or (times < facts.first_ms).any() or (times > facts.last_ms).any():
            raise _no_fold(key, f"offsets or times behind offset {previous} are not in order")
        previous = int(frame.column(Column.OFFSET)[-1]) if len(frame) else previous
        if previous >= facts.next or tally.records + len(frame) > facts.records:
            raise _no_fold(key, f"more records than {facts.records:,} below offset {facts.next}")
        tally.add(frame)
        if len(frame):
            yield frame
    if (tally.records, tally.digest) != (facts.records, facts.digest):
        raise _no_fold(
            key, f"{tally.records:,} records, not the {facts.records:,} that were written: it was cut or changed"
        )


def check_fold(content: bytes, metadata: Mapping[str, str], found: FoldKey, key: str) -> None:
    """Check a whole fold, and that its key names it. Raises NotWholeError."""
    sha256, facts = hashlib.sha256(content).hexdigest(), facts_of_fold(content, key)
    if metadata.get(FOLD_DIGEST, sha256) != sha256:
        raise _no_fold(key, "its bytes are not those that were written")
    if facts.key(sha256) != found:
        raise _no_fold(key, "is the fold of another partition, or has other bytes than its name tells")
    for _ in read_fold(content, facts, key):
        pass


def digest_of(frame: Frame) -> int:
    tally = Tally()
    tally.add(frame)
    return tally.digest


def _no_fold(key: str, why: str) -> CorruptSegmentError:
    return CorruptSegmentError(f"{key}: is no fold of group positions: {why}")


def merge_doubts(doubts: Iterable[Doubt], most: int = MOST_DOUBTS) -> tuple[_Doubt, ...]:
    """Join adjacent doubts of one kind, and then every few neighbours if they are too many: joining only adds doubts."""
    merged: list[Doubt] = []
    for one in sorted(doubts):
        last = merged[-1] if merged else None
        if last is not None and one.first <= last.last + 1 and one.needs_later == last.needs_later:
            merged[-1] = last._replace(last=max(last.last, one.last))
        else:
            merged.append(one)
    few = max(1, -(-len(merged) // most))
    return tuple(
        (some[0].first, max(one.last for one in some), all(one.needs_later for one in some))
        for some in (merged[at : at + few] for at in range(0, len(merged), few))
    )
