"""Exports topics of the archive as a target directory of itadventurer/kafka-backup, which its source connector restores.

Files are written under temporary names, and the directory has a file `.incomplete` until the end. A partition's index of segments comes last: without it the tool reads none of them.
"""

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.handle import Archive
from archiver.archive.reading.catalog import find_topic, is_wanted, topic_names
from archiver.archive.reading.plain_records import partition_numbers, read_frames
from archiver.codec.frame import Column, Frame
from archiver.codec.kernels.foreign import kafka_backup as kernels
from archiver.codec.selection import ALL_RECORDS
from archiver.config.model import IndexUse
from archiver.errors import CorruptSegmentError, UsageError
from archiver.groups.log.lives import AMBIGUOUS
from archiver.groups.positions.archived_position import ArchivedPosition, State
from archiver.imports.tools.kafka_backup import GROUPS, INCOMPLETE, INDEX, PARTIAL, PARTITION_INDEX, RECORDS

SEGMENT_BYTES: Final = 1024**3  # as the tool's
_BUFFER_BYTES: Final = 4 * 1024 * 1024
_MAGIC: Final = bytes([kernels.MAGIC])
ReportProblem = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What to export, and to where."""

    target: Path
    topics: str | None = None  # a regular expression; None: all but internal ones
    segment_bytes: int = SEGMENT_BYTES


@dataclass(slots=True, kw_only=True)
class ExportedPartition:
    """What came of one partition."""

    topic: str
    partition: int
    records: int = 0
    written_bytes: int = 0
    segments: int = 0
    groups: int = 0


@dataclass(slots=True, kw_only=True)
class ExportResult:
    """What an export wrote. `notes`: what a user should know; `problems`: what is left out."""

    partitions: list[ExportedPartition] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run_export(
    archive: Archive,
    request: ExportRequest,
    positions: Collection[ArchivedPosition],
    use: IndexUse,
    report: Callable[[str], None],
) -> ExportResult:
    """Write all wanted topics. Damage of the archive is reported, and the rest is written."""
    names = sorted(name for name in topic_names(archive) if is_wanted(name, request.topics))
    if not names:
        raise UsageError("no topic of the archive matches --topics; `archiver ls` shows what is there")
    _make_empty(request.target)
    result = ExportResult()
    for name in names:
        topic = find_topic(archive, name, use=use, report_problem=result.problems.append)
        result.notes += topic.notes
        folder = request.target / name
        _make_folder(folder)
        for number in partition_numbers(topic):
            report(f"exporting {name}-{number}")
            groups = _groups(topic, number, positions, result.problems.append)
            result.partitions.append(_export(archive, topic, number, folder, groups, request, result.problems.append))
    (request.target / INCOMPLETE).unlink()
    return result


def _make_empty(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise UsageError(f"{target}: is not empty; name a new or an empty directory")
        (target / INCOMPLETE).touch()
    except OSError as error:
        raise UsageError(f"{target}: is no directory that can be written to: {error.strerror}") from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir()
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be made: {error.strerror}; delete the directory, and run it again"
        ) from error


def _groups(
    topic: ArchivedTopic, number: int, positions: Collection[ArchivedPosition], report_problem: ReportProblem
) -> Mapping[str, int]:
    """Return the positions of groups in a partition, in the life that is exported."""
    root = topic.life if topic.fact is None else topic.fact.root(topic.life)
    found: dict[str, int] = {}
    for one in positions:
        if (one.topic, one.partition) != (topic.topic, number) or one.life not in {root, AMBIGUOUS}:
            continue
        if one.state is State.SET:
            found[one.group] = one.offset
        elif one.state in {State.UNKNOWN, State.AMBIGUOUS}:
            report_problem(f"{topic.topic}-{number}: the position of group {one.group} is {one.state}, and is left out")
    return found


def _export(
    archive: Archive,
    topic: ArchivedTopic,
    number: int,
    folder: Path,
    groups: Mapping[str, int],
    request: ExportRequest,
    report_problem: ReportProblem,
) -> ExportedPartition:
    done = ExportedPartition(topic=topic.topic, partition=number, groups=len(groups))
    writer = _PartitionWriter(folder, number, request.segment_bytes)
    try:
        for _, frame in read_frames(archive.store, topic, [number], lambda _: ALL_RECORDS, report_problem):
            writer.append(frame)
            done.records += len(frame)
        writer.end()
        _write(folder / GROUPS.format(number), json.dumps(groups).encode())
        _write(folder / PARTITION_INDEX.format(number), _listing(number, writer.starts))
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written: {error.strerror}; delete the directory, and run it again"
        ) from error
    done.written_bytes, done.segments = writer.written_bytes, len(writer.starts)
    return done


class _PartitionWriter:
    """Writes the segments of one partition: a new one begins when one is full."""

    def __init__(self, folder: Path, number: int, segment_bytes: int) -> None:
        self.starts: list[int] = []
        self.written_bytes = 0
        self._folder = folder
        self._number = number
        self._segment_bytes = segment_bytes
        self._target = np.empty(_BUFFER_BYTES, np.uint8)
        self._index = np.empty(_BUFFER_BYTES, np.uint8)
        self._begin(0)  # as the tool, which names the first segment so whatever its first record

    def append(self, frame: Frame) -> None:
        row = 0
        while row < len(frame):
            if self._size >= self._segment_bytes:
                self.end()
                self._begin(int(frame.column(Column.OFFSET)[row]))
            after, size, broken = kernels.write_stored(
                frame.body, frame.header_body, frame.table, row, self._size, self._target, self._index
            )
            if broken >= 0:
                raise CorruptSegmentError(f"{self._folder.name}-{self._number}: a record's fields leave its object")
            if after == row:
                self._target = np.empty(size, np.uint8)
                continue
            self._records.write(self._target[:size].data)
            self._entries.write(self._index[: (after - row) * kernels.ENTRY_SIZE].data)
            self._size += size
            self.written_bytes += size
            row = after

    def _begin(self, start: int) -> None:
        self.starts.append(start)
        self._paths = [self._folder / name.format(self._number, start) for name in (RECORDS, INDEX)]
        self._records, self._entries = (_partial(path).open("xb") for path in self._paths)
        for file in (self._records, self._entries):
            file.write(_MAGIC)
        self._size = 1

    def end(self) -> None:
        """Finish the present segment."""
        for file, path in zip((self._records, self._entries), self._paths, strict=True):
            _finish(file, path)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL)


def _write(path: Path, content: bytes) -> None:
    file = _partial(path).open("xb")
    file.write(content)
    _finish(file, path)


def _finish(file: BinaryIO, path: Path) -> None:
    """Close a file that is on the disk, and give it its name."""
    with file:
        file.flush()
        os.fsync(file.fileno())
    _partial(path).rename(path)


def _listing(number: int, starts: Sequence[int]) -> bytes:
    """Return a partition's index of segments: of each its name, without the ending, and from which offset on it is."""
    return _MAGIC + b"".join(_listed(number, start) for start in starts)


def _listed(number: int, start: int) -> bytes:
    name = RECORDS.format(number, start).removesuffix("_records").encode()
    return len(name).to_bytes(4, "big") + name + start.to_bytes(8, "big")
