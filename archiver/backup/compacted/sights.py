"""What storage shows of a compacted partition: how whole a copy is, and where that ends what readers are given."""

from collections.abc import Sequence
from typing import NamedTuple

from archiver.archive.handle import Archive
from archiver.archive.inventory import ArchivedEnd, position_of, position_of_copy
from archiver.archive.layout import CopyKey
from archiver.archive.roles import CompleteCopy, Generation, Holder, RoleEntry, RolePlace
from archiver.backup.compacted.listed_copies import CopyFacts, list_copy
from archiver.backup.compacted.turn import CopyEnd


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
    return CopyEnd(next=state.end, is_whole=state.is_whole)


class ReadersEnd(NamedTuple):
    """Where that ends what readers are given."""

    offset: int  # at or above the end; a gap may end it earlier
    archived: Sequence[ArchivedEnd]  # of the holder, and of what it replaced


def end_of_readers(archive: Archive, place: RolePlace, entry: RoleEntry, history_begin: int = 0) -> ReadersEnd:
    """Return where the holder ends, and the tail behind it. `history_begin`: where the partition's life begins under `topics/`."""
    archived = [_end_of(archive, place, holder) for holder in (entry.holder, entry.replaced)]
    read = [one.position for one in (entry.holder, entry.replaced) if isinstance(one, CompleteCopy)]
    begun = [history_begin for one in (entry.holder, entry.replaced) if one == "topics/"]
    return ReadersEnd(max(0, *(one.next for one in archived), *read, *begun), archived)


def has_history(archive: Archive, place: RolePlace) -> bool:
    """Tell whether something lies under `topics/` in this life."""
    prefix = archive.layout.partition_prefix(place.topic, place.life, place.partition)
    return any(archive.layout.parse_segment(item.key) is not None for item in archive.store.list(prefix))


def _end_of(archive: Archive, place: RolePlace, holder: Holder) -> ArchivedEnd:
    match holder:
        case CompleteCopy():
            return position_of_copy(archive, copy_key(place, holder.generation))
        case "topics/":
            return position_of(archive, place.topic, place.life, place.partition)
        case None:
            return ArchivedEnd()
