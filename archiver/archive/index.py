"""An index of segment facts, so that a reader need not ask for each segment: a cache, never believed over the listing (docs/format.md §9)."""

import hashlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import reduce
from typing import Final

import numpy as np

from archiver.archive.entries import Entries
from archiver.archive.handle import Archive
from archiver.archive.index_file import (
    MOST_FILE_BYTES,
    NOTHING_SEEN,
    Directory,
    IndexEntry,
    IndexFile,
    SeenBeside,
    SmallMember,
    cut_member,
    decode_member,
    encode_index,
    encode_member,
    entries_of,
    group_entries,
    join_members,
    split_file,
)
from archiver.archive.layout import FACT_DIGITS, Layout, SegmentKey
from archiver.archive.listing import ListedPartition, Partition, list_directory
from archiver.archive.segment_facts import SegmentFacts
from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError, TemporaryError
from archiver.process.ahead import run_ahead
from archiver.process.columns import Numbers, Places, as_slice, total
from archiver.store.port import ListedObject, ObjectKind, ObjectStore, refuse_larger

log = logging.getLogger(__name__)

# Files of a generation; then a backup begins the next one. Each is a request for every reader.
MOST_FILES: Final = 64
# What is read of a generation. While nobody could merge, there may be more files: one each ten minutes of each instance. Its
# files are held side by side; a merged one of ten million objects has 0.9 GB.
_MOST_FILES_READ: Final = 1_000
MOST_GENERATION_BYTES: Final = 3 << 30
_LAST_NUMBER: Final = 10**FACT_DIGITS - 1
SHA256: Final = "archiver-sha256"  # of a whole file, in its metadata
_READS_AT_ONCE = 16
_ATTEMPTS = 64
# Entries that are not in columns yet take a kilobyte each, columns that are put together two: for a few of a directory, too.
_MOST_WAITING: Final = 20_000
_LOOK_EVERY: Final = 4_000
_ENOUGH_WAIT: Final = 20  # of a directory
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


