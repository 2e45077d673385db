"""Finds the partitions in Avro files of TrivadisPF/kafka-backup and kafka-data-keep (`archiver import avro`)."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from archiver.codec.foreign.damage import DamagedInput
from archiver.codec.foreign.foreign_avro import (
    KEEP_FORMAT,
    AvroFile,
    RecordFormat,
    read_header,
    read_records,
    trivadis_format,
)
from archiver.codec.foreign.frame_merge import UNKNOWN_END, MergedFile, Missing
from archiver.codec.frame import Column, Frame
from archiver.errors import CorruptSegmentError, FormatTooNewError, UsageError
from archiver.imports.filling.foreign_import import ForeignPartition, merged
from archiver.imports.filling.mapped_file import MappedFile
from archiver.imports.filling.partition_fill import ImportHole

log = logging.getLogger(__name__)

_NAME: Final = r"(?P<topic>[A-Za-z0-9._-]+)"
_TRIVADIS: Final = (
    re.compile(rf"(?:.*/)?{_NAME}(?:/[^/]+)?/(?P<n>\d{{1,10}})/(?P=topic)-(?P=n)-(?P<first>\d{{15,19}})\.avro"),
    re.compile(rf"(?:.*/)?{_NAME}/partition=(?P<n>\d{{1,10}})/(?P=topic)\+(?P=n)-\d+\.data"),
)
_KEEP: Final = (re.compile(rf"(?:.*/)?{_NAME}/(?P<n>\d{{1,10}})/(?P=topic)-(?P=n)-(?P<first>\d{{19}})\.avro"),)
TRIVADIS, KEEP = "trivadis", "kafka-data-keep"
_ENDINGS: Final = {".avro", ".data"}
LAYOUTS: Final = {TRIVADIS: _TRIVADIS, KEEP: _KEEP}

_EXAMPLES: Final = {
    TRIVADIS: "orders/0/orders-0-000000000000000.avro",
    KEEP: "orders/0/orders-0-0000000000000000000.avro",
}

_NOTES: Final = (
    "types of timestamps are not in these files: they are imported as unknown",
    "of headers with the same key these files have only one, and the order of headers is lost",
    "an offset without a record may have been compacted, or be in a file that is missing: these files do not tell",
)
_EMPTY: Final = (
    "null keys and values are empty in these files, and are imported so; --empty-is-null imports empty ones as null"
)
_EMPTY_IS_NULL: Final = "empty keys and values are imported as null (--empty-is-null)"
_KEEP_NULLS: Final = "null header values are empty in these files"


class _Found(NamedTuple):
    """A file of a partition; `first` of None: its name does not tell its first offset."""

    path: Path
    first: int | None


def find_partitions(
    sources: Sequence[Path], wanted: Callable[[str], bool], *, layout: str, empty_is_null: bool
) -> list[ForeignPartition]:
    """Return the partitions of wanted topics whose files are below the folders. Raises UsageError for files of another kind."""
    if empty_is_null and layout != TRIVADIS:
        raise UsageError(f"--empty-is-null belongs to --layout {TRIVADIS}: {layout} keeps nulls")
    found: dict[tuple[str, int], list[_Found]] = {}
    others: list[Path] = []  # files of another name
    for source in sources:
        if not source.is_dir():
            raise UsageError(f"{source}: is no directory")
        matches = 0
        for path in sorted(one for one in source.resolve().rglob("*") if one.is_file()):
            match = next((one for pattern in LAYOUTS[layout] if (one := pattern.fullmatch(path.as_posix()))), None)
            if match:
                first = match.groupdict().get("first")
                key = match["topic"], int(match["n"])
                found.setdefault(key, []).append(_Found(path, None if first is None else int(first)))
                matches += 1
            elif path.suffix in _ENDINGS:
                others.append(path)
        if not matches:
            raise UsageError(f"{source}: has no file of layout {layout}, such as {_EXAMPLES[layout]}")
    chosen = [
        _partition(topic, number, files, layout, empty_is_null=empty_is_null)
        for (topic, number), files in sorted(found.items())
        if wanted(topic)
    ]
    if others and chosen:
        more = f" and {len(others) - 1} more files: these are no names" if len(others) > 1 else ": this is no name"
        chosen[0] = replace(chosen[0], problems=[f"{others[0]}{more} of layout {layout}, and not imported"])
    return chosen


def _partition(
    topic: str, number: int, files: Sequence[_Found], layout: str, *, empty_is_null: bool
) -> ForeignPartition:
    tool, _ = _tool(layout, empty_is_null=empty_is_null)
    firsts = [_first_offset(one, topic, number, tool, layout) for one in files]
    notes = [*_NOTES, *([_KEEP_NULLS] if layout == KEEP else [_EMPTY_IS_NULL if empty_is_null else _EMPTY])]

    def steps() -> Iterator[Frame | ImportHole]:
        tool, left = _tool(layout, empty_is_null=empty_is_null)
        opened = [
            MergedFile(one.path, first, UNKNOWN_END, partial(_read, one.path, topic, number, tool))
            for one, first in zip(files, firsts, strict=True)
        ]
        begin = Missing(0, min(firsts), False, "the files begin here")
        yield from merged(opened, [begin] if begin.until else [])
        if left():
            log.warning(
                "%s-%s: %s header values are neither byte[] nor String, and stay serialized", topic, number, left()
            )

    return ForeignPartition(
        topic=topic,
        partition=number,
        files=[one.path for one in files],
        steps=steps,
        notes=notes,
        options=["--empty-is-null"] if empty_is_null else (),
    )


def _tool(layout: str, *, empty_is_null: bool) -> tuple[RecordFormat, Callable[[], int]]:
    return trivadis_format(empty_is_null=empty_is_null) if layout == TRIVADIS else (KEEP_FORMAT, lambda: 0)


def _first_offset(found: _Found, topic: str, partition: int, tool: RecordFormat, layout: str) -> int:
    """Return a file's first offset; 0 if it cannot be read. Raises UsageError for a file of another schema."""
    file = AvroFile(MappedFile(found.path).content, str(found.path), topic, partition)
    try:
        read_header(file, tool)
    except FormatTooNewError as error:
        raise UsageError(f"{found.path}: its schema is not that of --layout {layout}") from error
    except CorruptSegmentError:
        return found.first or 0  # reported when it is read
    if found.first is not None:
        return found.first
    frames = (one for one in read_records(file, tool) if isinstance(one, Frame) and len(one))
    frame = next(frames, None)
    return 0 if frame is None else int(frame.column(Column.OFFSET)[0])


def _read(path: Path, topic: str, partition: int, tool: RecordFormat) -> Iterator[Frame | DamagedInput]:
    mapped = MappedFile(path)
    file = AvroFile(mapped.content, str(path), topic, partition, mapped.release)
    try:
        yield from read_records(file, tool)
    except CorruptSegmentError as error:
        yield DamagedInput(0, len(file.content), str(error))
