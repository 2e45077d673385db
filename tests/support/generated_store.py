"""An archive of millions of objects that do not exist: the store makes each up when it is asked for; and an index of them."""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.index_file import NOTHING_SEEN, join_members
from archiver.archive.index.index_member import encode_member
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import record_cluster
from archiver.archive.segments.entries import Entries, Traits
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.errors import ArchiverError
from archiver.process.values.columns import Numbers, Texts, narrow
from archiver.store.port import (
    MOST_PUT_BYTES,
    Body,
    ListedObject,
    ObjectInfo,
    ObjectKind,
    ReadBuffer,
    refuse_larger,
)
from tests.support.memory_store import MemoryStore

LAYOUT = Layout()
CLUSTER = "generated-cluster"
STEP = 1000  # offsets of an object; the last few have no record
_BEGUN = datetime(2025, 1, 1, tzinfo=UTC)
_BEGUN_MS = int(_BEGUN.timestamp() * 1000)
_EACH = timedelta(seconds=300)
_NOISE_BYTES = 56  # bytes that do not compress: ETag, SHA-256 and digest


@dataclass(frozen=True, slots=True)
class Shape:
    """So many objects in each of so many partitions of so many topics."""

    topics: int
    partitions: int
    per_partition: int

    @property
    def objects(self) -> int:
        return self.topics * self.partitions * self.per_partition

    @property
    def names(self) -> list[str]:
        return [f"shop.events-{number:04}" for number in range(self.topics)]


@lru_cache(maxsize=8)
def _noise(topic: str, partition: int, count: int) -> bytes:
    return random.Random(f"{topic} {partition}").randbytes(count * _NOISE_BYTES)


