"""Imports log directories of Kafka brokers (`archiver import kafka-log`).

Order of effects: read the directories → scan all logs → choose replicas → refuse → (dry run ends) → note cluster, import and
topic → import the partitions → add the objects to the index.
"""

import hashlib
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.index.index_generations import append_to_index
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import PartitionSource, read_cluster, read_topic, record_cluster
from archiver.archive.segments.probe import probe_store
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.errors import ArchiverError, StrangerError, UsageError
from archiver.imports.import_note import ImportNote, describe_file, is_same_import, note_import
from archiver.imports.log_directory import LogDirectory, PartitionFolder, read_log_directory
from archiver.imports.log_scan import ScannedLog, scan_log
from archiver.imports.partition_import import Hole, ImportedPartition, PartitionImport, steps
from archiver.imports.replicas import choose_replica

log = logging.getLogger(__name__)

_KIND: Final = "kafka-log"
_MANY_ENTRIES: Final = 2_000  # of the index: so many are written into one file


@dataclass(frozen=True, slots=True, kw_only=True)
class LogImportRequest:
    """What to import, and how."""

    sources: Sequence[Path]
    wanted: Callable[[str], bool] = lambda _: True
    renames: Mapping[str, str] = field(default_factory=dict)
    cluster_id: str = ""  # empty: as meta.properties has it
    deleted: bool = False
    committed_only: bool = False
    takes_undecided: bool = False
    shard: int = 1  # of `shards`: the partitions that this process imports
    shards: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """The replica to import of one partition."""

    log: ScannedLog
    topic: str  # its name in the archive
    topic_id: str
    until: int
    holes: Sequence[Hole]

    @property
    def has_no_checkpoint(self) -> bool:
        """Whether --committed-only imports nothing, as its broker noted no end of the committed records."""
        return self.until != MOST_OFFSET and self.log.folder.replicated_to is None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogImportPlan:
    """Everything that an import would do."""

    cluster_id: str
    partitions: Sequence[PlannedPartition]
    skipped: Sequence[str]


@dataclass(slots=True, kw_only=True)
class LogImportResult:
    """What an import did. Without `partitions` it was a dry run."""

    plan: LogImportPlan
    partitions: list[ImportedPartition] = field(default_factory=list)


def plan_import(request: LogImportRequest, report: Callable[[str], None]) -> LogImportPlan:
    """Scan all logs, and choose a replica of each partition. Raises UsageError for input that contradicts itself."""
    found = [read_log_directory(source, deleted=request.deleted) for source in request.sources]
    cluster_id = _one_cluster(found, request.cluster_id)
    replicas: dict[tuple[str, int], list[PartitionFolder]] = {}
    for directory in found:
        for folder in directory.folders:
            if request.wanted(folder.topic):
                replicas.setdefault((folder.topic, folder.partition), []).append(folder)
    if not replicas:
        raise UsageError(f"{', '.join(map(str, request.sources))}: no topic there matches --topics")
    if request.deleted and (kept := sorted({topic for topic, _ in replicas} - request.renames.keys())):
        raise UsageError(
            f"--deleted: topic {kept[0]} needs another name, for one of its own may be archived later: --rename {kept[0]}=NAME"
        )
    if not any(folder.files for folders in replicas.values() for folder in folders):
        raise UsageError(f"{', '.join(map(str, request.sources))}: no folder there has a log file ({0:020}.log)")
    names = {topic: request.renames.get(topic, topic) for topic, _ in replicas}
    if len(set(names.values())) < len(names):
        raise UsageError("--rename: two topics would get one name")
    ids = {topic: _topic_id(topic, cluster_id, replicas) for topic in names}
    chosen: list[PlannedPartition] = []
    for (topic, number), folders in sorted(replicas.items()):
        report(f"scanning {topic}-{number}")
        scanned = choose_replica([scan_log(folder) for folder in folders])
        committed = scanned.first if scanned.folder.replicated_to is None else scanned.folder.replicated_to
        until = committed if request.committed_only else MOST_OFFSET
        found_steps = steps(scanned, until=until, takes_undecided=request.takes_undecided)
        chosen.append(
            PlannedPartition(
                log=scanned,
                topic=names[topic],
                topic_id=ids[topic],
                until=until,
                holes=[step for step in found_steps if isinstance(step, Hole)],
            )
        )
    return LogImportPlan(
        cluster_id=cluster_id, partitions=chosen, skipped=[line for one in found for line in one.skipped]
    )


