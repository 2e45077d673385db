"""Finds the partitions in a target directory of itadventurer/kafka-backup, and reads their segment files in order."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Final

import numpy as np

from archiver.archive.segments.segment_facts import HoleCause
from archiver.codec.foreign.damage import NO_OFFSETS
from archiver.codec.foreign.frame_merge import MergedFile, Missing
from archiver.codec.foreign.kafka_backup import (
    UNKNOWN_END,
    DamagedSpan,
    Found,
    Leftovers,
    StoredSegments,
    read_leftovers,
)
from archiver.codec.frame import Bytes, Column, Frame
from archiver.codec.kernels.foreign.kafka_backup import MAGIC, MOST_OFFSET
from archiver.errors import UsageError
from archiver.imports.filling.foreign_import import ForeignPartition, merged
from archiver.imports.filling.mapped_file import MappedFile
from archiver.imports.filling.partition_fill import ImportHole

RECORDS: Final = "segment_partition_{:03}_from_offset_{:010}_records"
INDEX: Final = "segment_partition_{:03}_from_offset_{:010}_index"
PARTITION_INDEX: Final = "index_partition_{:03}"
GROUPS: Final = "consumer_offsets_partition_{:03}"
INCOMPLETE: Final = ".incomplete"  # is in the directory of an export until it has ended
PARTIAL: Final = ".partial"  # the ending of its unfinished files
_SEGMENT: Final = re.compile(r"segment_partition_(\d{3,10})_from_offset_(\d{10,19})_(records|index)")
_LISTED: Final = re.compile(r"segment_partition_(\d{3,10})_from_offset_(\d{10,19})")
_MOST_BYTES: Final = 64 * 1024 * 1024  # of a small file
_NOTES: Final = (
    "whether records of aborted transactions are among these is unknown (isolation.level of the sink's consumer)",
    "the files have no checksums: changed bytes inside a key, a value or a header cannot be detected",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """A segment file, named by the offset from which on it has records; with its index, if it has one."""

    start: int
    records: Path
    index: Path

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.records, self.index) if path.is_file()]


def find_partitions(sources: Sequence[Path], wanted: Callable[[str], bool]) -> list[ForeignPartition]:
    """Return the partitions of wanted topics. Raises UsageError for a folder that is no target directory."""
    found: list[ForeignPartition] = []
    for source in sources:
        if not source.is_dir():
            raise UsageError(f"{source}: is no directory; name the target.dir of a kafka-backup sink")
        if (source / INCOMPLETE).exists() or any(source.glob(f"*/*{PARTIAL}")):
            raise UsageError(
                f"{source}: the export that wrote it has not ended; delete the directory, and run `archiver export kafka-backup` again"
            )
        folders = {folder: _numbers(folder) for folder in sorted(source.iterdir()) if folder.is_dir()}
        if not any(folders.values()):
            raise UsageError(
                f"{source}: no folder in it has segment files (such as orders/{RECORDS.format(0, 0)}); name the target.dir of a"
                " kafka-backup sink"
            )
        for folder, numbers in folders.items():
            if wanted(folder.name):
                found += (_partition(folder, number, starts) for number, starts in sorted(numbers.items()))
    return found


def _numbers(folder: Path) -> Mapping[int, set[int]]:
    """Return the partitions in a topic's folder, and from which offset each of its segments is."""
    found: dict[int, set[int]] = {}
    for path in folder.iterdir():
        if name := _SEGMENT.fullmatch(path.name):
            if int(name[2]) > MOST_OFFSET:
                raise UsageError(f"{path}: no offset is so high; if this is no file of kafka-backup, move it away")
            found.setdefault(int(name[1]), set()).add(int(name[2]))
    return found


def _partition(folder: Path, number: int, starts: set[int]) -> ForeignPartition:
    listed = folder / PARTITION_INDEX.format(number)
    starts = starts | {start for start in _listed_starts(listed, number) if start <= MOST_OFFSET}
    segments = [
        _Segment(
            start=start,
            records=folder / RECORDS.format(number, start),
            index=folder / INDEX.format(number, start),
        )
        for start in sorted(starts)
    ]
    files = [path for segment in segments for path in segment.files]
    for path in files:
        _check_magic(path)
    groups = folder / GROUPS.format(number)
    positions = _positions(groups)
    return ForeignPartition(
        topic=folder.name,
        partition=number,
        files=[*files, *(path for path in (listed, groups) if path.is_file())],
        steps=lambda: _steps(segments, groups if positions is None else None),
        notes=_NOTES,
        positions=positions or {},
    )


