"""What storage shows of a compacted partition: how whole a copy is, and where that ends what readers are given."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from archiver.archive.archived_end import ArchivedEnd, position_of, position_of_copy
from archiver.archive.handle import Archive
from archiver.archive.layout import CopyKey, SegmentKey
from archiver.archive.roles import HISTORY, CompleteCopy, Generation, Holder, RoleEntry, RolePlace, read_newest_entry
from archiver.backup.compacted.listed_copies import CopyFacts, list_copy
from archiver.backup.compacted.turn import CopyEnd
from archiver.errors import CorruptSegmentError, NotWholeError


def copy_key(place: RolePlace, generation: Generation) -> CopyKey:
    return CopyKey(
        instance=generation.instance,
        topic=place.topic,
        life=place.life,
        partition=place.partition,
        generation=generation.number,
    )


def look_over_copy(archive: Archive, place: RolePlace, generation: Generation) -> CopyEnd:
    """List a generation, ask each object for its facts, and apply the read rule from offset 0 on."""
    objects = list_copy(archive, copy_key(place, generation))
    state = CopyFacts(archive.store).state_of(place, generation, objects)
    return CopyEnd(next=state.end, is_whole=state.is_whole, has_expired=state.has_expired)


class ReadersEnd(NamedTuple):
    """Where that ends what readers are given."""

    offset: int  # at or above the end; a gap may end it earlier
    archived: Sequence[ArchivedEnd]  # of the current copy, and of the copy that it replaced


def end_of_readers(archive: Archive, place: RolePlace, entry: RoleEntry, history_begin: int = 0) -> ReadersEnd:
    """Return where the holder ends, and the tail behind it. `history_begin`: where the partition's life begins under `topics/`."""
    # Without a current copy, readers have the history under `topics/`.
    named = (entry.holder or HISTORY, entry.replaced)
    archived = [_end_of(archive, place, holder) for holder in named]
    read = [one.position for one in named if isinstance(one, CompleteCopy)]
    begun = [history_begin] if HISTORY in named else []
    return ReadersEnd(max(0, *(one.next for one in archived), *read, *begun), archived)


def has_history(archive: Archive, place: RolePlace, earlier: Collection[int] = (), begin: int = 0) -> bool:
    """Return whether readers of a life without a copy have the history under `topics/`.

    `earlier`: the lives that it goes on from, at `begin`. A copy of one of them is read as long as nobody holds in this one: it
    has all up to where the log was cut back, and `topics/` ends where it began.
    """
    if any(_has_copy(archive, replace(place, life=life)) for life in earlier):
        return False
    if begin > 0:
        return True
    prefix = archive.layout.partition_prefix(place.topic, place.life, place.partition)
    return any(archive.layout.parse_segment(item.key) is not None for item in archive.store.list(prefix))


def _has_copy(archive: Archive, place: RolePlace) -> bool:
    try:
        newest = read_newest_entry(archive, place)
    except NotWholeError:
        return False
    return newest is not None and isinstance(newest.entry.holder, CompleteCopy)


def _end_of(archive: Archive, place: RolePlace, holder: Holder) -> ArchivedEnd:
    match holder:
        case CompleteCopy():
            copy = copy_key(place, holder.generation)
            keys = (one.key for one in list_copy(archive, copy))
            return _end_or_base(lambda: position_of_copy(archive, copy), keys)
        case "topics/":
            prefix = archive.layout.partition_prefix(place.topic, place.life, place.partition)
            found = (archive.layout.parse_segment(item.key) for item in archive.store.list(prefix))
            end = partial(position_of, archive, place.topic, place.life, place.partition)
            return _end_or_base(end, (key for key in found if key is not None))
        case None:
            return ArchivedEnd()


def _end_or_base(end: Callable[[], ArchivedEnd], keys: Iterable[SegmentKey]) -> ArchivedEnd:
    """Return where the newest object ends. Of a damaged one nobody is given anything: then, where it begins.

    Else damage in what is read would keep whole copies from taking its place.
    """
    try:
        return end()
    except CorruptSegmentError:
        return ArchivedEnd(next=max((key.base for key in keys), default=0))
