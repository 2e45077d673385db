"""Plans imports of log directories of Kafka brokers (`archiver import kafka-log`): scans all logs, and chooses replicas."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.format.store_clock import machine_now_ms
from archiver.errors import UsageError
from archiver.imports.filling.import_run import ImportPlan, ImportRequest, made_topic_id
from archiver.imports.filling.partition_fill import ImportHole, PartitionFill
from archiver.imports.logs.log_directory import LogDirectory, PartitionFolder, read_log_directory
from archiver.imports.logs.log_scan import ScannedLog, scan_log
from archiver.imports.logs.partition_import import PartitionImport, steps
from archiver.imports.logs.replicas import choose_replica
from archiver.process.output.text import spell_count

_KIND: Final = "kafka-log"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogImportRequest(ImportRequest):
    """What to import of log directories, and how."""

    deleted: bool = False
    committed_only: bool = False
    takes_undecided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLog:
    """The replica to import of one partition (a PlannedPartition)."""

    log: ScannedLog
    topic: str  # its name in the archive
    topic_id: str
    until: int
    takes_undecided: bool
    holes: Sequence[ImportHole]

    @property
    def has_no_checkpoint(self) -> bool:
        """Whether --committed-only imports nothing, as its broker noted no end of the committed records."""
        return self.until != MOST_OFFSET and self.log.folder.replicated_to is None

    @property
    def partition(self) -> int:
        return self.log.folder.partition

    @property
    def place(self) -> str:
        return str(self.log.folder.path)

    @property
    def files(self) -> Sequence[Path]:
        folders = dict.fromkeys((self.log.folder, *(fill.folder for fill in self.log.fills)))
        return [one.path for folder in folders for one in folder.files]

    @property
    def offsets(self) -> tuple[int, int]:
        return self.log.first, min(self.log.next, self.until)

    @property
    def notes(self) -> Sequence[str]:
        name, replicated_to = f"{self.topic}-{self.partition}", self.log.folder.replicated_to
        found = [
            f"{name}: offsets {fill.from_offset} to {fill.until_offset - 1} are unreadable there, and are taken from {fill.folder.path}"
            for fill in self.log.fills
        ]
        if replicated_to is not None and replicated_to < self.log.next <= self.until:
            behind = spell_count(self.log.next - replicated_to, "offset")
            why = "not known to be committed (--committed-only leaves them out)"
            found.append(f"{name}: {behind} from {replicated_to} on are {why}")
        return found

    @property
    def problems(self) -> Sequence[str]:
        return [f"{self.topic}-{self.partition}: {problem}" for problem in self._problems()]

    def _problems(self) -> Iterator[str]:
        folder = self.log.folder
        if not folder.files:
            yield f"{folder.path} has no log file"
        end = max(self.log.next, folder.files[-1].base if folder.files else 0)
        if folder.replicated_to is not None and end < folder.replicated_to:
            yield f"its log ends at offset {end}, but records up to offset {folder.replicated_to - 1} were committed"
        if self.has_no_checkpoint:
            yield "its broker noted no replication-offset-checkpoint, so --committed-only imports nothing of it"
        for index in folder.lost:
            yield f"the log file of {index} is missing"
        if self.log.cut_bytes:
            yield f"the last {self.log.cut_bytes:,} bytes of its last file are no whole batch"

    @property
    def details(self) -> Mapping[str, Any]:
        folder = self.log.folder
        return {
            "replicated_to": folder.replicated_to,
            "lost": [str(path) for path in folder.lost],
            "filled": [[one.from_offset, one.until_offset, str(one.folder.path)] for one in self.log.fills],
            "damaged": [[str(one.file), one.start, one.end] for one in self.log.damages],
            "cut_bytes": self.log.cut_bytes,
            "undecided": len(self.log.undecided),
            "other_markers": self.log.other_markers,
        }

    def fill(self, fill: PartitionFill) -> None:
        PartitionImport(self.log, fill).run(until=self.until, takes_undecided=self.takes_undecided)


def plan_import(request: LogImportRequest, report: Callable[[str], None]) -> ImportPlan:
    """Scan all logs, and choose a replica of each partition. Raises UsageError for input that contradicts itself."""
    found = [read_log_directory(source, deleted=request.deleted) for source in request.sources]
    cluster_id = _one_cluster(found, request.cluster_id)
    replicas: dict[tuple[str, int], list[PartitionFolder]] = {}
    for directory in found:
        for folder in directory.folders:
            if request.wanted(folder.topic):
                replicas.setdefault((folder.topic, folder.partition), []).append(folder)
    names = request.names({topic for topic, _ in replicas})
    if request.deleted and (kept := sorted(names.keys() - request.renames.keys())):
        raise UsageError(
            f"--deleted: topic {kept[0]} needs another name, for one of its own may be archived later: --rename {kept[0]}=NAME"
        )
    if not any(folder.files for folders in replicas.values() for folder in folders):
        raise UsageError(f"{', '.join(map(str, request.sources))}: no folder there has a log file ({0:020}.log)")
    ids = {topic: _topic_id(topic, cluster_id, replicas) for topic in names}
    chosen: list[PlannedLog] = []
    for (topic, number), folders in sorted(replicas.items()):
        report(f"scanning {topic}-{number}")
        scanned = choose_replica([scan_log(folder) for folder in folders])
        committed = scanned.first if scanned.folder.replicated_to is None else scanned.folder.replicated_to
        until = committed if request.committed_only else MOST_OFFSET
        found_steps = steps(scanned, until=until, takes_undecided=request.takes_undecided)
        chosen.append(
            PlannedLog(
                log=scanned,
                topic=names[topic],
                topic_id=ids[topic],
                until=until,
                takes_undecided=request.takes_undecided,
                holes=[step for step in found_steps if isinstance(step, ImportHole)],
            )
        )
    skipped = [line for one in found for line in one.skipped]
    return ImportPlan(
        kind=_KIND,
        cluster_id=cluster_id,
        partitions=chosen,
        notes=skipped,
        seen_ms=machine_now_ms(),
        options=(("--committed-only",) if request.committed_only else ())
        + (("--undecided include",) if request.takes_undecided else ()),
    )


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
    return made_topic_id(cluster_id, topic)