def _check_magic(path: Path) -> None:
    magic = MappedFile(path).content[:1].tobytes()
    if magic not in {b"", bytes([MAGIC])}:
        raise UsageError(
            f"{path}: begins with byte {magic[0]}, and a file of kafka-backup with byte 1; if this file alone is damaged,"
            + (" write that byte over it" if path.name.endswith("records") else " move it away: it is only an index")
        )


def _listed_starts(path: Path, number: int) -> Iterator[int]:
    """Yield from which offset each listed segment is, up to the first entry that cannot be one."""
    content, position = _small_file(path), 1
    while position + 4 <= len(content):
        length = int.from_bytes(content[position : position + 4], "big", signed=True)
        name = content[position + 4 : position + 4 + max(length, 0)].decode("utf-8", "replace")
        listed = _LISTED.fullmatch(name)
        position += 12 + max(length, 0)
        if listed is None or int(listed[1]) != number or position > len(content):
            return
        yield int(listed[2])


def _small_file(path: Path) -> bytes:
    if not path.is_file():
        return b""
    return MappedFile(path).content[:_MOST_BYTES].tobytes()


def _positions(path: Path) -> Mapping[str, int] | None:
    """Return the positions of groups in a partition; None: the file cannot be read."""
    content = _small_file(path)
    if not content:  # the tool creates it empty
        return {}
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(type(one) is int and 0 <= one <= MOST_OFFSET for one in found.values()):
        return None
    return found


def _steps(segments: Sequence[_Segment], broken_groups: Path | None) -> Iterator[Frame | ImportHole]:
    """Read the segments of a partition in order, and merge the records that the tool has not confirmed."""
    confirmed = MergedFile(segments[0].records, 0, MOST_OFFSET + 1, partial(_confirmed, segments))
    yield from merged([confirmed], [])
    if broken_groups is not None:
        yield ImportHole(
            NO_OFFSETS, HoleCause.UNREADABLE, f"{broken_groups} is damaged: positions of groups are left out"
        )


def _confirmed(segments: Sequence[_Segment]) -> Iterator[Frame | Missing | MergedFile]:
    """Yield the confirmed records, what is missing, and where others are."""
    stored, position = StoredSegments(), 0
    for segment, after in zip_longest(segments, segments[1:]):
        following = None if after is None else after.start
        for found in _read(segment, stored, MOST_OFFSET + 1 if following is None else following):
            if isinstance(found, DamagedSpan):
                if found.is_confirmed or following is None:  # what was not confirmed came again in the next file
                    hole = _missing(found, segment, following, position)
                    position = max(position, hole.until)
                    stored.last = max(stored.last, position - 1)
                    yield hole
            elif isinstance(found, Leftovers):
                read = partial(_read_leftovers, segment.records, found)
                yield MergedFile(segment.records, found.first, found.last + 1, read, is_confirmed=False)
            else:
                first, last = found.column(Column.OFFSET)[[0, -1]].tolist()
                if position == 0 < first:
                    yield Missing(0, first, False, "the files begin here")
                position = last + 1
                yield found


def _read(segment: _Segment, stored: StoredSegments, below: int) -> Iterator[Found]:
    if not segment.records.is_file():
        yield DamagedSpan(0, 0, UNKNOWN_END, "the file is missing")
        return
    records = MappedFile(segment.records)
    index: Bytes = MappedFile(segment.index).content if segment.index.is_file() else np.empty(0, np.uint8)
    for found in stored.read(records.content, index, below):
        yield found
        records.release(stored.end)


def _read_leftovers(path: Path, found: Leftovers) -> Iterator[Frame]:
    yield from read_leftovers(MappedFile(path).content, found)


def _missing(found: DamagedSpan, segment: _Segment, following: int | None, position: int) -> Missing:
    """Return what is left out because of damage: offsets from `position` on, but none of the following file."""
    if found.until == UNKNOWN_END:
        until = NO_OFFSETS if following is None else following
    else:
        until = found.until if following is None else min(found.until, following)
    where = f"bytes {found.start:,} to {found.end:,} of {segment.records}" if found.end else str(segment.records)
    return Missing(position, max(until, position), True, f"{where}: {found.why}")
