"""Writes and reads offset maps: source to target offsets of a restored partition. Restores write them, group positions use them (docs/format.md §10)."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Any, Final

import numpy as np

from archiver.archive.format.layout import MOST_OFFSET, OffsetMapKey
from archiver.archive.segments.segment_facts import PREFIX_IN_HEADER, PREFIX_IN_METADATA
from archiver.codec.avro import (
    SYNC_BYTES,
    Block,
    ContainerHeader,
    decode_header,
    decode_payload,
    encode_block,
    encode_header,
    split_blocks,
)
from archiver.codec.compression import BlockCodec
from archiver.codec.frame import Frame, Longs
from archiver.codec.kernels import runs as run_kernels
from archiver.codec.kernels.varint import BROKEN
from archiver.codec.schemas import OFFSET_RUN
from archiver.errors import CorruptSegmentError, FormatTooNewError, NotWholeError
from archiver.process.values.json_values import as_text, spelled_number
from archiver.store.port import ObjectKind, ObjectStore

MAP_FORMAT: Final = 1
HOW_TO_MEND: Final = "delete it, and run that restore again, which makes it"
MAP_DIGEST: Final = PREFIX_IN_METADATA + "sha256"  # of the whole object, in its metadata
# Runs are kept as holes and lengths, and packed during the restore: ten million runs with holes of up to 200 offsets take 14 MB
# of a task. As pairs of offsets, which do not pack well, they took 64 MB.
_RUNS_A_BLOCK: Final = 16 * 1024
_LEVEL: Final = 1
_SMALLEST_RUN: Final = 2  # bytes of a run: two numbers
_Object = tuple[bytes, Mapping[str, str]]  # content and metadata of an object
# The largest uncompressed block to read: ours have 320 KB at most. In memory a run is eight times as large.
_MOST_BLOCK_BYTES: Final = 512 * 1024
# Ten million runs take 14 MB, and hardly any space when they are alike.
MOST_MAP_BYTES: Final = 256 * 1024 * 1024
MOST_RUNS: Final = 1 << 27  # runs in memory at once: 2 GiB


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMapFacts:
    """Facts of an offset map: its partition, its restore, and the sums of its runs. The header has the same field names, with `-` for `_`."""

    format: int = MAP_FORMAT
    restore_id: str
    source_topic: str
    source_life: int
    source_partition: int
    source_next: int  # the offset behind the last one read of the source
    target_cluster_id: str
    target_topic: str
    target_topic_id: str
    target_partition: int
    target_next: int  # the offset behind the last restored record
    records: int
    runs: int

    def __post_init__(self) -> None:
        if min(self.source_life, self.source_partition, self.target_partition) < 0:
            raise ValueError(f"a negative life or partition: {self}")
        ends = self.source_next, self.target_next
        if not 0 <= self.runs <= self.records <= min(ends) <= max(ends) <= MOST_OFFSET:
            raise ValueError(f"{self.runs} runs of {self.records} records cannot lie below offsets {ends}")
        _ = self.key  # may also raise ValueError

    @property
    def key(self) -> OffsetMapKey:
        """The key of the map."""
        return OffsetMapKey(
            restore_id=self.restore_id,
            topic=self.target_topic,
            partition=self.target_partition,
            topic_id=self.target_topic_id or self.target_cluster_id,
        )

    def to_header(self) -> dict[str, str]:
        return {_name_in_header(item.name): str(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_header(cls, texts: Mapping[str, str], key: str) -> "OffsetMapFacts":
        version = texts.get(_name_in_header("format"), "")
        if re.fullmatch(r"[0-9]{1,9}", version, re.ASCII) and int(version) > MAP_FORMAT:
            raise FormatTooNewError(
                f"{key}: format {version} is newer than this program reads ({MAP_FORMAT}); use a later version"
            )
        try:
            found = {item.name: texts[_name_in_header(item.name)] for item in fields(cls)}
            return cls(**{item.name: _PARSED[item.type](found[item.name]) for item in fields(cls)})  # type: ignore[index]
        except (KeyError, ValueError) as error:
            raise CorruptSegmentError(f"{key}: not an offset map: {error!r}") from error


_PARSED: Final[Mapping[type, Callable[[str], Any]]] = {int: spelled_number, str: as_text}


def _name_in_header(name: str) -> str:
    return PREFIX_IN_HEADER + name.replace("_", "-")


# --- writing


class OffsetMapWriter:
    """Collects the runs of restored records; the first record gets offset `target_start` on the target.

    It keeps blocks of the finished object in memory: one or two bytes a run, if runs and the holes between them are short.
    """

    def __init__(self, target_start: int) -> None:
        self.records = 0
        self._target_start = target_start
        self._sync = os.urandom(SYNC_BYTES)
        self._blocks: list[bytes] = []
        self._block_runs = 0
        self._state = np.zeros(run_kernels.RUN_STATE_SIZE, np.int64)
        self._closed = np.empty((2, _RUNS_A_BLOCK), np.int64)  # pages that are not written to take no memory

    @property
    def runs(self) -> int:
        return self._block_runs + int(self._state[run_kernels.CLOSED]) + (1 if self.records else 0)

    @property
    def source_next(self) -> int:
        """The source's offset behind the last record."""
        return int(self._state[run_kernels.SOURCE_NEXT])

    @property
    def target_next(self) -> int:
        return self._target_start + self.records

    def add(self, frame: Frame) -> None:
        """Add all records of a frame; their offsets must be above those of earlier frames."""
        row = 0
        while (row := run_kernels.collect_runs(frame.table, row, self._closed, self._state)) != len(frame):
            if row == BROKEN:
                raise ValueError(f"offsets do not rise from {self.source_next} on")
            self._flush()
        self.records += len(frame)

    def _flush(self) -> None:
        runs = int(self._state[run_kernels.CLOSED])
        body = np.empty(runs * run_kernels.MAX_RUN_BYTES, np.uint8)
        used = run_kernels.encode_runs(self._closed, runs, body)
        self._blocks.append(encode_block(body[:used], runs, BlockCodec.ZSTANDARD, _LEVEL, self._sync))
        self._block_runs += runs
        self._state[run_kernels.CLOSED] = 0

    def finish(self, facts: OffsetMapFacts) -> bytes:
        """Return the whole object; the writer cannot be used afterwards."""
        if self.records:
            if self._state[run_kernels.CLOSED] == _RUNS_A_BLOCK:
                self._flush()
            last = int(self._state[run_kernels.CLOSED])
            self._closed[:, last] = self._state[[run_kernels.OPEN_ABSENT, run_kernels.OPEN_RECORDS]]
            self._state[run_kernels.CLOSED] += 1
            self._flush()
        header = encode_header(BlockCodec.ZSTANDARD, self._sync, facts.to_header(), OFFSET_RUN)
        return b"".join((header, *self._blocks))


