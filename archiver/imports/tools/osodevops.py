"""Finds the partitions in archives of osodevops/kafka-backup, by their manifests (`archiver import osodevops`)."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.notes.topics import MOST_PARTITIONS
from archiver.codec.foreign.damage import DamagedInput
from archiver.codec.foreign.frame_merge import MergedFile, Missing
from archiver.codec.foreign.osodevops import BrokenSegmentError, read_segment
from archiver.codec.frame import Frame
from archiver.errors import UsageError
from archiver.imports.filling.foreign_import import ForeignPartition, merged
from archiver.imports.filling.mapped_file import MappedFile

_MANIFEST: Final = "manifest.json"
_MOST_MANIFEST_BYTES: Final = 512 * 1024 * 1024
_SEGMENT: Final = re.compile(r"segment-\d{20}\.bin(\.zst|\.lz4)?")
_ALWAYS: Final = "types of timestamps are not in these archives: they are imported as unknown"
_OLD_READS: Final = (
    "some segments were written before version 0.25, or read uncommitted: records of aborted transactions and transaction"
    " markers may be among their records"
)
_OLD_HEADERS: Final = (
    "some segments may be older than version 0.24, which kept one of several headers with the same key, and than 0.18,"
    " which wrote null header values as empty ones"
)


def find_partitions(sources: Sequence[Path], wanted: Callable[[str], bool]) -> list[ForeignPartition]:
    """Return the partitions of wanted topics in archives: folders with a manifest.json."""
    return [one for source in sources for one in _partitions(source, wanted)]


def _partitions(source: Path, wanted: Callable[[str], bool]) -> Iterator[ForeignPartition]:
    manifest = _read_manifest(source)
    try:
        prefix, cluster = str(manifest["backup_id"]), str(manifest.get("source_cluster_id") or "")
        reads_committed = manifest.get("isolation_level") == "read_committed"
        for topic in manifest["topics"]:
            name = str(topic["name"])
            for number, found in _numbered(topic) if wanted(name) else ():
                yield _partition(source, prefix, cluster, name, number, found, reads_committed=reads_committed)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"{source / _MANIFEST}: is no manifest of osodevops/kafka-backup ({error!r})") from error


def _numbered(topic: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the partitions of a topic, also those that never had a record."""
    found = {int(one["partition_id"]): one for one in topic["partitions"]}
    if len(found) < len(topic["partitions"]):
        raise ValueError("a partition is there twice")
    count = min(int(topic.get("original_partition_count") or 0), MOST_PARTITIONS)
    for number in sorted({*found, *range(count)}):
        yield number, found.get(number, {"segments": ()})


def _read_manifest(source: Path) -> Any:  # noqa: ANN401 - its parts are checked where they are used
    path = source / _MANIFEST
    if not path.is_file():
        inner = sorted(one.parent.name for one in source.glob(f"*/{_MANIFEST}"))
        more = f"; name one of its folders: {', '.join(inner[:5])}" if inner else ""
        raise UsageError(f"{source}: has no {_MANIFEST}, as an archive of osodevops/kafka-backup has{more}")
    if path.stat().st_size > _MOST_MANIFEST_BYTES:
        raise UsageError(f"{path}: is too large for a manifest")
    try:
        return json.loads(MappedFile(path).content.tobytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is no JSON: {error}") from error


def _partition(
    source: Path,
    prefix: str,
    cluster: str,
    topic: str,
    number: int,
    found: Mapping[str, Any],
    *,
    reads_committed: bool,
) -> ForeignPartition:
    folder = f"{prefix}/topics/{topic}/partition={number}/"
    files: list[MergedFile] = []
    missing: list[Missing] = []
    for one in found["segments"]:
        name = str(one["key"]).removeprefix(folder)
        if not _SEGMENT.fullmatch(name):
            raise UsageError(f"{source / _MANIFEST}: {one['key']} is no segment of {topic}-{number}")
        path = source / "topics" / topic / f"partition={number}" / name
        first, until = _covered(one)
        if path.is_file():
            files.append(MergedFile(path, first, until, partial(_read, path)))
        else:
            missing.append(Missing(first, until, True, f"{path} is missing"))
    missing += _left_out(found)
    missing += _unaccounted([_covered(one) for one in found["segments"]], missing, is_whole=_has_coverage(found))
    notes = [_ALWAYS]
    if not reads_committed or not _has_coverage(found):
        notes.append(_OLD_READS)
    if not _has_coverage(found):
        notes.append(_OLD_HEADERS)
    return ForeignPartition(
        topic=topic,
        partition=number,
        files=[one.path for one in files],
        steps=lambda: merged(files, missing),
        cluster_id=cluster,
        notes=notes,
    )


def _covered(segment: Mapping[str, Any]) -> tuple[int, int]:
    """Return the offsets that a segment accounts for; before version 0.25 those of its first and last record."""
    first, last = segment.get("covered_start_offset"), segment.get("covered_end_offset")
    return _checked(
        int(segment["start_offset"] if first is None else first),
        int(segment["end_offset"] if last is None else last) + 1,
    )


def _has_coverage(found: Mapping[str, Any]) -> bool:
    """Return whether version 0.25 or later wrote all segments."""
    return all(one.get("covered_end_offset") is not None for one in found["segments"])


def _left_out(found: Mapping[str, Any]) -> Iterator[Missing]:
    """Yield what the archive itself tells to be missing."""
    for one in found.get("gaps") or ():
        first, until = _checked(int(one["start_offset"]), int(one["end_offset"]))
        yield Missing(first, until, False, "the archive's source had deleted them")
    for one in found.get("pruned") or ():
        first, until = _checked(int(one["start_offset"]), int(one["end_offset"]) + 1)
        yield Missing(first, until, False, "the archive's own retention has deleted them")


def _checked(first: int, until: int) -> tuple[int, int]:
    if not 0 <= first < until <= MOST_OFFSET:
        raise ValueError(f"offsets {(first, until)}")
    return first, until


def _unaccounted(segments: Sequence[tuple[int, int]], known: Sequence[Missing], *, is_whole: bool) -> Iterator[Missing]:
    """Yield what comes before the first segment, and, from version 0.25 on, what nothing in the manifest accounts for."""
    position = -1
    for first, until in sorted([*segments, *((one.first, one.until) for one in known)]):
        if position < 0 < first:
            yield Missing(0, first, False, "the archive begins here")
        elif is_whole and 0 <= position < first:
            yield Missing(position, first, True, "no segment in the manifest has them")
        position = max(position, until)


def _read(path: Path) -> Iterator[Frame | DamagedInput]:
    mapped = MappedFile(path)
    try:
        for frame in read_segment(mapped.content):
            mapped.release_all()
            yield frame
    except BrokenSegmentError as error:
        yield DamagedInput(0, len(mapped.content), str(error))
