"""Makes the next copy of a partition due if the current one has keys that Kafka no longer has. Used by `verify`."""

from typing import Final

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.roles import CompleteCopy, Generation, RolePlace, put_entry, read_newest_entry
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey

_AUTHOR: Final = "verify"
_TRIES: Final = 3  # instances put entries, too


def make_next_due(archive: Archive, copy: CopyKey) -> bool:
    """Note in the role log that a copy is unsure, if it is current and sure. Returns whether it is noted as unsure, or no longer current.

    Raises StoreError if the store refuses.
    """
    place, generation = RolePlace.of_copy(copy), Generation.of_copy(copy)
    for _ in range(_TRIES):
        newest = read_newest_entry(archive, place)
        holder = None if newest is None else newest.entry.holder
        is_meant = isinstance(holder, CompleteCopy) and holder.generation == generation and holder.is_sure
        if newest is None or not is_meant:
            return True
        number = newest.number + 1
        put_entry(archive, place, number, entries.unsure(newest.entry, number, _AUTHOR))
    return False
