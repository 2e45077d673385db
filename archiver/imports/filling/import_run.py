"""Carries out an import of any format: refuses what may not be filled, notes the import, and fills the partitions.

Order of effects: plan → refuse → (dry run ends) → note cluster, import and topics → fill the partitions → add the objects to
the index → note positions of groups.
"""

import hashlib
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from archiver.archive.format.handle import Archive
from archiver.archive.index.index_generations import append_to_index
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import PartitionSource, read_cluster, read_topic, record_cluster
from archiver.archive.segments.probe import probe_store
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.errors import ArchiverError, ForeignArchiveError, UsageError
from archiver.imports.filling.import_note import (
    GroupOffsets,
    ImportNote,
    describe_file,
    is_same_import,
    note_import,
    note_positions,
    refuse_too_many_files,
)
from archiver.imports.filling.partition_fill import ImportedPartition, ImportHole, PartitionFill

log = logging.getLogger(__name__)

_MANY_ENTRIES: Final = 2_000  # of the index: so many are written into one file


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What to import, and how."""

    sources: Sequence[Path]
    wanted: Callable[[str], bool] = lambda _: True
    renames: Mapping[str, str] = field(default_factory=dict)
    cluster_id: str = ""  # empty: as the input has it
    shard: int = 1  # of `shards`: the partitions that this process imports
    shards: int = 1

    def names(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Return the name in the archive of each topic."""
        names = {topic: self.renames.get(topic, topic) for topic in topics}
        if not names:
            raise UsageError(f"{', '.join(map(str, self.sources))}: no topic there matches --topics")
        if len(set(names.values())) < len(names):
            raise UsageError("--rename: two topics would get one name")
        return names


class PlannedPartition(Protocol):
    """A partition that an import fills, in any format."""

    @property
    def topic(self) -> str:
        """The name in the archive."""

    @property
    def topic_id(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def place(self) -> str:
        """Where the input is, for people."""

    @property
    def files(self) -> Sequence[Path]: ...

    @property
    def offsets(self) -> tuple[int, int] | None:
        """The first offset, and the one behind the last; None: nothing was read for the plan."""

    @property
    def holes(self) -> Sequence[ImportHole]:
        """What will be left out, as far as it was looked for."""

    @property
    def notes(self) -> Sequence[str]: ...

    @property
    def problems(self) -> Sequence[str]:
        """What will be left out, beside holes."""

    @property
    def details(self) -> Mapping[str, Any]:
        """What this format has to report beside all that, for JSON."""

    def fill(self, fill: PartitionFill) -> None:
        """Hand all records and holes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """Everything that an import would do. `notes`: what a user should know about the input."""

    kind: str
    cluster_id: str
    partitions: Sequence[PlannedPartition]
    notes: Sequence[str]
    seen_ms: int | None = None  # when the topics were seen: their files are of one moment
    positions: GroupOffsets = field(default_factory=dict)
    options: tuple[str, ...] = ()  # those that change what is imported


@dataclass(slots=True, kw_only=True)
class ImportResult:
    """What an import did."""

    plan: ImportPlan
    is_dry_run: bool = False
    partitions: list[ImportedPartition] = field(default_factory=list)


def run_import(
    plan: ImportPlan,
    request: ImportRequest,
    sink: SegmentSink,
    wait: Callable[[float], object],
    report: Callable[[str], None],
) -> ImportResult:
    """Carry out a plan. The result has an error for each partition that failed; the others are whole."""
    result, archive = ImportResult(plan=plan), sink.archive
    notes = check_archive(archive, plan)
    probe_store(archive)
    record_cluster(archive, plan.cluster_id)
    for note in notes:
        note_import(archive, note)
    lives = {note.topic: _record(archive, plan, note.topic) for note in notes}
    for one in plan.partitions[request.shard - 1 :: request.shards]:
        source = PartitionSource(
            topic=one.topic,
            partition=one.partition,
            life=lives[one.topic],
            topic_id=one.topic_id,
            cluster_id=plan.cluster_id,
        )
        report(f"importing {source}")
        result.partitions.append(_import_one(one, source, sink, wait))
        if len(sink.fresh) >= _MANY_ENTRIES:
            _index(sink)
    _index(sink)
    if plan.positions and request.shard == 1:
        note_positions(archive, plan.cluster_id, plan.positions)
    return result


def _index(sink: SegmentSink) -> None:
    """Add the new objects to the index. It is a cache: a failure costs readers a request for each object."""
    try:
        append_to_index(sink.archive, sink.fresh.take())
    except ArchiverError as error:
        log.warning("the index of facts is not written, which makes readers slower: %s", error)


def check_archive(archive: Archive, plan: ImportPlan) -> Sequence[ImportNote]:
    """Return the notes of an import. Raises an error if the archive is another cluster's, or has a topic from elsewhere."""
    notes = _notes(plan)
    owner = read_cluster(archive)
    if owner not in {None, plan.cluster_id}:
        raise ForeignArchiveError(
            f"this archive belongs to cluster {owner}, and the input is of {plan.cluster_id}; give each cluster its own"
            " prefix in storage.url"
        )
    for note in notes:
        refuse_too_many_files(note)
        if not is_same_import(archive, note) and read_topic(archive, note.topic) is not None:
            raise UsageError(
                f"{note.topic}: is in the archive already; an import fills only a topic that is not. Import it under another"
                f" name: --rename {note.topic}=NAME"
            )
    return notes


def _import_one(
    one: PlannedPartition, source: PartitionSource, sink: SegmentSink, wait: Callable[[float], object]
) -> ImportedPartition:
    try:
        fill = PartitionFill(source, sink, wait)
    except ArchiverError as error:
        return ImportedPartition(source, error=str(error), exit_code=error.exit_code)
    try:
        one.fill(fill)
        fill.put()
    except ArchiverError as error:
        fill.writer.discard()
        fill.report.error, fill.report.exit_code = str(error), error.exit_code
    return fill.report


def _record(archive: Archive, plan: ImportPlan, topic: str) -> int:
    mine = [one for one in plan.partitions if one.topic == topic]
    fact = record_topic(
        archive,
        topic=topic,
        topic_id=mine[0].topic_id,
        cluster_id=plan.cluster_id,
        partitions=max(one.partition for one in mine) + 1,
        configs=None,
        seen_ms=plan.seen_ms,
    )
    return fact.current.life


def _notes(plan: ImportPlan) -> list[ImportNote]:
    """Describe the input of each topic. Raises UsageError if a file cannot be read."""
    by_topic: dict[str, list[Path]] = {}
    for one in plan.partitions:
        by_topic.setdefault(one.topic, []).extend(one.files)
    try:
        return [
            ImportNote(
                kind=plan.kind,
                topic=topic,
                files=tuple(describe_file(path, f"{path.parent.name}/{path.name}") for path in paths),
                options=plan.options,
            )
            for topic, paths in by_topic.items()
        ]
    except OSError as error:
        raise UsageError(f"{error.filename or 'the input'}: cannot be read: {error.strerror}") from error


def made_topic_id(cluster_id: str, topic: str) -> str:
    """Return an id for a topic whose input has none, always the same one."""
    return urlsafe_b64encode(hashlib.sha256(f"{cluster_id}/{topic}".encode()).digest()[:16]).decode().rstrip("=")
