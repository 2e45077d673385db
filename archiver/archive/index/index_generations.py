"""Reads, appends and merges the files of the index, which form generations (docs/format.md §9). Readers and backups use it."""

import hashlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import LAST_FACT_NUMBER, Layout
from archiver.archive.index.index_file import (
    MOST_FILE_BYTES,
    NOTHING_SEEN,
    Directory,
    IndexFile,
    SeenControl,
    encode_index,
    group_entries,
    join_members,
    split_file,
)
from archiver.archive.index.index_member import cut_member, decode_member, encode_member
from archiver.archive.index.loaded_index import Index
from archiver.archive.segments.entries import Entries, IndexEntry
from archiver.archive.segments.listing import list_directory
from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError, TemporaryError
from archiver.process.running.ahead import run_ahead
from archiver.process.values.columns import as_slice
from archiver.store.port import ListedObject, ObjectKind, ObjectStore, refuse_larger

log = logging.getLogger(__name__)

# A generation with so many files is full: a backup then begins the next one. Each file costs every reader a request.
MOST_FILES: Final = 64
# Files to read of a generation. While no backup merges, it grows beyond MOST_FILES: each instance adds a file in ten minutes.
# All its files are in memory at once; a merged file of ten million objects has 0.6 GB.
_MOST_FILES_READ: Final = 1_000
MOST_GENERATION_BYTES: Final = 3 << 30
INDEX_DIGEST: Final = "archiver-sha256"  # of a whole file, in its metadata
_READS_AT_ONCE = 16
_ATTEMPTS = 64
_OPENINGS: Final = 3


# --- reading


@dataclass(slots=True)
class _Limits:
    """What may still be read of an index."""

    files: int
    bytes: int = MOST_GENERATION_BYTES

    def within(self, files: Iterable[ListedObject], index: Index) -> Iterator[ListedObject]:
        """Yield the files to read; note the others in the index."""
        for item in files:
            if not self.files:
                index.unread_files += 1
                continue
            try:
                refuse_larger(item.key, item.size, min(MOST_FILE_BYTES, self.bytes))
            except CorruptSegmentError as error:
                index.leave_out(item.key, error)
                continue
            self.bytes, self.files = self.bytes - item.size, self.files - 1
            yield item


def read_index(archive: Archive, wanted: Callable[[str], bool] | None = None, *, is_strict: bool = False) -> Index:
    """Read the index entries of the wanted topics (default: all). Unreadable files are left out, and named in `unreadable`.

    If listed files are missing, a newer generation may exist and a sweep may have deleted this one: the newer one is read.
    `is_strict`: only damage leaves a file out. An error of the store is raised, since the file may be whole.
    """
    index = Index()
    for _ in range(_OPENINGS):
        index, gone = Index(is_strict=is_strict), list[str]()
        try:
            generation, files = _newest_generation(archive)
            _read_generation(archive, index, generation, files, wanted, gone, _Limits(_MOST_FILES_READ))
            if not gone or _newest_generation(archive)[0] == generation:
                break
        except ArchiverError as error:
            index.leave_out(archive.layout.index_prefix, error)
            break
    return index


def _read_generation(
    archive: Archive,
    index: Index,
    generation: int,
    files: list[ListedObject],
    wanted: Callable[[str], bool] | None,
    gone: list[str],
    limits: _Limits,
) -> None:
    """Read a generation, and then the files of the previous one that were added while it was merged."""
    index.files = len(files)
    index.lost_files = _next_number(archive.layout, generation, files) - len(files)
    first, merged_files = archive.layout.index_key(generation, 0), None

    def read(some: Iterable[ListedObject]) -> Iterator[tuple[str, IndexFile]]:
        return _read_files(archive.store, limits.within(some, index), index, gone)

    def read_all() -> Iterator[tuple[str, IndexFile]]:
        nonlocal merged_files
        for key, file in read(files):
            if key == first:
                merged_files = file.merged_files
            yield key, file
        if generation and merged_files is not None:
            yield from read(files_from(archive, generation - 1, merged_files))

    for key, (members, seen_control, _) in read_all():
        index.seen_control = index.seen_control.joined(seen_control)
        for directory, member in members.items():
            if wanted is None or wanted(directory[0]):
                index.add(directory, key, member)


def _read_files(
    store: ObjectStore, files: Iterable[ListedObject], index: Index, gone: list[str]
) -> Iterator[tuple[str, IndexFile]]:
    """Yield the readable files in order; add missing files to `gone`, and note the others as unreadable in the index."""

    def read(item: ListedObject) -> bytes | None:
        try:
            found = store.get(item.key, item.size)
        except ArchiverError as error:
            index.leave_out(item.key, error)
            return None
        problem = _digest_problem(*found, item.key) if found is not None else ""
        if problem:  # most of the file may still be good
            index.note_problem(item.key, problem)
        return None if found is None else found[0]

    wanted = list(files)
    contents = run_ahead(read, wanted, _READS_AT_ONCE, "index")
    for item in wanted:
        try:  # one file at a time: its parsed first line may be larger than the file
            content = next(contents)
            file = None if content is None else split_file(content, item.key)
        except NotWholeError as error:
            index.leave_out(item.key, error)
            continue
        del content  # its members are used up one by one
        if file is None:
            gone.append(item.key)
        else:
            yield item.key, file


