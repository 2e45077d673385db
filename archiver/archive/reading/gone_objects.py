"""Explains missing objects that were listed or planned: a sweep deleted them, another object replaced them, or they are lost."""

from typing import Final

from archiver.archive.copies.roles import CompleteCopy, Generation, RolePlace, read_newest_entry
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.archived_end import position_of_copy
from archiver.archive.notes.swept import NOTHING_SWEPT, OffsetRanges, SweptPlace, read_swept_place, spell_ranges
from archiver.archive.segments.listing import list_directory
from archiver.archive.segments.segment_facts import SegmentFacts, check_named, facts_from_metadata
from archiver.errors import CorruptSegmentError, NotWholeError, SweptError
from archiver.process.output.text import spell_count
from archiver.store.port import ObjectStore

_MOST_TOLD: Final = 10  # ranges, separated by held objects
_BELOW_PREFIX: Final = 4  # parts of a segment's key: topics, topic, partition, name


def gone_error(store: ObjectStore, key: str, next_offset: int | None = None) -> CorruptSegmentError:
    """Return the error for a missing object. Deleted ranges are read now: a sweep notes them before it deletes.

    `next_offset`: the end of the object, if known.
    """
    why = ""
    kind: type[CorruptSegmentError] = SweptError
    if swept := _swept_around(store, key):
        why = f": a retention sweep took all objects within the offsets {_spell(swept)} of its partition"
    elif _is_covered(store, key, next_offset):
        why = ": another object has all of its offsets, and is read in its place"
    elif _is_cleared(store, key, next_offset):
        why = " with its copy: another copy, which reaches as far, has taken its place"
    else:
        kind = CorruptSegmentError
    return kind(
        f"{key}: was listed, and is gone{why}; run the same command again, but a restore, which goes on as it was planned, with"
        " another --id and an empty target"
    )


def _layout_of(key: str) -> Layout | None:
    """Return the layout of a key that may belong to a segment under `topics/`; None for other keys."""
    parts = key.split("/")
    is_there = len(parts) >= _BELOW_PREFIX and parts[-_BELOW_PREFIX] == "topics"
    return Layout("/".join(parts[:-_BELOW_PREFIX])) if is_there else None


def _is_cleared(store: ObjectStore, key: str, next_offset: int | None) -> bool:
    """Return whether a key belongs to a copy that is no longer read, and the current copy has objects up to its end."""
    root, found, _ = key.partition("compacted/")
    layout = Layout(root.removesuffix("/"))
    copy = layout.parse_copy(key)
    if not found or copy is None or next_offset is None:
        return False
    archive = Archive(store, layout)
    try:
        newest = read_newest_entry(archive, RolePlace.of_copy(copy))
        holder = None if newest is None else newest.entry.holder
        if not isinstance(holder, CompleteCopy) or holder.generation == Generation.of_copy(copy):
            return False
        return position_of_copy(archive, RolePlace.of_copy(copy).copy_key(holder.generation)).next >= next_offset
    except NotWholeError:
        return False


def _is_covered(store: ObjectStore, key: str, next_offset: int | None) -> bool:
    """Return whether an existing object has all offsets of the missing one: sweeps delete shadowed objects."""
    layout = _layout_of(key)
    gone = None if layout is None else layout.parse_segment(key)
    end = next_offset if gone is None else gone.next or next_offset
    if layout is None or gone is None or end is None:
        return False
    listed = list_directory(Archive(store, layout), gone.topic, gone.life, gone.partition).partitions
    before = [one for found in listed.values() for one in found if one.key.base <= gone.base]
    plain = [one for one in before if one.key.next is None][::-1]
    merged = [one for one in before if one.key.next is not None and one.key.next >= end]
    for one in [*plain, *merged]:
        info = store.head(one.item.key)
        try:
            facts = None if info is None else facts_from_metadata(info.metadata, one.item.key)
            if isinstance(facts, SegmentFacts) and facts.next >= end:
                check_named(facts, one.key.base, one.key.next, one.item.key)
                return True
        except NotWholeError:
            continue
    return False


def _swept_around(store: ObjectStore, key: str) -> OffsetRanges:
    """Return all swept ranges in the partition of a missing object, if the object itself was swept."""
    layout = _layout_of(key)
    found = None if layout is None else layout.split_segment(key)
    if layout is None or found is None:
        return NOTHING_SWEPT
    (topic, life, partition), base, *_ = found
    try:
        swept = read_swept_place(Archive(store, layout), SweptPlace(topic, life, partition))
    except NotWholeError:
        return NOTHING_SWEPT
    return swept if any(swept.within(base, base + 1)) else NOTHING_SWEPT


def _spell(swept: OffsetRanges) -> str:
    more = len(swept.ranges) - _MOST_TOLD
    told = spell_ranges(swept.ranges[:_MOST_TOLD])
    return f"{told} and {spell_count(more, 'more range')}" if more > 0 else told
