"""Finds the partitions in log directories of Kafka 0.6 and 0.7 (`archiver import kafka-0.7`)."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from archiver.archive.segments.segment_facts import HoleCause
from archiver.codec.foreign.damage import DamagedInput
from archiver.codec.foreign.messages_07 import LogDecoder07
from archiver.codec.frame import Frame
from archiver.errors import UsageError
from archiver.imports.filling.foreign_import import ForeignPartition
from archiver.imports.filling.mapped_file import MappedFile
from archiver.imports.filling.partition_fill import ImportHole

log = logging.getLogger(__name__)

_FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,10})")
_FILE: Final = re.compile(r"\d{20}\.kafka")
_NUMBERS: Final = (
    "offsets are running numbers from 0: this version counted bytes, and its messages have no key and no time"
)


class _LogFile(NamedTuple):
    """A log file: its first byte in the log, and its size."""

    path: Path
    start: int
    size: int


def find_partitions(
    sources: Sequence[Path], wanted: Callable[[str], bool], *, keeps_positions: bool
) -> list[ForeignPartition]:
    """Return the partitions of wanted topics. Raises UsageError for other directories, and for files that contradict each other."""
    found: dict[tuple[str, int], list[_LogFile]] = {}
    for source in sources:
        here: dict[tuple[str, int], list[_LogFile]] = {}
        for folder in sorted(source.iterdir() if source.is_dir() else ()):
            match = _FOLDER.fullmatch(folder.name)
            if match and folder.is_dir() and (files := _log_files(folder)):
                here[match["topic"], int(match["partition"])] = files
        if not here:
            raise UsageError(
                f"{source}: has no folder of a partition (such as orders-0) with log files of Kafka 0.7"
                " (00000000000000000000.kafka)"
            )
        for key in here.keys() & found.keys():
            raise UsageError(
                f"{here[key][0].path.parent} and {found[key][0].path.parent}: before 0.8 each broker had partitions of its own,"
                " which are no replicas; import each directory by itself, under other names (--rename)"
            )
        found |= here
    return [
        _partition(f"{topic}-{number}", topic, number, files, keeps_positions=keeps_positions)
        for (topic, number), files in found.items()
        if wanted(topic)
    ]


def _partition(
    name: str, topic: str, number: int, files: Sequence[_LogFile], *, keeps_positions: bool
) -> ForeignPartition:
    begins: dict[str, tuple[int, int]] = {}
    return ForeignPartition(
        topic=topic,
        partition=number,
        files=[one.path for one in files],
        steps=partial(_steps, name, files, begins, keeps_positions=keeps_positions),
        notes=[_NUMBERS],
        options=["--keep-positions"] if keeps_positions else (),
        details={"file_begins": begins},
    )


def _log_files(folder: Path) -> list[_LogFile]:
    """Return the files of a log in their order. Raises UsageError if they overlap."""
    files = sorted(
        _LogFile(one, int(one.stem), one.stat().st_size)
        for one in folder.iterdir()
        if _FILE.fullmatch(one.name) and one.is_file()
    )
    files.sort(key=lambda one: one.start)
    for one, after in pairwise(files):
        if one.start + one.size > after.start:
            raise UsageError(f"{one.path}: goes on behind byte {after.start}, where {after.path.name} begins")
    return files


def _steps(
    name: str, files: Sequence[_LogFile], begins: dict[str, tuple[int, int]], *, keeps_positions: bool
) -> Iterator[Frame | ImportHole]:
    """Read the files in order. `begins` gets the byte position and the offset at which each begins."""
    reader = LogDecoder07(keeps_positions=keeps_positions)
    position = files[0].start
    for file in files:
        if file.start > position:
            reader.number += 1
            why = f"{file.path.parent}: bytes {position} to {file.start} of the log are missing"
            yield ImportHole(reader.number, HoleCause.UNREADABLE, f"{why}: they take one number")
        begins[file.path.name] = file.start, reader.number
        position = file.start + file.size
        mapped = MappedFile(file.path)
        for step in reader.read(mapped.content, file.start):
            mapped.release(reader.done)
            if isinstance(step, DamagedInput):
                is_tail = file is files[-1] and step.end == file.size
                yield _hole(file, step, reader.number, is_tail=is_tail)
            else:
                yield step
    if reader.wrong_inside or reader.cut_sets:
        log.warning(
            "%s: %s messages inside compressed ones have a wrong CRC, and %s compressed ones end within a message: imported as"
            " their producers wrote them",
            name,
            reader.wrong_inside,
            reader.cut_sets,
        )


def _hole(file: _LogFile, damage: DamagedInput, until: int, *, is_tail: bool) -> ImportHole:
    place = f"bytes {damage.start} to {damage.end} of {file.path}: {damage.reason}"
    if is_tail:  # Kafka 0.7 itself cuts that off at its start: it was never acknowledged, or is the last loss
        return ImportHole(0, HoleCause.UNREADABLE, place)
    return ImportHole(until, HoleCause.UNREADABLE, f"{place}; they take one number")