class GeneratedStore(MemoryStore):
    """What is put into it stays in memory, but the index: files of that are in a folder."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        super().__init__()
        self.shape = shape
        self._folder = folder
        self._names = set(shape.names)
        record_cluster(Archive(self, LAYOUT), CLUSTER)
        for topic in shape.names:
            record_topic(
                Archive(self, LAYOUT),
                topic=topic,
                topic_id=f"id-{topic}",
                cluster_id=CLUSTER,
                partitions=shape.partitions,
                configs={},
            )

    def warm_up(self) -> None:
        """Make up, of a small archive, all that it keeps between two calls: it is no part of what a plan takes."""
        for topic in self.shape.names:
            for partition in range(self.shape.partitions):
                _noise(topic, partition, self.shape.per_partition)

    # --- the index

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        if not key.startswith(LAYOUT.index_prefix):
            return super().put_if_absent(key, body, metadata, kind=kind)
        assert isinstance(body, bytes)
        if self._file(key).exists():
            return None
        self._file(key).write_bytes(body)
        return key

    def write_index(self, shares: Sequence[float]) -> None:
        """Write files of it; each has so large a share of each partition's objects, from the first on."""
        count = self.shape.per_partition
        bounds = np.cumsum([0, *(int(share * count) for share in shares)]).tolist()
        for number, (start, stop) in enumerate(pairwise(bounds)):
            members = {
                (topic, 0): encode_member(
                    Entries.join([self._entries(topic, at, range(start, stop)) for at in range(self.shape.partitions)])
                )
                for topic in self.shape.names
                if start < stop
            }
            self._file(LAYOUT.index_key(0, number)).write_bytes(join_members(members, NOTHING_SEEN))

    def _entries(self, topic: str, partition: int, numbers: range) -> Entries:
        at = np.arange(numbers.start, numbers.stop, dtype=np.int64)
        noise = _noise(topic, partition, self.shape.per_partition)
        rows = [noise[one * _NOISE_BYTES : (one + 1) * _NOISE_BYTES] for one in numbers]
        facts = _numbers(at) | {"digest": np.array([_digest(row) for row in rows], np.int64)}
        columns: dict[str, Numbers | Texts] = {name: narrow(column) for name, column in facts.items()}
        columns["partition"] = np.full(len(at), partition)
        columns["merged"] = np.zeros(len(at), bool)
        columns["rewrite"] = np.zeros(len(at), np.uint8)
        columns["size"] = narrow(_sizes(at))
        columns["etag"] = Texts.of([_etag(row) for row in rows])
        columns["sha256"] = Texts.of([_sha256(row) for row in rows])
        columns["kind"] = np.zeros(len(at), np.uint8)
        return Entries(columns, [_traits(topic)])

    def _file(self, key: str) -> Path:
        return self._folder / key.replace("/", "+")

    def _files(self) -> list[ListedObject]:
        found = sorted(self._folder.glob("*.zst"))
        keys = [path.name.replace("+", "/") for path in found]
        return [
            ListedObject(key=key, size=path.stat().st_size, etag=path.name, last_modified=_BEGUN)
            for key, path in zip(keys, found, strict=True)
        ]

    # --- the objects

    def _segments(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        for topic in sorted(self._names, key=lambda name: f"{name}/".encode()):
            directory = LAYOUT.topic_prefix(topic, 0)
            if not (directory.startswith(prefix) or prefix.startswith(directory)) or _is_before(directory, start_after):
                continue
            for partition in sorted(range(self.shape.partitions), key=str):
                below = LAYOUT.partition_prefix(topic, 0, partition)
                if (below.startswith(prefix) or prefix.startswith(below)) and not _is_before(below, start_after):
                    yield from self._segments_of(topic, partition, start_after)

    def _segments_of(self, topic: str, partition: int, start_after: str) -> Iterator[ListedObject]:
        stem, count = LAYOUT.segment_stem(topic, 0, partition), self.shape.per_partition
        noise = _noise(topic, partition, count)
        after = LAYOUT.parse_segment(start_after)
        is_here = after is not None and (after.topic, after.partition) == (topic, partition)
        for at in range(after.base // STEP + 1 if is_here and after is not None else 0, count):
            row = noise[at * _NOISE_BYTES : at * _NOISE_BYTES + 16]
            yield ListedObject(
                key=f"{stem}{at * STEP:020}.data", size=_size(at), etag=_etag(row), last_modified=_BEGUN + at * _EACH
            )

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        if prefix.startswith(LAYOUT.topics_prefix):
            yield from self._segments(prefix, start_after)
            return
        yield from super().list(prefix, start_after)
        yield from (item for item in self._files() if item.key.startswith(prefix) and item.key > start_after)

    def list_directories(self, prefix: str) -> Iterator[str]:
        if prefix == LAYOUT.topics_prefix:
            yield from self.shape.names
        elif prefix == LAYOUT.index_prefix:
            yield from {item.key.removeprefix(prefix).partition("/")[0] for item in self._files()}
        else:
            yield from super().list_directories(prefix)

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        path = self._file(key)
        if key.startswith(LAYOUT.index_prefix) and path.exists():
            refuse_larger(key, path.stat().st_size, most_bytes)
            return path.read_bytes(), {}
        return super().get(key, most_bytes)

    def head(self, key: str) -> ObjectInfo | None:
        found = LAYOUT.parse_segment(key)
        if found is None:
            return super().head(key)
        at = found.base // STEP
        row = _noise(found.topic, found.partition, self.shape.per_partition)[
            at * _NOISE_BYTES : (at + 1) * _NOISE_BYTES
        ]
        facts = _facts(found, at, row)
        return ObjectInfo(
            size=_size(at), etag=_etag(row), metadata=facts.to_metadata(), last_modified=_BEGUN + at * _EACH
        )

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        raise NotImplementedError("objects have no bodies")

    def get_into(self, buffer: ReadBuffer, key: str) -> tuple[memoryview, Mapping[str, str]] | None:
        raise NotImplementedError("objects have no bodies")

    def now(self) -> datetime:
        return datetime.now(UTC)

    def delete_each(self, keys: Iterable[str], *, send_by_s: float = math.inf) -> Mapping[str, ArchiverError]:
        raise NotImplementedError("nothing is deleted")

    def delete(self, keys: Iterable[str]) -> None:
        raise NotImplementedError("nothing is deleted")


def _is_before(directory: str, key: str) -> bool:
    """Tell whether all keys of a directory are before a key."""
    return bool(key) and not key.startswith(directory) and directory.encode() < key.encode()


def _size(at: int) -> int:
    return 40_000 + at * 7919 % 20_000


def _sizes(at: Numbers) -> Numbers:
    return 40_000 + at * 7919 % 20_000


def _etag(row: bytes) -> str:
    return row[:16].hex()


def _sha256(row: bytes) -> str:
    return row[16:48].hex()


def _digest(row: bytes) -> int:
    return int.from_bytes(row[48:56]) >> 3


def _traits(topic: str) -> Traits:
    return Traits(1, "1.0", CLUSTER, f"id-{topic}", 3, (0,), (), "none")


def _numbers(
    at: Numbers,
) -> dict[str, Numbers]:
    base = at * STEP
    records = 900 + at * 31 % 90
    return {
        "base": base,
        "first": base,
        "last": base + records - 1,
        "next": base + STEP,
        "records": records,
        "tombstones": at % 3,
        "min_timestamp": _BEGUN_MS + at * 300_000,
        "max_timestamp": _BEGUN_MS + at * 300_000 + 299_000,
        "bytes": records * 100,
        "largest_record": 150 + at % 50,
        "source_bytes": records * 70,
        "unserved": at % 2,
        "stable_end": base + STEP + at % 3,
    }


def _facts(key: SegmentKey, at: int, row: bytes) -> SegmentFacts:
    numbers = {name: int(column[0]) for name, column in _numbers(np.array([at])).items()}
    traits = _traits(key.topic)._asdict()
    return SegmentFacts(**numbers, **traits, digest=_digest(row), sha256=_sha256(row))  # type: ignore[arg-type]
