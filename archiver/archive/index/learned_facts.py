"""Decides whether facts that a reader fetched from objects are worth adding to the index, and adds them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from archiver.archive.format.handle import Archive
from archiver.archive.index.index_file import Directory
from archiver.archive.index.index_generations import share_entries
from archiver.archive.segments.entries import Entries
from archiver.archive.segments.listing import Partition
from archiver.archive.segments.partition_segments import Segments

# A reader shares the facts that it learned if it requested so many, or if its segments are so old: a running backup writes
# its own entries within a quarter of an hour.
_MANY = 200
_OVERDUE = timedelta(minutes=30)
# Writing a file takes 300 bytes of memory an object; a generation has room for 64 files.
_SHARED_AT_ONCE = 200_000
_MOST_SHARED = 32  # files


@dataclass(frozen=True, slots=True)
class Learned:
    """Segments with missing or wrong facts in the index (`contradicted`: the number of wrong ones)."""

    segments: Mapping[Partition, Segments]
    contradicted: int


ShareLearned = Callable[[Archive, Learned], None]


def keep_to_itself(_archive: Archive, _learned: Learned) -> None:
    """Share no learned facts: nothing is written."""


def share_learned(
    archive: Archive, learned: Learned, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> None:
    """Append the facts that the index lacked, if they are worth a file. Objects of v1.0 have no facts to share."""
    known = {place: segments.known for place, segments in learned.segments.items()}
    count = sum(map(len, known.values()))
    is_worth_it = learned.contradicted or count >= _MANY
    if not count or not (is_worth_it or any(_is_overdue(some, now()) for some in learned.segments.values())):
        return
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


def _is_overdue(segments: Segments, now: datetime) -> bool:
    """Return whether an object is too old for a backup to add it to the index."""
    return segments.first_put is not None and now - segments.first_put > _OVERDUE
