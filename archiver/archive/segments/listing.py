"""Lists the segments under `topics/` by their keys, and foreign objects. Lists parts of a large archive in parallel."""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, pairwise
from typing import Final, NamedTuple

import numpy as np

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey, offsets_name, stem_of
from archiver.process.running.workers import side_by_side
from archiver.process.values.columns import CHUNK, Chain, Lazy, Numbers, Places, Texts, narrow
from archiver.store.port import ListedObject, ObjectStore

LISTINGS_AT_ONCE = 8
# Keys to list before the rest is split into parallel listings: each of these may read a page of 1,000 keys in vain.
_ALONE = 5_000
# Few directories, or directories with many keys in a sample, are listed by a request each. A listing by the prefix of all
# topics costs MinIO more: MinIO continues to list behind the last wanted key.
_FEW_DIRECTORIES = 32
_MANY_KEYS = 25
_LOOKED_INTO = 4
_PAGE = 1_000
_MOST_STRANGERS = 100  # strangers under the prefix; each directory among them costs a request
_LAST = "\U0010ffff"  # sorts behind every character of a key


class ListedSegment(NamedTuple):
    """A segment by its key, and its row of the listing."""

    key: SegmentKey
    item: ListedObject


Partition = tuple[str, int, int]  # topic, life, number
ListedRow = tuple[
    int, int, int, ListedObject
]  # a segment's base, the next in its name or 0, its rewrite, and its object
_LISTED_NUMBERS: Final = ("base", "named_next", "rewrite", "size", "put")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)  # the unit of moments


def ticks_of(moment: datetime) -> int:
    return (moment - _EPOCH) // _TICK


def moment_of(ticks: int) -> datetime:
    return _EPOCH + ticks * _TICK


class ListedPartition(Lazy[ListedSegment]):
    """Segments of one partition as they were listed."""

    def __init__(
        self,
        partition: Partition,
        stem: str,
        base: Numbers,
        named_next: Numbers,
        rewrite: Numbers,
        size: Numbers,
        put: Numbers,
        etag: Texts,
    ) -> None:
        self.partition = partition
        self.stem = stem  # the common beginning of all keys
        self.base = base
        self.named_next = named_next  # 0: the name has none
        self.rewrite = rewrite
        self.size = size
        self.put = put  # ticks
        self.etag = etag

    @classmethod
    def of(cls, partition: Partition, rows: Sequence["ListedRow"]) -> "ListedPartition":
        """Make columns of segments."""
        items = [row[-1] for row in rows]
        base, named_next, rewrite = (narrow(np.array([row[at] for row in rows], np.int64)) for at in (0, 1, 2))
        size = narrow(np.array([item.size for item in items], np.int64))
        put = np.array([ticks_of(item.last_modified) for item in items], np.int64)
        etag = Texts.of([item.etag for item in items])
        return cls(partition, stem_of(items[0].key), base, named_next, rewrite, size, put, etag)

    @classmethod
    def join(cls, several: Sequence["ListedPartition"]) -> "ListedPartition":
        if len(several) == 1:
            return several[0]
        base, named_next, rewrite, size, put = (
            np.concatenate([getattr(one, name) for one in several]) for name in _LISTED_NUMBERS
        )
        etag = Texts.join([one.etag for one in several])
        return cls(several[0].partition, several[0].stem, base, named_next, rewrite, size, put, etag)

    def __len__(self) -> int:
        return len(self.base)

    def only(self, places: Places) -> "ListedPartition":
        base, named_next, rewrite, size, put = (getattr(self, name)[places] for name in _LISTED_NUMBERS)
        return ListedPartition(self.partition, self.stem, base, named_next, rewrite, size, put, self.etag.only(places))

    def value(self, place: int) -> ListedSegment:
        topic, life, number = self.partition
        base, named_next = int(self.base[place]), int(self.named_next[place]) or None
        rewrite = int(self.rewrite[place])
        key = SegmentKey(topic=topic, life=life, partition=number, base=base, next=named_next, rewrite=rewrite)
        item = ListedObject(
            key=f"{self.stem}{offsets_name(base, named_next, rewrite)}",
            size=int(self.size[place]),
            etag=self.etag[place],
            last_modified=moment_of(int(self.put[place])),
        )
        return ListedSegment(key, item)