def _newest_generation(archive: Archive) -> tuple[int, list[ListedObject]]:
    """Return the number of the newest generation, and its files in order. Number 0 without files: no index exists yet."""
    names = archive.store.list_directories(archive.layout.index_prefix)
    generation = max(
        (found for name in names if (found := archive.layout.parse_index_generation(name)) is not None), default=0
    )
    return generation, files_from(archive, generation, 0)


def files_from(archive: Archive, generation: int, first: int) -> list[ListedObject]:
    """List the files of a generation from a number on, in order."""
    listed = archive.store.list(archive.layout.index_generation_prefix(generation))
    numbered = ((archive.layout.parse_index(generation, item.key), item) for item in listed)
    return [item for number, item in numbered if number is not None and number >= first]


def _next_number(layout: Layout, generation: int, files: Iterable[ListedObject]) -> int:
    return 1 + max((layout.parse_index(generation, item.key) or 0 for item in files), default=-1)


# --- writing


def append_to_index(
    archive: Archive,
    entries: Iterable[IndexEntry],
    seen_control: SeenControl = NOTHING_SEEN,
) -> int:
    """Append a file to the newest generation. Returns its new number of files."""
    return _append(archive, encode_index(group_entries(entries), seen_control))


def _append(archive: Archive, content: bytes, most_files: int | None = None) -> int:
    """Append a file, unless the generation has `most_files` already. Returns its resulting number of files."""
    generation, files = _newest_generation(archive)
    number = _next_number(archive.layout, generation, files)
    if number + _ATTEMPTS > LAST_FACT_NUMBER:
        raise _nothing_follows(archive.layout, files[-1].key)
    # A writer whose number is taken tries the next number at once. The winner has to list again before its next file. So no
    # writer loses for long, however many compete.
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


def check_index_file(content: bytes, metadata: Mapping[str, str], key: str) -> IndexFile:
    """Check a whole file, also by its digest: zstd misses some flipped bits in its header. Raises CorruptSegmentError."""
    problem = _digest_problem(content, metadata, key)
    if problem:
        raise CorruptSegmentError(problem)
    file = split_file(content, key)
    for member in file.members.values():
        decode_member(cut_member(member), key)
    return file


def _digest_problem(content: bytes, metadata: Mapping[str, str], key: str) -> str:
    digest = metadata.get(INDEX_DIGEST)
    is_good = digest is None or digest == hashlib.sha256(content).hexdigest()
    return "" if is_good else f"{key}: its bytes are not those that were written"


def share_entries(
    archive: Archive,
    files: Iterable[Iterable[tuple[Directory, Entries]]],
) -> None:
    """Append entries that a reader learned, if it may write.

    A full generation gets no more files until a backup merges it. A failure is only logged: readers need no right to write.
    """
    try:
        for known in files:
            _append(archive, encode_index(known), MOST_FILES)
    except ArchiverError as error:
        log.debug("the index of facts was not written: %s", error)


def merge_index(archive: Archive) -> None:
    """Begin a generation with the newest one's entries of all objects that still exist, and of lost last objects.

    Raises for a file that could not be read, and begins none: it may be the only memory of where a partition ended.
    Topic directories are merged one at a time, so that only compressed files are in memory. The put is the only effect. A process
    that loses the race for it does nothing: the winner merged the same files. Files that others add meanwhile stay where they are,
    and readers and the next merge take them from there.
    """
    index, members, gone = Index(is_strict=True), dict[Directory, bytes](), list[str]()
    generation, files = _newest_generation(archive)
    if generation == LAST_FACT_NUMBER:
        raise _nothing_follows(archive.layout, archive.layout.index_generation_prefix(LAST_FACT_NUMBER))
    _read_generation(archive, index, generation, files, None, gone, _Limits(sys.maxsize))
    for directory in sorted(index.directories):
        entries = _entries_of(archive, directory, index)
        index.forget(directory)
        if len(entries):
            members[directory] = encode_member(entries)
    for problem in index.unreadable.values():
        raise CorruptSegmentError(f"{problem}; its entries would be lost: `archiver verify` tells what to do")
    if members and not gone:  # the next file would take the number of a deleted last one, which counts as merged
        content = join_members(members, index.seen_control, _next_number(archive.layout, generation, files))
        archive.store.put_if_absent(
            archive.layout.index_key(generation + 1, 0), content, _metadata(content), kind=ObjectKind.FACT
        )


def _entries_of(archive: Archive, directory: Directory, index: Index) -> Entries:
    """Return the entries of the objects that are still listed, and of lost last objects."""
    listing = list_directory(archive, *directory)
    listed = {partition: found for (_, _, partition), found in listing.partitions.items()}
    known = index.of(directory)
    rows = [known.find(found) for found in listed.values()]
    # No listing shows that a partition's last object is missing: its entry is the only trace, and is kept.
    kept = np.concatenate([*rows, index.gone(directory, listed)])
    kept = kept[kept >= 0]
    return known.entries.only(as_slice(kept[known.entries.has_facts(kept)]))
