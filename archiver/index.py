"""An index of segment facts, so that a reader need not ask for each segment: a cache, never believed over the listing (docs/format.md §9)."""

import hashlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Final

from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError, TemporaryError
from archiver.facts import SegmentFacts
from archiver.index_file import (
    NOTHING_SEEN,
    Directory,
    IndexEntry,
    IndexFile,
    Place,
    Row,
    SeenBeside,
    decode_member,
    encode_index,
    encode_member,
    entry_of,
    facts_of,
    is_of,
    join_members,
    place_of,
    reach_of,
    size_of,
    span_of,
    split_file,
)
from archiver.layout import Layout, SegmentKey
from archiver.store import ObjectStore

log = logging.getLogger(__name__)

# Files of a generation; then a backup begins the next one. Each is a request for every reader.
MOST_FILES: Final = 64
SHA256: Final = "archiver-sha256"  # of a whole file, in its metadata
_READS_AT_ONCE = 16
_ATTEMPTS = 64
_MOST_FRESH = 5_000  # 4 MB; what is forgotten costs each reader a HEAD


class FreshEntries:
    """What this process has put and no file of the index names yet, and what it found there. Safe for many threads."""

    def __init__(self) -> None:
        self._entries: deque[IndexEntry] = deque(maxlen=_MOST_FRESH)
        self._found: dict[Directory, dict[int, int]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, entry: IndexEntry) -> None:
        with self._lock:
            self._entries.append(entry)

    def take(self) -> list[IndexEntry]:
        with self._lock:
            taken = list(self._entries)
            self._entries.clear()
        return taken

    def give_back(self, entries: Iterable[IndexEntry]) -> None:
        with self._lock:
            newer = list(self._entries)
            self._entries.clear()
            self._entries.extend([*entries, *newer])

    def note_found(self, directory: Directory, partition: int, end: int) -> None:
        """Note where a partition ended before this process put anything: the index should know all that lies below."""
        with self._lock:
            self._found.setdefault(directory, {})[partition] = end

    def give_back_found(self, found: Mapping[Directory, Mapping[int, int]]) -> None:
        with self._lock:
            for directory, ends in found.items():
                self._found[directory] = {**ends, **self._found.get(directory, {})}

    def take_found(self) -> dict[Directory, dict[int, int]]:
        with self._lock:
            taken, self._found = self._found, {}
        return taken


# --- reading


class Index:
    """The entries of some topic directories."""

    def __init__(self) -> None:
        self.beside = NOTHING_SEEN  # what anybody ever saw
        self.files = 0  # of the generation that holds
        self.lost_files = 0  # of those before its last one: what they remembered is gone with them
        self.unreadable: dict[str, str] = {}  # what is wrong with a file, by its key; with the index, by its prefix
        self._rows: dict[Directory, dict[Place, Row]] = {}

    def add(self, directory: Directory, rows: dict[Place, Row]) -> None:
        """Later files win."""
        self._rows.setdefault(directory, {}).update(rows)

    def reach(self) -> dict[tuple[str, int, int], int]:
        """Tell up to which offset objects of each topic, life and partition are known to have been put, there or gone."""
        reach: dict[tuple[str, int, int], int] = {}
        for (topic, life), rows in self._rows.items():
            for partition, end in map(reach_of, rows.values()):
                place = topic, life, partition
                reach[place] = max(end, reach.get(place, 0))
        return reach

    def sizes(self) -> dict[str, int]:
        """Tell how many bytes the objects of each topic have together."""
        sizes: Counter[str] = Counter()
        for (topic, _), rows in self._rows.items():
            sizes[topic] += sum(map(size_of, rows.values()))
        return sizes

    def not_whole(self, directory: Directory, ends: Mapping[int, int]) -> list[int]:
        """Tell of which partitions some offset below an end is in no entry; what lies before all entries may be swept."""
        spans: dict[int, list[tuple[int, int]]] = {partition: [] for partition in ends}
        for partition, base, end in map(span_of, self._rows.get(directory, {}).values()):
            if partition in spans and base < ends[partition]:
                spans[partition].append((base, end))
        return [partition for partition, end in ends.items() if _reach_from_first(spans[partition]) < end]

    def gone(self, directory: Directory, listed: Collection[Place]) -> list[IndexEntry]:
        """Return the entry that reaches furthest of each partition where it is of an object that is not listed any more."""
        furthest: dict[int, tuple[int, Place]] = {}
        for place, row in self._rows.get(directory, {}).items():
            partition, end = reach_of(row)
            furthest[partition] = max((end, place), furthest.get(partition, (0, place)), key=lambda one: one[0])
        return [
            entry_of(directory, self._rows[directory][place]) for _, place in furthest.values() if place not in listed
        ]

    def find(self, key: SegmentKey, size: int, etag: str) -> SegmentFacts | None:
        """Return the facts of exactly the object of this key, this size and this ETag."""
        row = self._rows.get((key.topic, key.life), {}).get(place_of(key))
        return None if row is None or not is_of(row, size, etag) else self.remembered(key)

    def remembered(self, key: SegmentKey) -> SegmentFacts | None:
        """Return the facts of whatever object was put under this key."""
        row = self._rows.get((key.topic, key.life), {}).get(place_of(key))
        if row is None:
            return None
        try:
            return facts_of(row)
        except ValueError as error:
            log.debug("%s: not taken from the index: %s", key, error)
            return None