def put_offset_map(store: ObjectStore, key: str, writer: OffsetMapWriter, facts: OffsetMapFacts) -> None:
    """Put an offset map, unless an earlier attempt has put it. Raises NotWholeError if the existing object maps other offsets."""
    content = writer.finish(facts)
    if (
        store.put_if_absent(key, content, {MAP_DIGEST: hashlib.sha256(content).hexdigest()}, kind=ObjectKind.FACT)
        is not None
    ):
        return
    try:
        found = store.get(key, MOST_MAP_BYTES)
        is_same = found is not None and _says_the_same(found, (content, {}), key)
    except NotWholeError:
        is_same = False
    if not is_same:
        raise NotWholeError(f"{key}: is not the map of what was restored; {HOW_TO_MEND}")


def _says_the_same(one: _Object, other: _Object, key: str) -> bool:
    """Compare two maps run by run: their bytes differ, since each attempt writes its own sync marker. Raises NotWholeError."""
    (header, facts), (other_header, other_facts) = _open(*one, key), _open(*other, key)
    if facts != other_facts:
        return False
    runs = zip_longest(_read_runs(one[0], header, facts, key), _read_runs(other[0], other_header, facts, key))
    return all(pair[0] is not None and pair[1] is not None and np.array_equal(*pair) for pair in runs)


# --- reading


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMap:
    """Runs, in order. `sources` and `targets` have one more entry than runs: the ends of source and target."""

    facts: OffsetMapFacts
    sources: Longs
    targets: Longs

    def translate(self, offsets: Longs) -> Longs:
        """Return the target offsets at which a reader with these source offsets continues.

        The offset of a restored record becomes the offset of that record on the target. Any other offset becomes the offset of the
        next restored record; above the last record, it becomes the end of the restored records.
        """
        return _across(self.sources, self.targets, offsets)

    def translate_back(self, offsets: Longs) -> Longs:
        """Return the source offsets of the records at these target offsets; below all records the first one's, above them the source's end."""
        return _across(self.targets, self.sources, offsets)


