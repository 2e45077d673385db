"""Reads the wanted records of the archive as plain values, in order, and reports unreadable ones. `cat` uses it."""

import base64
import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from archiver.archive.copies.archived_topic import ArchivedTopic, problems_within, wanted_readings
from archiver.archive.copies.copied_topic import BY_ROLES, CopyChoice
from archiver.archive.format.handle import Archive
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.reading.catalog import ReportProblem, find_topic
from archiver.archive.reading.reader import read_parts
from archiver.archive.segments.parts import FactsOfParts, parts_within, with_planned
from archiver.codec.frame import Column, Frame
from archiver.codec.rows import long_record_of, plain_records_of
from archiver.codec.selection import ALL_RECORDS, NO_TIMESTAMP, Selection, Wanted
from archiver.config.model import IndexUse
from archiver.config.quantities import spell_time
from archiver.errors import NotWholeError, SweptError, UsageError
from archiver.store.port import ObjectStore

_LARGE_BYTES: Final = 64 * 1024  # keys, values and headers up to so many bytes become Python values together
_PIECE_BYTES: Final = 3 * 16 * 1024  # base64 encodes three bytes at a time


def read_records(
    store: ObjectStore,
    topic: ArchivedTopic,
    *,
    report_problem: ReportProblem,
    partition: int | None = None,
    selection: Selection = ALL_RECORDS,
    positions: Mapping[int, int] | None = None,
) -> Iterator[dict[str, Any]]:
    """Read records as plain values, partition by partition, in offset order; report unreadable objects.

    `positions`: by partition, the offset where reading starts; lower records are skipped.
    """
    reads = wanted_of(partition, selection, positions)
    numbers = partition_numbers(topic, partition)
    for number, frame in read_frames(store, topic, numbers, lambda one: reads(one) or selection, report_problem):
        yield from frame_to_values(frame, number)


def read_frames(
    store: ObjectStore,
    topic: ArchivedTopic,
    numbers: Iterable[int],
    reads: Callable[[int], Selection],
    report_problem: ReportProblem,
) -> Iterator[tuple[int, Frame]]:
    """Read frames of these partitions, in offset order; report unreadable objects. `reads`: what is wanted of each."""
    are_gone_told = False
    for number in numbers:
        wanted = reads(number)
        for problem in problems_within(topic, number, wanted):
            report_problem(problem)
        readings = wanted_readings(topic.partitions.get(number, EMPTY_PARTITION).readable, wanted)
        parts = parts_within(readings, wanted)
        for part in with_planned(parts, FactsOfParts.of_parts(parts, readings)):
            try:
                for frame in read_parts(store, topic.topic, number, [part], selection=wanted):
                    yield number, frame
            except SweptError as error:
                if not are_gone_told:  # during a sweep hundreds may be missing
                    report_problem(f"{topic.topic}-{number}: {error}; objects that went after it are not named")
                are_gone_told = True
            except NotWholeError as error:
                report_problem(f"{topic.topic}-{number}: {error}")


def wanted_of(partition: int | None, selection: Selection, positions: Mapping[int, int] | None = None) -> Wanted:
    """Return a function that gives the selection of each partition; `positions` as in read_records."""

    def wanted(number: int) -> Selection | None:
        seen = Selection(first_offset=(positions or {}).get(number, 0))
        return selection.within(seen) if partition in {None, number} else None

    return wanted


def follow_records(
    archive: Archive,
    name: str,
    *,
    report_problem: ReportProblem,
    pause: Callable[[], object],
    partition: int | None = None,
    selection: Selection = ALL_RECORDS,
    choice: CopyChoice = BY_ROLES,
    use: IndexUse = IndexUse.CHECK,
) -> Iterator[dict[str, Any]]:
    """Read a topic, and follow newly archived records until stopped. Each problem is reported once."""
    told: set[str] = set()
    positions: dict[int, int] = {}
    root, life = 0, 0

    def report_once(problem: str) -> None:
        if problem not in told:
            told.add(problem)
            report_problem(problem)

    while True:
        reads = wanted_of(partition, selection, positions)
        topic = find_topic(archive, name, choice=choice, use=use, reads=reads, report_problem=report_once)
        if topic.fact is not None:
            fact, root_before = topic.fact, root
            root = fact.root(topic.life)
            if root != root_before:
                positions.clear()  # the topic was created again: its new log is read from the beginning
            for later in (one for one in fact.lives if fact.root(one.life) == root and one.life > life):
                for number, branch in later.branches.items():  # the log was truncated: it has other records now
                    positions[number] = min(positions.get(number, 0), branch.offset)
            life = topic.life
        for row in read_records(
            archive.store,
            topic,
            report_problem=report_once,
            partition=partition,
            selection=selection,
            positions=positions,
        ):
            positions[row["partition"]] = row["offset"] + 1
            yield row
        pause()