def run_import(
    plan: LogImportPlan,
    request: LogImportRequest,
    sink: SegmentSink,
    wait: Callable[[float], object],
    report: Callable[[str], None],
) -> LogImportResult:
    """Carry out a plan. The result has an error for each partition that failed; the others are whole."""
    result, archive = LogImportResult(plan=plan), sink.archive
    notes = check_archive(archive, plan)
    probe_store(archive)
    record_cluster(archive, plan.cluster_id)
    for note in notes:
        note_import(archive, note)
    lives = {note.topic: _record(archive, plan, note.topic) for note in notes}
    for index, one in enumerate(plan.partitions):
        if index % request.shards != request.shard - 1:
            continue
        source = PartitionSource(
            topic=one.topic,
            partition=one.log.folder.partition,
            life=lives[one.topic],
            topic_id=one.topic_id,
            cluster_id=plan.cluster_id,
        )
        report(f"importing {source}")
        result.partitions.append(_import_one(one, source, request, sink, wait))
        if len(sink.fresh) >= _MANY_ENTRIES:
            _index(sink)
    _index(sink)
    return result


def _index(sink: SegmentSink) -> None:
    """Add the new objects to the index. It is a cache: a failure costs readers a request for each object."""
    try:
        append_to_index(sink.archive, sink.fresh.take())
    except ArchiverError as error:
        log.warning("the index of facts is not written, which makes readers slower: %s", error)


def check_archive(archive: Archive, plan: LogImportPlan) -> Sequence[ImportNote]:
    """Return the notes of an import. Raises an error if the archive is another cluster's, or has a topic from elsewhere."""
    notes = _notes(plan)
    owner = read_cluster(archive)
    if owner not in {None, plan.cluster_id}:
        raise StrangerError(
            f"this archive belongs to cluster {owner}, and the logs are of {plan.cluster_id}; give each cluster its own"
            " prefix in storage.url"
        )
    for note in notes:
        if not is_same_import(archive, note) and read_topic(archive, note.topic) is not None:
            raise UsageError(
                f"{note.topic}: is in the archive already; an import fills only a topic that is not. Import it under another"
                f" name: --rename {note.topic}=NAME"
            )
    return notes


def _import_one(
    one: PlannedPartition,
    source: PartitionSource,
    request: LogImportRequest,
    sink: SegmentSink,
    wait: Callable[[float], object],
) -> ImportedPartition:
    try:
        work = PartitionImport(source, one.log, sink, wait)
    except ArchiverError as error:
        return ImportedPartition(source, error=str(error))
    try:
        work.run(until=one.until, takes_undecided=request.takes_undecided)
    except ArchiverError as error:
        work.report.error = str(error)
    return work.report


def _record(archive: Archive, plan: LogImportPlan, topic: str) -> int:
    mine = [one for one in plan.partitions if one.topic == topic]
    fact = record_topic(
        archive,
        topic=topic,
        topic_id=mine[0].topic_id,
        cluster_id=plan.cluster_id,
        partitions=max(one.log.folder.partition for one in mine) + 1,
        configs=None,
        seen_ms=machine_now_ms(),  # all files are of one moment, so positions are as certain as if the log was read then
    )
    return fact.current.life


def _notes(plan: LogImportPlan) -> list[ImportNote]:
    """Describe the input of each topic."""
    by_topic: dict[str, list[PlannedPartition]] = {}
    for one in plan.partitions:
        by_topic.setdefault(one.topic, []).append(one)
    return [
        ImportNote(
            kind=_KIND,
            topic=topic,
            files=tuple(
                describe_file(file.path, f"{folder.path.name}/{file.path.name}")
                for one in some
                for folder in dict.fromkeys((one.log.folder, *(fill.folder for fill in one.log.fills)))
                for file in folder.files
            ),
        )
        for topic, some in by_topic.items()
    ]


def _one_cluster(found: Sequence[LogDirectory], given: str) -> str:
    ids = {one.cluster_id: one.path for one in found if one.cluster_id} | (
        {given: Path("--cluster-id")} if given else {}
    )
    if not ids:
        raise UsageError(f"{found[0].path}: has no meta.properties with a cluster id; give it with --cluster-id")
    if len(ids) > 1:
        places = "; ".join(f"{path}: {cluster_id}" for cluster_id, path in ids.items())
        raise UsageError(f"these log directories are of several clusters ({places}); import each into its own archive")
    return next(iter(ids))


def _topic_id(topic: str, cluster_id: str, replicas: Mapping[tuple[str, int], Sequence[PartitionFolder]]) -> str:
    """Return the id of a topic; brokers before 2.8 have none, and an id is made of cluster and name."""
    folders = [folder for (name, _), some in replicas.items() if name == topic for folder in some]
    ids = {folder.topic_id: folder.path for folder in folders if folder.topic_id}
    if len(ids) > 1:
        places = "; ".join(f"{path}: {topic_id}" for topic_id, path in ids.items())
        raise UsageError(
            f"{topic}: these folders are of topics of several ids, so it was deleted and created again ({places}); import"
            " only those of one id"
        )
    if ids:
        return next(iter(ids))
    return urlsafe_b64encode(hashlib.sha256(f"{cluster_id}/{topic}".encode()).digest()[:16]).decode().rstrip("=")
