"""The files of the index of segment facts, in generations: read, appended to, merged into the next one (docs/format.md §9)."""

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Final

import numpy as np

from archiver.archive.entries import Entries
from archiver.archive.handle import Archive
from archiver.archive.index import Index
from archiver.archive.index_file import (
    MOST_FILE_BYTES,
    NOTHING_SEEN,
    Directory,
    IndexEntry,
    IndexFile,
    SeenBeside,
    encode_index,
    group_entries,
    join_members,
    split_file,
)
from archiver.archive.index_member import cut_member, decode_member, encode_member
from archiver.archive.layout import FACT_DIGITS, Layout
from archiver.archive.listing import list_directory
from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError, TemporaryError
from archiver.process.ahead import run_ahead
from archiver.process.columns import as_slice
from archiver.store.port import ListedObject, ObjectKind, ObjectStore, refuse_larger

log = logging.getLogger(__name__)

# Files of a generation; then a backup begins the next one. Each is a request for every reader.
MOST_FILES: Final = 64
# What is read of a generation. While nobody could merge, there may be more files: one each ten minutes of each instance. Its
# files are held side by side; a merged one of ten million objects has 0.9 GB.
_MOST_FILES_READ: Final = 1_000
MOST_GENERATION_BYTES: Final = 3 << 30
_LAST_NUMBER: Final = 10**FACT_DIGITS - 1
INDEX_DIGEST: Final = "archiver-sha256"  # of a whole file, in its metadata
_READS_AT_ONCE = 16
_ATTEMPTS = 64


# --- reading


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
    return {INDEX_DIGEST: hashlib.sha256(content).hexdigest()}


def check_index_file(content: bytes, metadata: Mapping[str, str], key: str) -> None:
    """Read all of a file. Raises CorruptSegmentError; gzip alone overlooks some bits, of its header and in its padding."""
    problem = _digest_problem(content, metadata, key)
    if problem:
        raise CorruptSegmentError(problem)
    for member in split_file(content, key).members.values():
        decode_member(cut_member(member), key)


def _digest_problem(content: bytes, metadata: Mapping[str, str], key: str) -> str:
    digest = metadata.get(INDEX_DIGEST)
    is_good = digest is None or digest == hashlib.sha256(content).hexdigest()
    return "" if is_good else f"{key}: its bytes are not those that were written"


def share_entries(
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