@dataclass(frozen=True, slots=True)
class ListedSegments:
    """The result of a listing: segments by partition, and strangers, both in the order of their keys."""

    partitions: dict[Partition, ListedPartition]
    strangers: Sequence[str]

    @property
    def segments(self) -> Sequence[ListedSegment]:
        return Chain(self.partitions.values())


class Before(NamedTuple):
    """The listed objects before an object: the last plain segment, and the highest end of merged segments."""

    plain: str = ""
    merged_next: int = 0


NOTHING_BEFORE: Final = Before()


@dataclass(slots=True)
class Newest:
    """The objects that show where a partition ends: its last plain segment, and the merged segment that reaches furthest.

    The objects before each of them show whether it continues the coverage without a gap.
    """

    plain: str = ""
    merged: str = ""
    merged_next: int = 0
    before_plain: Before = NOTHING_BEFORE
    before_merged: Before = NOTHING_BEFORE

    def see(self, key: SegmentKey, object_key: str) -> None:
        """Add the next object of the listing, in the order of the keys."""
        before = Before(self.plain, self.merged_next)
        if key.next is None:
            self.plain, self.before_plain = object_key, before
        elif key.next > self.merged_next:
            self.merged, self.merged_next, self.before_merged = object_key, key.next, before

    def follow(self, object_key: str) -> None:
        """Note the plain segment before the beginning of the listing."""
        self.before_plain = self.before_plain._replace(plain=self.before_plain.plain or object_key)
        self.before_merged = self.before_merged._replace(plain=self.before_merged.plain or object_key)


NO_SEGMENTS: Final = Newest()


class _Span(NamedTuple):
    """Keys with a prefix, behind `after`, up to and with `until`; empty bounds mean the first and the last key."""

    prefix: str
    after: str
    until: str


def list_segments(archive: Archive, wanted: Callable[[str], bool] | None = None) -> ListedSegments:
    """List the segments of the archive; of the wanted topics only, if `wanted` is given."""
    spans = [_Span(archive.layout.topics_prefix, "", "")] if wanted is None else _spans_of(archive, wanted)
    found: list[_Parsed] = []
    if len(spans) == 1:  # the whole archive, one topic, or neighbours
        items = list(islice(_list(archive.store, spans[0]), _ALONE))
        found.append(_parse(archive.layout, items))
        spans = _rest_of(archive.store, spans[0], items[-1].key) if len(items) == _ALONE else []
    found += side_by_side(
        LISTINGS_AT_ONCE, lambda span: _parse(archive.layout, _list(archive.store, span)), spans, "list"
    )
    return _join(found)


def list_directory(archive: Archive, topic: str, life: int, partition: int | None = None) -> ListedSegments:
    """List one topic directory, or one partition of it."""
    prefix = (
        archive.layout.topic_prefix(topic, life)
        if partition is None
        else archive.layout.partition_prefix(topic, life, partition)
    )
    return _join([_parse(archive.layout, archive.store.list(prefix))])


def list_strangers(archive: Archive) -> list[str]:
    """List the strangers right under the prefix, up to a hundred: foreign keys, and foreign directories without their content."""
    found: list[str] = []
    after: str | None = ""
    while after is not None and len(found) < _MOST_STRANGERS:
        after = _list_strangers_from(archive, after, found)
    return found


def _list_strangers_from(archive: Archive, after: str, found: list[str]) -> str | None:
    """Continue a listing behind a key, up to the first key in a directory. Returns a name that sorts behind that directory; None at the end."""
    for item in archive.store.list(archive.layout.root, after):
        name, slash, _ = item.key.removeprefix(archive.layout.root).partition("/")
        is_ours = archive.layout.is_ours(name) if slash else item.key == archive.layout.readme_key
        if not is_ours:
            found.append(f"{archive.layout.root}{name}{slash}")
        if slash:
            return f"{archive.layout.root}{name}/{_LAST}"
        if len(found) == _MOST_STRANGERS:
            break
    return None


def list_newest(
    archive: Archive, topics: Collection[str], most_keys: float = math.inf
) -> dict[Partition, Newest] | None:
    """List topics to find the ends of partitions, with far fewer requests than one listing per partition. None: too many keys."""
    listed = itertools.count(1)

    def newest_in(span: _Span) -> dict[Partition, Newest]:
        found: dict[Partition, Newest] = {}
        for item in _list(archive.store, span):
            if next(listed) > most_keys:
                break
            key = archive.layout.parse_segment(item.key)
            if key is not None:
                found.setdefault((key.topic, key.life, key.partition), Newest()).see(key, item.key)
        return found

    newest: dict[Partition, Newest] = {}
    for found in side_by_side(LISTINGS_AT_ONCE, newest_in, _spans_of(archive, topics.__contains__), "list"):
        newest |= found  # no topic directory is in two spans
    return None if next(listed) > most_keys + 1 else newest


