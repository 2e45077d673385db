"""Reads the records of a partition from the archive, in order, by the read rule (docs/format.md §7). All readers of records use it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from archiver.archive.reading.gone_objects import gone_error
from archiver.archive.restores.chosen_records import MOST_OFFSETS, read_chosen
from archiver.archive.segments.parts import ObjectPart, check_planned
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.selection import ALL_RECORDS, NO_TIMESTAMP, Selection
from archiver.errors import NotWholeError
from archiver.store.port import ObjectStore, ReadBuffer

if TYPE_CHECKING:
    from archiver.archive.segments.segment import LoadedSegment

FoundObject = tuple[bytes | memoryview, Mapping[str, str]]
BufferPair = tuple[ReadBuffer, ReadBuffer]  # for the current object, and for the next one
SkipDamaged = Callable[[ObjectPart, NotWholeError], None]


_spare: deque[BufferPair] = deque()  # kept by this process: a Python worker of Spark runs one task after the other


@contextmanager
def spare_buffers() -> Iterator[BufferPair]:
    """Lend a pair of buffers, from an earlier task if one is free."""
    try:
        buffers = _spare.pop()
    except IndexError:
        buffers = ReadBuffer(), ReadBuffer()
    try:
        yield buffers
    finally:
        _spare.append(buffers)


def read_parts(
    store: ObjectStore,
    topic: str,
    partition: int,
    parts: Sequence[ObjectPart],
    *,
    selection: Selection = ALL_RECORDS,
    skip: SkipDamaged | None = None,
    buffers: BufferPair | None = None,
) -> Iterator[Frame]:
    """Read frames of all parts, checked; the next object is fetched while one is decoded.

    Records outside of the selected times are left out. Damage raises NotWholeError; with `skip`, the damaged object is passed
    to `skip` and left out. With `buffers`, a frame is valid until the next one is requested.
    """
    for part, found in fetch_parts(store, parts, buffers):
        try:
            body = open_part(store, part, found)
            if skip is not None and not body.has_metadata:  # no checksum covers facts of the header
                for _ in body.frames(topic, partition):  # the last block may show damage
                    pass
            frames = body.frames(topic, partition, part.from_offset, part.until_offset)
            first = next(frames, None)  # damage found by facts is raised before the first frame
        except NotWholeError as error:
            if skip is None:
                raise
            skip(part, error)
            continue
        if first is not None:
            yield from _wanted(store, part, chain([first], frames), selection)


def open_part(store: ObjectStore, part: ObjectPart, found: FoundObject | None) -> "LoadedSegment":
    """Open a fetched object, which must have the facts of its plan. Raises NotWholeError and FalseFactsError."""
    from archiver.archive.segments.segment import open_segment  # noqa: PLC0415 - loads kernels, which planning does not need

    body = open_segment(*found_or_gone(store, part, found), part.object_key)
    check_planned(part, body.facts)
    return body


def wanted_frames(
    store: ObjectStore, part: ObjectPart, body: "LoadedSegment", topic: str, partition: int, selection: Selection
) -> Iterator[Frame]:
    """Read the wanted records of one object. Damage raises NotWholeError."""
    return _wanted(store, part, body.frames(topic, partition, part.from_offset, part.until_offset), selection)


def _wanted(store: ObjectStore, part: ObjectPart, frames: Iterable[Frame], selection: Selection) -> Iterator[Frame]:
    most = MOST_OFFSETS if part.end_offset is None else min(part.end_offset - part.from_offset, MOST_OFFSETS)
    chosen = None if part.chosen_key is None else read_chosen(store, part.chosen_key, most)
    for frame in frames:
        wanted = _within_times(frame, selection) if chosen is None else _among(frame, chosen)
        if len(wanted):
            yield wanted


def _among(frame: Frame, chosen: Longs) -> Frame:
    offsets = frame.column(Column.OFFSET)
    places = np.minimum(np.searchsorted(chosen, offsets), len(chosen) - 1)
    return frame.only(chosen[places] == offsets)


def _within_times(frame: Frame, selection: Selection) -> Frame:
    if not selection.has_times:
        return frame
    times = frame.column(Column.TIMESTAMP)
    return frame.only((times != NO_TIMESTAMP) & (times >= selection.from_ms) & (times <= selection.until_ms))


def fetch_parts(
    store: ObjectStore, parts: Sequence[ObjectPart], buffers: BufferPair | None = None
) -> Iterator[tuple[ObjectPart, FoundObject | None]]:
    """Fetch the objects, one ahead of the current object; None for a missing one.

    With `buffers`, an object is valid until the next one is requested.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead") as pool:

        def fetch(index: int) -> FoundObject | None:
            key = parts[index].object_key
            return store.get(key) if buffers is None else store.get_into(buffers[index % 2], key)

        ahead = pool.submit(fetch, 0) if parts else None
        for index, part in enumerate(parts):
            if ahead is None:
                break
            found = ahead.result()
            ahead = pool.submit(fetch, index + 1) if index + 1 < len(parts) else None
            yield part, found


def found_or_gone(store: ObjectStore, part: ObjectPart, found: FoundObject | None) -> FoundObject:
    """Return the fetched object. Raises the error for a listed object that is missing: lost, or swept."""
    if found is None:
        raise gone_error(store, part.object_key, part.next_offset)
    return found
