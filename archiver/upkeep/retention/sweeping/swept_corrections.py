"""Removes ranges from the swept set if their objects still exist, so that a later loss is reported.

Objects still exist if a hold, a denied delete, a delete marker that was removed, or the death of a sweep has kept them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.notes.swept import (
    OffsetRanges,
    SweptPlace,
    add_swept,
    read_swept_note,
    read_swept_place,
    take_back_swept,
)
from archiver.errors import ArchiverError, StoreTemporaryError
from archiver.process.running.failpoints import reach
from archiver.process.running.workers import side_by_side
from archiver.upkeep.retention.planning.partition_verdict import ASKS_AT_ONCE, AskedItem, ListedItem
from archiver.upkeep.retention.planning.survey import ask_object, list_items

LEFT_ALONE_MS: Final = 600_000  # so long other runs leave alone the ranges that a sweep notes before its deletes


def take_back_all(archive: Archive, swept: Mapping[SweptPlace, OffsetRanges], left_alone_ms: int) -> list[str]:
    """Correct all swept sets, once before any delete. Returns the places that could not be listed.

    The sweep that planned them may have died, and the topic be kept since: a loss must be reported there, too.
    """

    def take_back(place: SweptPlace) -> str:
        try:
            if swept[place] and any(lies_in(one, swept[place]) for one in list_place(archive, place)):
                take_back_lying(archive, place, left_alone_ms)
        except StoreTemporaryError:
            raise
        except ArchiverError as error:
            return f"{place.topic}-{place.partition}: {error}"
        return ""

    return [why for why in side_by_side(ASKS_AT_ONCE, take_back, swept, "take back") if why]


def take_back_lying(archive: Archive, place: SweptPlace, left_alone_ms: int) -> None:
    """Remove ranges from the swept set if their objects still exist: held, revived, or planned by a run that died.

    Does nothing if a sweep has noted ranges a short time ago: it may be about to delete, and die before it can note that.
    """
    swept, noted_ms = read_swept_note(archive, place)
    if swept and abs(epoch_ms(archive.store.now()) - noted_ms) >= left_alone_ms:
        _take_back(archive, place, swept)


def take_back_own(archive: Archive, place: SweptPlace, noted: OffsetRanges, run: str) -> None:
    """Remove this run's own ranges from the swept set if their objects still exist, for instance after a denied delete.

    Does nothing if another run has noted ranges lately, and may be about to delete: then a later run does it.
    """
    if noted:
        swept = read_swept_place(archive, place)
        _take_back(
            archive,
            place,
            OffsetRanges.of(one for start, stop in noted.ranges for one in swept.within(start, stop)),
            run,
        )


def _take_back(archive: Archive, place: SweptPlace, swept: OffsetRanges, noted_by: str | None = None) -> None:
    """Remove given ranges from the swept set if their objects still exist.

    Another sweep may delete these right now. So it lists again afterwards; objects gone meanwhile count as swept again.
    """
    lying = [one for one in list_place(archive, place) if lies_in(one, swept)]
    if not lying:
        return
    told = side_by_side(ASKS_AT_ONCE, partial(_covered, archive), lying, "ask")
    covered = {one.key: found for one, found in zip(lying, told, strict=True)}
    taken = take_back_swept(archive, place, OffsetRanges.of(covered.values()), noted_by)
    reach("sweep.taken_back")
    for one in list_place(archive, place):
        covered.pop(one.key, None)
    gone = OffsetRanges.of(piece for start, stop in covered.values() for piece in swept.within(start, stop)).minus(
        taken
    )
    if gone:
        add_swept(archive, place, gone)


def list_place(archive: Archive, place: SweptPlace) -> list[ListedItem]:
    return list_items(archive, place.topic, place.life, place.partition)


def _covered(archive: Archive, item: ListedItem) -> tuple[int, int]:
    """Return an object's range; without facts, at least its first offset."""
    told = ask_object(archive.store, item)
    return item.base, told.next if isinstance(told, AskedItem) else item.named_next or item.base + 1


def lies_in(item: ListedItem, ranges: OffsetRanges) -> bool:
    """Return whether offsets of an object are in some ranges, by its name: a merged one may be so after its first offset."""
    return any(ranges.within(item.base, item.named_next or item.base + 1))