def _reach_from_first(spans: list[tuple[int, int]]) -> int:
    """Tell how far spans reach without a gap behind the first of them."""
    reach = min(spans, default=(0, 0))[0]
    for base, end in sorted(spans):
        if base > reach:
            break
        reach = max(reach, end)
    return reach


def read_index(store: ObjectStore, layout: Layout, wanted: Callable[[str], bool] | None = None) -> Index:
    """Read what the index knows of the wanted topics (default: all). Whatever is wrong with it, it is only smaller then."""
    index = Index()
    try:
        generation, keys = _newest_generation(store, layout)
    except ArchiverError as error:
        log.info("the index of facts is not used: %s", error)
        index.unreadable[layout.index_prefix] = str(error)
        return index
    index.files = len(keys)
    index.lost_files = 1 + max((layout.parse_index(generation, key) or 0 for key in keys), default=-1) - len(keys)
    for key, (members, beside) in _read_files(store, keys, index):
        index.beside = index.beside.joined(beside)
        for directory in members:
            if wanted is None or wanted(directory[0]):
                _add_member(index, directory, members[directory], key)
    return index


def _add_member(index: Index, directory: Directory, member: bytes, key: str) -> None:
    try:
        index.add(directory, decode_member(member, key))
    except NotWholeError as error:
        log.info("a part of the index of facts is not used: %s", error)
        index.unreadable.setdefault(key, str(error))


def _read_files(store: ObjectStore, keys: Sequence[str], index: Index) -> Iterator[tuple[str, IndexFile]]:
    """Read files, in order, those that can be read; the index is told of the others."""

    def read(key: str) -> tuple[str, IndexFile] | None:
        try:
            found = store.get(key)
            if found is None:
                return None
            problem = _digest_problem(*found, key)
            if problem:  # most of it may be good still
                index.unreadable[key] = problem
            return key, split_file(found[0], key)
        except ArchiverError as error:
            log.info("a part of the index of facts is not used: %s", error)
            index.unreadable.setdefault(key, str(error))
            return None

    with ThreadPoolExecutor(max_workers=_READS_AT_ONCE, thread_name_prefix="index") as pool:
        yield from filter(None, pool.map(read, keys))


def _newest_generation(store: ObjectStore, layout: Layout) -> tuple[int, list[str]]:
    """Return its number and the keys of its files, in order. Number 0 without a file: there is no index yet."""
    names = store.list_directories(layout.index_prefix)
    generation = max((found for name in names if (found := layout.parse_index_generation(name)) is not None), default=0)
    listed = store.list(layout.index_generation_prefix(generation))
    return generation, [item.key for item in listed if layout.parse_index(generation, item.key) is not None]


# --- writing