_Parsed = tuple[list[ListedPartition], list[str]]  # runs of segments of one partition, and strangers


def _parse(layout: Layout, items: Iterable[ListedObject]) -> _Parsed:
    runs: list[ListedPartition] = []
    strangers: list[str] = []
    rows: list[ListedRow] = []  # of a run
    current: Partition | None = None

    def end_run() -> None:
        if current is not None and rows:
            runs.append(ListedPartition.of(current, rows))
            rows.clear()

    for item in items:
        parts = layout.split_segment(item.key)
        if parts is None:
            strangers.append(item.key)
            continue
        partition, base, named_next, rewrite = parts
        if partition != current or len(rows) == CHUNK:
            end_run()
            current = partition
        rows.append((base, named_next or 0, rewrite, item))
    end_run()
    return runs, strangers


def _join(found: Iterable[_Parsed]) -> ListedSegments:
    runs: dict[Partition, list[ListedPartition]] = {}
    strangers: list[str] = []
    for some, others in found:
        strangers += others
        for run in some:
            runs.setdefault(run.partition, []).append(run)
    return ListedSegments({partition: ListedPartition.join(runs.pop(partition)) for partition in list(runs)}, strangers)


def _list(store: ObjectStore, span: _Span) -> Iterator[ListedObject]:
    for item in store.list(span.prefix, span.after):
        if not _reaches(span, item.key):
            return
        yield item


def _rest_of(store: ObjectStore, span: _Span, after: str) -> list[_Span]:
    """Divide the keys behind a key into spans: of topic directories, or, within one topic, of partitions."""
    starts = [f"{span.prefix}{name}/" for name in _directories(store, span.prefix)]
    later = [start for start in starts if start.encode() > after.encode() and _reaches(span, start)]
    bounds = [after, *(chunk[0] for chunk in _chunks(later)), span.until]
    return [_Span(span.prefix, first, last) for first, last in pairwise(bounds)]


def _reaches(span: _Span, key: str) -> bool:
    return not span.until or key.encode() <= span.until.encode()


def _spans_of(archive: Archive, wanted: Callable[[str], bool]) -> list[_Span]:
    """Return a span for each wanted directory, or one span for several small neighbours: each span costs a request."""
    prefix = archive.layout.topics_prefix
    names = _directories(archive.store, prefix)
    parsed = {name: archive.layout.parse_topic_directory(name) for name in names}
    is_wanted = {name: topic is not None and wanted(topic[0]) for name, topic in parsed.items()}
    chosen = [name for name in names if is_wanted[name]]
    each = [_Span(f"{prefix}{name}/", "", "") for name in chosen]
    if len(each) <= _FEW_DIRECTORIES or _are_large(archive.store, each):
        return each
    # Each name sorts right before its directory, and before the key of the directory itself.
    bounds = {name: f"{prefix}{name}.{_LAST}" for name in names}
    following = dict(zip(names, [bounds[name] for name in names[1:]], strict=False))
    spans: list[_Span] = []
    for chunk in _chunks(names):
        for wants, run in groupby(chunk, is_wanted.__getitem__):
            first, *others = run
            if wants and not others:
                spans.append(_Span(f"{prefix}{first}/", "", ""))
            elif wants:
                spans.append(_Span(prefix, bounds[first], following.get(others[-1], "")))
    return spans


def _are_large(store: ObjectStore, directories: Sequence[_Span]) -> bool:
    looked_into = directories[:: max(1, len(directories) // _LOOKED_INTO)]
    return sum(1 for span in looked_into for _ in islice(_list(store, span), _PAGE)) >= _MANY_KEYS * len(looked_into)


def _directories(store: ObjectStore, prefix: str) -> list[str]:
    """Return the directories in the order of the keys in them: `a.x/` comes before `a/`."""
    return sorted(store.list_directories(prefix), key=lambda name: f"{name}/".encode())


def _chunks(names: Sequence[str]) -> list[Sequence[str]]:
    """Divide directories into as many pieces as are listed in parallel."""
    size = -(-len(names) // LISTINGS_AT_ONCE) or 1
    return [names[start : start + size] for start in range(0, len(names), size)]