def _across(here: Longs, there: Longs, offsets: Longs) -> Longs:
    run = np.maximum(np.searchsorted(here, offsets, side="right") - 1, 0)
    following = np.minimum(run + 1, len(here) - 1)
    ahead = np.maximum(offsets, here[run]) - here[run]  # in this order no difference overflows 64 bits
    found: Longs = there[run] + np.minimum(ahead, there[following] - there[run])
    return found


def read_offset_map(store: ObjectStore, key: str) -> OffsetMap | None:
    """Read a map; None if it does not exist. Raises NotWholeError."""
    found = store.get(key, MOST_MAP_BYTES)
    return None if found is None else decode_offset_map(*found, key)


def decode_offset_map(content: bytes, metadata: Mapping[str, str], key: str) -> OffsetMap:
    """Decode and check a whole map. Raises NotWholeError, which names the object."""
    header, facts = _open(content, metadata, key)
    if facts.runs > MOST_RUNS:
        raise CorruptSegmentError(
            f"{key}: tells of {facts.runs:,} runs, and no more than {MOST_RUNS:,} are read at once"
        )
    sources, targets = np.concatenate([*_read_runs(content, header, facts, key)], axis=1)
    return OffsetMap(facts=facts, sources=sources, targets=targets)


def check_offset_map(content: bytes, metadata: Mapping[str, str], found: OffsetMapKey, key: str) -> None:
    """Check a whole map, block by block. Raises NotWholeError, also if it maps another partition than its key names."""
    header, facts = _open(content, metadata, key)
    if found != facts.key:
        raise CorruptSegmentError(f"{key}: is the map of another partition, or of another restore")
    for _ in _read_runs(content, header, facts, key):
        pass


def _open(content: bytes, metadata: Mapping[str, str], key: str) -> tuple[ContainerHeader, OffsetMapFacts]:
    digest = metadata.get(MAP_DIGEST)
    if digest is not None and digest != hashlib.sha256(content).hexdigest():
        raise CorruptSegmentError(f"{key}: its bytes are not those that were written")
    header = decode_header(content, key, (OFFSET_RUN,))
    return header, OffsetMapFacts.from_header(header.metadata, key)


def _decode_block(block: Block, header: ContainerHeader) -> Longs:
    body = decode_payload(block, header.codec, _MOST_BLOCK_BYTES)
    if block.count > len(body) // _SMALLEST_RUN:
        raise CorruptSegmentError(f"{block.where}: {block.count} runs cannot lie in {len(body)} bytes")
    runs = np.empty((2, block.count), np.int64)
    if not run_kernels.decode_runs(body, runs):
        raise CorruptSegmentError(f"{block.where}: not {block.count} runs of an offset map")
    return runs


def _read_runs(content: bytes, header: ContainerHeader, facts: OffsetMapFacts, key: str) -> Iterator[Longs]:
    """Yield (source, target) of the runs' first records, block by block; at the end, compare their sums with the facts.

    Without that, a file that was cut at a block boundary would read as a valid, shorter map.
    """
    count = 0
    source, target = 0, facts.target_next - facts.records
    for block in split_blocks(memoryview(content), header, key):
        if block.is_empty:
            continue
        runs = _decode_block(block, header)
        if block.count > facts.runs - count:
            raise CorruptSegmentError(f"{block.where}: more runs than the {facts.runs:,} that the header tells of")
        absent, records = runs
        # Where each run begins, and where it ends. A sum of two numbers of 64 bits that overflows is negative.
        sources = np.cumsum(np.concatenate([[source], runs.T.ravel()]))[1:].reshape(-1, 2).T
        targets = target + np.cumsum(records)
        if (records < 1).any() or (absent[0 if count else 1 :] < 1).any() or (absent < 0).any() or (sources < 0).any():
            raise CorruptSegmentError(f"{block.where}: not runs that follow each other")
        yield np.stack([sources[0], targets - records])
        count += block.count
        if block.count:
            source, target = int(sources[1, -1]), int(targets[-1])
    if (count, target) != (facts.runs, facts.target_next) or source > facts.source_next:
        raise CorruptSegmentError(
            f"{key}: {count} runs up to offset {source} of the source and {target} of the target, not {facts.runs} up to"
            f" {facts.source_next} and {facts.target_next}: the object was cut"
        )
    yield np.array([[facts.source_next], [facts.target_next]], np.int64)