def partition_numbers(topic: ArchivedTopic, partition: int | None = None) -> Sequence[int]:
    """Return the partitions of a topic, those without an object too; or the one that is asked for."""
    shape = range(0 if topic.fact is None else topic.fact.partitions)
    have = sorted({*topic.partitions, *topic.damaged, *shape})
    if partition is not None and partition not in have:
        raise UsageError(
            f"{topic.topic} has no partition {partition} in the archive; it has {', '.join(map(str, have)) or 'none'}"
        )
    return have if partition is None else [partition]


def frame_to_values(frame: Frame, partition: int) -> Iterator[dict[str, Any]]:
    """Convert a frame into plain values for `json_pieces`; long values of a large record are read only while they are written."""
    for run in _runs(frame):
        rows = [long_record_of(run)] if len(run) == 1 and _sizes(run)[0] > _LARGE_BYTES else plain_records_of(run)
        for row in rows:
            yield {
                "partition": partition,
                "offset": row.offset,
                "timestamp": row.timestamp,
                "time": _time_of(row.timestamp),
                "timestampType": row.timestamp_type,
                "key": _spell_value(row.key),
                "value": _spell_value(row.value),
                "headers": [[spell_bytes(key), spell_bytes(value)] for key, value in row.headers]
                if isinstance(row.headers, list)
                else _HeadersInPieces(row.headers),
            }


def _time_of(timestamp_ms: int) -> str | None:
    """Spell a timestamp as `query` does; None: the record has none, or one that no calendar has."""
    spelled = spell_time(timestamp_ms)
    return spelled if timestamp_ms != NO_TIMESTAMP and spelled.endswith("Z") else None


def _runs(frame: Frame) -> Iterator[Frame]:
    """Split a frame where Python values of all its rows would take too much memory; a large row is a piece of its own."""
    start = held = 0
    for row, size in enumerate(_sizes(frame)):
        if row > start and held + size > _LARGE_BYTES:
            yield frame.rows(start, row)
            start, held = row, 0
        held += size
    yield frame.rows(start, len(frame))


def _sizes(frame: Frame) -> list[int]:
    columns = frame.table[[Column.KEY_LENGTH, Column.VALUE_LENGTH, Column.HEADER_LENGTH]]
    sizes: list[int] = np.maximum(columns, 0).sum(axis=0).tolist()
    return sizes


def json_pieces(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a record as one line of JSON: in one piece, or in several pieces if it is large."""
    if not any(isinstance(value, _InPieces) for value in record.values()):
        yield json.dumps(record, ensure_ascii=False)
        return
    lead = "{"
    for name, value in record.items():
        yield f"{lead}{json.dumps(name)}: "
        yield from _pieces(value)
        lead = ", "
    yield "}"


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, _InPieces):
        yield from value.pieces()
    else:
        yield json.dumps(value, ensure_ascii=False)


class _InPieces:
    """A long value, whose JSON is written piece by piece."""

    def pieces(self) -> Iterator[str]:
        raise NotImplementedError


class _BytesInPieces(_InPieces):
    def __init__(self, content: memoryview) -> None:
        self._content = content

    def pieces(self) -> Iterator[str]:
        """Yield the JSON of the result of `spell_bytes`, in pieces."""
        is_text = self._is_utf8()
        yield '{"utf8": "' if is_text else '{"base64": "'
        if is_text:
            for text in self._texts():
                yield json.dumps(text, ensure_ascii=False)[1:-1]
        else:
            for start in range(0, len(self._content), _PIECE_BYTES):
                yield base64.b64encode(self._content[start : start + _PIECE_BYTES]).decode()
        yield '"}'

    def _is_utf8(self) -> bool:
        try:
            for _ in self._texts():
                pass
        except UnicodeDecodeError:
            return False
        return True

    def _texts(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, len(self._content), _PIECE_BYTES):
            yield decoder.decode(self._content[start : start + _PIECE_BYTES])
        yield decoder.decode(b"", final=True)


class _HeadersInPieces(_InPieces):
    def __init__(self, headers: Iterable[tuple[memoryview, memoryview | None]]) -> None:
        self._headers = headers

    def pieces(self) -> Iterator[str]:
        lead = "["
        for key, value in self._headers:
            header = [_spell_value(key), _spell_value(value)]
            if any(isinstance(one, _InPieces) for one in header):
                yield f"{lead}["
                yield from _pieces(header[0])
                yield ", "
                yield from _pieces(header[1])
                yield "]"
            else:
                yield f"{lead}{json.dumps(header, ensure_ascii=False)}"
            lead = ", "
        yield "[]" if lead == "[" else "]"


def _spell_value(value: bytes | memoryview | None) -> Mapping[str, str] | _InPieces | None:
    if isinstance(value, memoryview):
        return _BytesInPieces(value) if len(value) > _LARGE_BYTES else spell_bytes(bytes(value))
    return spell_bytes(value)


def spell_bytes(value: bytes | None) -> Mapping[str, str] | None:
    """Convert bytes into JSON values without loss: null; text if they are UTF-8; otherwise base64."""
    if value is None:
        return None
    try:
        return {"utf8": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