def append_to_index(
    store: ObjectStore,
    layout: Layout,
    entries: Sequence[IndexEntry],
    beside: SeenBeside = NOTHING_SEEN,
    *,
    most_files: int | None = None,
) -> int:
    """Put a file behind those of the newest generation. Returns how many that has then; with `most_files` it gets no more."""
    content = encode_index(entries, beside)
    generation, keys = _newest_generation(store, layout)
    number = 1 + max((layout.parse_index(generation, key) or 0 for key in keys), default=-1)
    # Who finds its number taken tries the next one at once, while the one that took it has to list before it comes again:
    # so nobody loses for long, however many write.
    for lost in range(_ATTEMPTS):
        if most_files is not None and len(keys) + lost >= most_files:
            return len(keys) + lost
        if store.put_if_absent(layout.index_key(generation, number + lost), content, _metadata(content)) is not None:
            return len(keys) + lost + 1
    raise TemporaryError(f"{layout.index_prefix}: {_ATTEMPTS} other writers were faster")


def _metadata(content: bytes) -> dict[str, str]:
    return {SHA256: hashlib.sha256(content).hexdigest()}


def check_index_file(content: bytes, metadata: Mapping[str, str], key: str) -> None:
    """Read all of a file. Raises CorruptSegmentError; gzip alone overlooks some bits, of its header and in its padding."""
    problem = _digest_problem(content, metadata, key)
    if problem:
        raise CorruptSegmentError(problem)
    for member in split_file(content, key).members.values():
        decode_member(member, key)


def _digest_problem(content: bytes, metadata: Mapping[str, str], key: str) -> str:
    digest = metadata.get(SHA256)
    is_good = digest is None or digest == hashlib.sha256(content).hexdigest()
    return "" if is_good else f"{key}: its bytes are not those that were written"


def share(
    store: ObjectStore,
    layout: Layout,
    entries: Sequence[IndexEntry],
    beside: SeenBeside = NOTHING_SEEN,
) -> None:
    """Append what is no backup's, if one may: what a reader had to ask for, what a restore has left beside the records.

    A full generation waits for a backup to merge it.
    """
    try:
        append_to_index(store, layout, entries, beside, most_files=MOST_FILES)
    except (ArchiverError, ValueError) as error:  # ValueError: there are no more numbers
        log.debug("the index of facts was not written: %s", error)


def merge_index(store: ObjectStore, layout: Layout) -> None:
    """Begin a generation with all that the newest one knows of objects that are still there.

    One topic directory at a time: what is held is the compressed files. Who loses the race for the new generation has
    nothing to do: what it was about to write is in the files of the old one.
    """
    packed = PackedIndex(store, layout)
    members: dict[Directory, bytes] = {}
    for directory in packed.directories():
        entries = list(_entries_of(store, layout, directory, packed.of(directory)))
        if entries:
            members[directory] = encode_member(entries)
    if members:
        content = join_members(members, packed.beside)
        store.put_if_absent(layout.index_key(packed.generation + 1, 0), content, _metadata(content))


class PackedIndex:
    """All files of the index as they lie there, compressed: what it knows of a topic directory is read when it is asked for."""

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        self.generation, keys = _newest_generation(store, layout)
        self._files = list(_read_files(store, keys, Index()))
        self.beside = reduce(SeenBeside.joined, (file.beside for _, file in self._files), NOTHING_SEEN)

    def directories(self) -> list[Directory]:
        return sorted({directory for _, file in self._files for directory in file.members})

    def of(self, directory: Directory) -> Index:
        index = Index()
        for key, file in self._files:
            if directory in file.members:
                _add_member(index, directory, file.members[directory], key)
        return index


def _entries_of(store: ObjectStore, layout: Layout, directory: Directory, index: Index) -> Iterator[IndexEntry]:
    listed: set[Place] = set()
    for item in store.list(layout.topic_prefix(*directory)):
        key = layout.parse_segment(item.key)
        if key is None:
            continue
        listed.add(place_of(key))
        facts = index.find(key, item.size, item.etag)
        if facts is not None:
            yield IndexEntry(key, item.size, item.etag, facts)
    # A listing does not tell that a partition's last object is gone: what is known of it is the only trace.
    yield from index.gone(directory, listed)