class KnownDirectory:
    """The entries of a topic directory, by partition."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        numbers = entries.numbers("partition")
        order = np.argsort(numbers, kind="stable").astype(np.int32)
        found, starts = np.unique(numbers[order], return_index=True)
        self._rows = dict(zip(found.tolist(), np.split(order, starts[1:]), strict=False))
        self._false: set[int] = set()

    @property
    def partitions(self) -> Collection[int]:
        return self._rows.keys()

    def extend(self, more: list[Entries]) -> int:
        """Put entries that no file has behind those of the index; returns where they begin. They are not looked at here."""
        before = len(self.entries)
        self.entries = Entries.join([self.entries, *more])
        return before

    def rows(self, partition: int) -> Places:
        """Return which entries are of a partition, in the order in which they were written."""
        found = self._rows.get(partition)
        return slice(0, 0) if found is None else as_slice(found)

    def ends(self) -> dict[int, int]:
        """Tell up to which offset objects of each partition are known to have been put, there or gone."""
        return {partition: int(self.entries.numbers("next")[rows].max()) for partition, rows in self._rows.items()}

    def disbelieve(self, row: int) -> None:
        """Note that an object, as it is, has other facts than this entry."""
        self._false.add(row)

    def end(self, partition: int) -> int:
        """The same of one partition, by entries that no later one takes the place of, and that no object contradicts."""
        rows = self.latest(partition)
        rows = rows[~np.isin(rows, list(self._false))] if self._false else rows
        return int(self.entries.numbers("next")[rows].max()) if len(rows) else 0

    def latest(self, partition: int) -> Numbers:
        """Return the entries of a partition but those that a later one takes the place of."""
        rows = np.arange(len(self.entries), dtype=np.int32)[self.rows(partition)]
        base, named_next = self.entries.numbers("base")[rows], self.entries.named_next(rows)
        order = np.lexsort((named_next, base))
        is_last = np.ones(len(rows), bool)
        is_last[:-1] = (np.diff(base[order].astype(np.int64)) != 0) | (np.diff(named_next[order].astype(np.int64)) != 0)
        return rows[order[is_last]]

    def of_names(self, partition: int, base: Numbers, named_next: Numbers) -> Numbers:
        """Return the latest entry for each of these objects, by their names; -1: there is none."""
        rows = np.arange(len(self.entries), dtype=np.int32)[self.rows(partition)]
        bases = np.concatenate([self.entries.numbers("base")[rows].astype(np.int64), base])
        nexts = np.concatenate([self.entries.named_next(rows).astype(np.int64), named_next])
        order = np.lexsort((nexts, bases))  # it keeps the order of what is alike: entries, and then the object
        is_asked = order >= len(rows)
        latest = np.maximum.accumulate(np.where(is_asked, -1, np.arange(len(order))))[is_asked]
        asked, told = order[is_asked], order[latest]
        is_told = (latest >= 0) & (bases[told] == bases[asked]) & (nexts[told] == nexts[asked])
        found = np.full(len(base), -1, np.int32)
        found[asked[is_told] - len(rows)] = rows[told[is_told]]
        return found

    def find(self, listed: ListedPartition) -> Numbers:
        """Return the entry of each listed object that is of exactly its name, size and ETag, and has facts; or -1."""
        found = self.of_names(listed.partition[-1], listed.base, listed.named_next)
        places = np.flatnonzero(found >= 0)
        rows, objects, entries = found[places], listed.only(as_slice(places)), self.entries
        is_same = (entries.numbers("size")[rows] == objects.size) & entries.texts("etag").only(rows).are(objects.etag)
        is_good = is_same & entries.has_facts(rows) & ~objects.etag.are_empty()
        found[places[~is_good]] = -1
        return found


class Index:
    """The entries of some topic directories."""

    def __init__(self) -> None:
        self.beside = NOTHING_SEEN  # what anybody ever saw
        self.files = 0  # of the generation that holds
        self.lost_files = 0  # of those before its last one: what they remembered is gone with them
        self.unreadable: dict[str, str] = {}  # what is wrong with a file, by its key; with the index, by its prefix
        self._waiting: dict[Directory, list[SmallMember]] = {}
        self._waiting_count = 0
        self._most_waiting = _LOOK_EVERY
        self._added: dict[Directory, list[Entries]] = {}
        self._known: dict[Directory, KnownDirectory] = {}

    def add(self, directory: Directory, member: Entries | SmallMember) -> None:
        """Later files win."""
        if isinstance(member, SmallMember):
            self._waiting.setdefault(directory, []).append(member)
            self._waiting_count += member.entries
            if self._waiting_count > self._most_waiting:
                self._settle_many()
        else:
            self._settle(directory)
            self._added.setdefault(directory, []).append(member)

    def _settle_many(self) -> None:
        """Put into columns what waits of directories of which it is worth it; of all, when too much waits."""
        counts = {one: sum(member.entries for member in members) for one, members in self._waiting.items()}
        worth = [one for one, count in counts.items() if count >= _ENOUGH_WAIT]
        left = sum(counts.values()) - sum(counts[one] for one in worth)
        for directory in worth if left <= _MOST_WAITING - _LOOK_EVERY else counts:
            self._settle(directory)
        self._waiting_count = sum(member.entries for members in self._waiting.values() for member in members)
        self._most_waiting = self._waiting_count + _LOOK_EVERY

    def _settle(self, directory: Directory) -> None:
        waiting = self._waiting.pop(directory, None)
        if waiting is not None:
            self._added.setdefault(directory, []).append(entries_of(waiting))

    @property
    def directories(self) -> Collection[Directory]:
        return self._waiting.keys() | self._added.keys() | self._known.keys()

    def of(self, directory: Directory) -> KnownDirectory:
        """Return what is known of a topic directory."""
        self._settle(directory)
        added = self._added.pop(directory, None)
        if added is not None:
            before = self._known.pop(directory, None)
            joined = Entries.join([*([] if before is None else [before.entries]), *added])
            self._known[directory] = KnownDirectory(joined)
        return self._known.setdefault(directory, KnownDirectory(Entries.of(())))

    def forget(self, directory: Directory) -> None:
        """Keep nothing of a topic directory."""
        for some in (self._waiting, self._added, self._known):
            some.pop(directory, None)

    def reach_beyond(self, there: Callable[[Partition], int]) -> dict[Partition, int]:
        """Tell up to which offset objects of partitions are known to have been put, where that is beyond what is there."""
        found: dict[Partition, int] = {}
        for directory in self.directories:
            known = self.of(directory)
            for number, most in known.ends().items():
                place = (*directory, number)
                end = known.end(number) if most > there(place) else 0
                if end > there(place):
                    found[place] = end
        return found

    def sizes(self) -> dict[str, int]:
        """Tell how many bytes the objects of each topic have together."""
        sizes: Counter[str] = Counter()
        for directory in self.directories:
            known = self.of(directory)
            size = known.entries.numbers("size")
            sizes[directory[0]] += sum(total(size[known.latest(partition)]) for partition in known.partitions)
        return sizes

    def not_whole(self, directory: Directory, ends: Mapping[int, int]) -> list[int]:
        """Tell of which partitions some offset below an end is in no entry; what lies before all entries may be swept."""
        known = self.of(directory)
        return [number for number, end in ends.items() if _reach_from_first(known, number, end) < end]

    def gone(self, directory: Directory, listed: Mapping[int, ListedPartition]) -> Numbers:
        """Return the entry that reaches furthest of each partition where it is of an object that is not listed any more."""
        known, lost = self.of(directory), list[int]()
        for number in known.partitions:
            rows = np.arange(len(known.entries))[known.rows(number)]
            furthest = rows[np.argmax(known.entries.numbers("next")[rows])][np.newaxis]
            there = listed.get(number)
            names = (known.entries.numbers("base")[furthest], known.entries.named_next(furthest))
            is_there = there is not None and bool(((there.base == names[0]) & (there.named_next == names[1])).any())
            if not is_there:
                lost += furthest.tolist()
        return np.array(lost, np.int64)

    def remembered(self, key: SegmentKey) -> SegmentFacts | None:
        """Return the facts of whatever object was put under this key."""
        known = self.of((key.topic, key.life))
        (row,) = known.of_names(key.partition, np.array([key.base]), np.array([key.next or 0])).tolist()
        return known.entries.known_facts(row) if row >= 0 else None


def _reach_from_first(known: KnownDirectory, partition: int, end: int) -> int:
    """Tell how far entries that begin below an end reach without a gap behind the first of them."""
    rows = known.rows(partition)
    base, following = (known.entries.numbers(name)[rows].astype(np.int64) for name in ("base", "next"))
    order = np.argsort(base, kind="stable")
    order = order[base[order] < end]
    if not len(order):
        return 0
    reach = np.maximum.accumulate(following[order])
    gaps = np.flatnonzero(base[order][1:] > reach[:-1])
    return int(reach[gaps[0]] if len(gaps) else reach[-1])


def read_index(archive: Archive, wanted: Callable[[str], bool] | None = None) -> Index:
    """Read what the index knows of the wanted topics (default: all). Whatever is wrong with it, it is only smaller then."""
    index = Index()
    try:
        generation, files = _newest_generation(archive)
    except ArchiverError as error:
        log.info("the index of facts is not used: %s", error)
        index.unreadable[archive.layout.index_prefix] = str(error)
        return index
    index.files = len(files)
    index.lost_files = _next_number(archive.layout, generation, files) - len(files)
    for key, (members, beside) in _read_files(archive.store, files, index):
        index.beside = index.beside.joined(beside)
        for directory in list(members):
            packed = cut_member(
                members.pop(directory)
            )  # they are used up: beside what is in them they would be too much
            if wanted is None or wanted(directory[0]):
                _add_member(index, directory, packed, key)
    return index


def _add_member(index: Index, directory: Directory, packed: deque[bytes], key: str) -> None:
    try:
        index.add(directory, decode_member(packed, key))
    except NotWholeError as error:
        _leave_out(index, key, error)


def _leave_out(index: Index, key: str, error: object) -> None:
    log.info("a part of the index of facts is not used: %s", error)
    index.unreadable.setdefault(key, str(error))


def _read_files(store: ObjectStore, files: Iterable[ListedObject], index: Index) -> Iterator[tuple[str, IndexFile]]:
    """Read files, in order, those that can be read; the index is told of the others."""

    def read(item: ListedObject) -> bytes | None:
        try:
            found = store.get(item.key, item.size)
        except ArchiverError as error:
            _leave_out(index, item.key, error)
            return None
        problem = _digest_problem(*found, item.key) if found is not None else ""
        if problem:  # most of it may be good still
            index.unreadable[item.key] = problem
        return None if found is None else found[0]

    wanted = list(_bounded(files, index))
    contents = run_ahead(read, wanted, _READS_AT_ONCE, "index")
    for item in wanted:
        try:  # one by one: what is made of a first line may be larger than the file
            content = next(contents)
            file = None if content is None else split_file(content, item.key)
        except NotWholeError as error:
            _leave_out(index, item.key, error)
            continue
        del content  # its members are used up one by one
        if file is not None:
            yield item.key, file


def _bounded(files: Iterable[ListedObject], index: Index) -> Iterator[ListedObject]:
    """Tell which files are read, by their rows of a listing: not too large a one, nor too many, nor too much."""
    left_bytes, left_files = MOST_GENERATION_BYTES, _MOST_FILES_READ
    for item in files:
        try:
            refuse_larger(item.key, item.size, min(MOST_FILE_BYTES, left_bytes))
            if not left_files:
                raise CorruptSegmentError(f"{item.key}: is behind {_MOST_FILES_READ:,} other files")  # noqa: TRY301
        except CorruptSegmentError as error:
            _leave_out(index, item.key, error)
            continue
        left_bytes, left_files = left_bytes - item.size, left_files - 1
        yield item


def _newest_generation(archive: Archive) -> tuple[int, list[ListedObject]]:
    """Return its number and its files, in order. Number 0 without a file: there is no index yet."""
    names = archive.store.list_directories(archive.layout.index_prefix)
    generation = max(
        (found for name in names if (found := archive.layout.parse_index_generation(name)) is not None), default=0
    )
    listed = archive.store.list(archive.layout.index_generation_prefix(generation))
    return generation, [item for item in listed if archive.layout.parse_index(generation, item.key) is not None]


def _next_number(layout: Layout, generation: int, files: Iterable[ListedObject]) -> int:
    return 1 + max((layout.parse_index(generation, item.key) or 0 for item in files), default=-1)


# --- writing


def append_to_index(
    archive: Archive,
    entries: Iterable[IndexEntry],
    beside: SeenBeside = NOTHING_SEEN,
) -> int:
    """Put a file behind those of the newest generation. Returns how many that has then."""
    return _append(archive, encode_index(group_entries(entries), beside))


def _append(archive: Archive, content: bytes, most_files: int | None = None) -> int:
    """With `most_files` the generation gets no more than so many."""
    generation, files = _newest_generation(archive)
    number = _next_number(archive.layout, generation, files)
    if number + _ATTEMPTS > _LAST_NUMBER:
        raise _nothing_follows(archive.layout, files[-1].key)
    # Who finds its number taken tries the next one at once, while the one that took it has to list before it comes again:
    # so nobody loses for long, however many write.
    for lost in range(_ATTEMPTS):
        if most_files is not None and len(files) + lost >= most_files:
            return len(files) + lost
        if (
            archive.store.put_if_absent(
                archive.layout.index_key(generation, number + lost), content, _metadata(content), kind=ObjectKind.FACT
            )
            is not None
        ):
            return len(files) + lost + 1
    raise TemporaryError(f"{archive.layout.index_prefix}: {_ATTEMPTS} other writers were faster")


def _nothing_follows(layout: Layout, last: str) -> ArchiverError:
    return CorruptSegmentError(
        f"{last}: has the last number, and nothing can be put behind it; delete {layout.index_prefix}, which is made again"
    )


def _metadata(content: bytes) -> dict[str, str]:
    return {SHA256: hashlib.sha256(content).hexdigest()}


def check_index_file(content: bytes, metadata: Mapping[str, str], key: str) -> None:
    """Read all of a file. Raises CorruptSegmentError; gzip alone overlooks some bits, of its header and in its padding."""
    problem = _digest_problem(content, metadata, key)
    if problem:
        raise CorruptSegmentError(problem)
    for member in split_file(content, key).members.values():
        decode_member(cut_member(member), key)


def _digest_problem(content: bytes, metadata: Mapping[str, str], key: str) -> str:
    digest = metadata.get(SHA256)
    is_good = digest is None or digest == hashlib.sha256(content).hexdigest()
    return "" if is_good else f"{key}: its bytes are not those that were written"


def share(
    archive: Archive,
    files: Iterable[Iterable[tuple[Directory, Entries]]],
    beside: SeenBeside = NOTHING_SEEN,
    *,
    level: int = logging.DEBUG,
) -> None:
    """Append what is no backup's, if one may: what a reader had to ask for, what a restore has left beside the records.

    A full generation waits for a backup to merge it. That it could not be written is logged at `level`: readers need not.
    """
    try:
        for known in files:
            _append(archive, encode_index(known, beside), MOST_FILES)
    except ArchiverError as error:
        log.log(level, "the index of facts was not written: %s", error)


def merge_index(archive: Archive) -> None:
    """Begin a generation with all that the newest one knows of objects that are still there.

    One topic directory at a time: what is held is the compressed files. Who loses the race for the new generation has
    nothing to do: what it was about to write is in the files of the old one.
    """
    packed = PackedIndex(archive)
    members: dict[Directory, bytes] = {}
    for directory in packed.directories():
        entries = _entries_of(archive, directory, packed.of(directory))
        if len(entries):
            members[directory] = encode_member(entries)
    for problem in packed.unreadable.values():
        log.warning("a part of the index of facts is left behind, as it cannot be read: %s", problem)
    if packed.generation == _LAST_NUMBER:
        raise _nothing_follows(archive.layout, archive.layout.index_generation_prefix(_LAST_NUMBER))
    if members:
        content = join_members(members, packed.beside)
        archive.store.put_if_absent(
            archive.layout.index_key(packed.generation + 1, 0), content, _metadata(content), kind=ObjectKind.FACT
        )


class PackedIndex:
    """All files of the index as they lie there, compressed: what it knows of a topic directory is read when it is asked for."""

    def __init__(self, archive: Archive) -> None:
        self.generation, files = _newest_generation(archive)
        told = Index()
        self._files = list(_read_files(archive.store, files, told))
        self.unreadable = told.unreadable  # also of what was read since
        self.beside = reduce(SeenBeside.joined, (file.beside for _, file in self._files), NOTHING_SEEN)

    def directories(self) -> list[Directory]:
        return sorted({directory for _, file in self._files for directory in file.members})

    def of(self, directory: Directory) -> Index:
        index = Index()
        for key, file in self._files:
            if directory in file.members:
                _add_member(index, directory, cut_member(file.members[directory]), key)
        self.unreadable |= index.unreadable
        return index


def _entries_of(archive: Archive, directory: Directory, index: Index) -> Entries:
    """Return what is known of the objects that are listed."""
    listing = list_directory(archive, *directory)
    listed = {partition: found for (_, _, partition), found in listing.partitions.items()}
    known = index.of(directory)
    rows = [known.find(found) for found in listed.values()]
    # A listing does not tell that a partition's last object is gone: what is known of it is the only trace.
    kept = np.concatenate([*rows, index.gone(directory, listed)])
    kept = kept[kept >= 0]
    return known.entries.only(as_slice(kept[known.entries.has_facts(kept)]))
