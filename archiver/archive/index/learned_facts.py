"""Adds facts that a reader fetched from objects to the index, if they are worth a file."""

from collections.abc import Iterator, Mapping

from archiver.archive.format.handle import Archive
from archiver.archive.index.index_file import Directory
from archiver.archive.index.index_generations import share_entries
from archiver.archive.segments.entries import Entries
from archiver.archive.segments.listing import Partition
from archiver.archive.segments.partition_segments import Segments

# Fewer facts are not worth a file, unless the index has wrong ones: a running backup adds those of its own objects.
_MANY = 200
# Writing a file takes 300 bytes of memory an object; a generation has room for 64 files.
_SHARED_AT_ONCE = 200_000
_MOST_SHARED = 32  # files


def share_learned(archive: Archive, learned: Mapping[Partition, Segments], contradicted: int) -> None:
    """Append facts that the index lacked or had wrong (`contradicted`: how many). Objects of v1.0 have no facts to share."""
    known = {place: segments.known for place, segments in learned.items()}
    count = sum(map(len, known.values()))
    if count and (contradicted or count >= _MANY):
        most = max(_SHARED_AT_ONCE, -(-count // _MOST_SHARED))
        share_entries(archive, (map(_entries_of, one) for one in _files_of(known, most)))


def _files_of(known: Mapping[Partition, Segments], most: int) -> Iterator[list[tuple[Directory, list[Segments]]]]:
    """Cut segments, by topic directory, into files of the index with `most` segments in each but the last."""
    file: dict[Directory, list[Segments]] = {}
    room = most
    for (topic, life, _), segments in sorted(known.items()):
        rest = segments
        while len(rest):
            some, rest = rest.only(slice(0, room)), rest.only(slice(room, None))
            file.setdefault((topic, life), []).append(some)
            room -= len(some)
            if not room:
                yield list(file.items())
                file, room = {}, most
    if file:
        yield list(file.items())


def _entries_of(found: tuple[Directory, list[Segments]]) -> tuple[Directory, Entries]:
    directory, segments = found
    return directory, Entries.join([one.entries for one in segments])
