"""Plans imports of log directories of Kafka brokers (`archiver import kafka-log`): scans all logs, and chooses replicas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from archiver.archive.format.layout import MOST_OFFSET
from archiver.errors import UsageError
from archiver.imports.import_run import ImportPlan, ImportRequest, made_topic_id
from archiver.imports.log_directory import LogDirectory, PartitionFolder, read_log_directory
from archiver.imports.log_scan import ScannedLog, scan_log
from archiver.imports.partition_fill import Hole, PartitionFill
from archiver.imports.partition_import import PartitionImport, steps
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
    until: int = MOST_OFFSET
    takes_undecided: bool = False
    has_no_checkpoint: bool = False  # so with --committed-only nothing is imported

    @property
    def partition(self) -> int:
        return self.log.folder.partition

    @property
    def place(self) -> str:
        return str(self.log.folder.path)

    @property
    def files(self) -> Sequence[Path]:
        return [one.path for one in self.log.folder.files]

    @property
    def offsets(self) -> tuple[int, int]:
        return self.log.first, min(self.log.next, self.until)

    @property
    def holes(self) -> Sequence[Hole]:
        found = steps(self.log, until=self.until, takes_undecided=self.takes_undecided)
        return [step for step in found if isinstance(step, Hole)]

    @property
    def notes(self) -> Sequence[str]:
        replicated_to = self.log.folder.replicated_to
        if replicated_to is None or not replicated_to < self.log.next <= self.until:
            return ()
        behind = spell_count(self.log.next - replicated_to, "offset")
        name = f"{self.topic}-{self.partition}"
        why = "not known to be committed (--committed-only leaves them out)"
        return (f"{name}: {behind} from {replicated_to} on are {why}",)

    @property
    def problems(self) -> Sequence[str]:
        name, found = f"{self.topic}-{self.partition}", list[str]()
        if self.has_no_checkpoint:
            found.append(
                f"{name}: its broker noted no replication-offset-checkpoint, so --committed-only imports nothing of it"
            )
        if self.log.cut_bytes:
            found.append(f"{name}: the last {self.log.cut_bytes:,} bytes of its last file are no whole batch")
        return found

    @property
    def details(self) -> Mapping[str, Any]:
        return {
            "replicated_to": self.log.folder.replicated_to,
            "damaged": [[str(one.file), one.start, one.end] for one in self.log.damages],
            "cut_bytes": self.log.cut_bytes,
        }

    def fill(self, fill: PartitionFill) -> None:
        PartitionImport(self.log, fill).run(until=self.until, takes_undecided=self.takes_undecided)


def plan_import(request: LogImportRequest, report: Callable[[str], None]) -> ImportPlan:
    """Scan all logs, and choose a replica of each partition. Raises UsageError for input that contradicts itself."""
    found = [read_log_directory(source, deleted=request.deleted) for source in request.sources]
    cluster_id = request.cluster_id or _one_cluster(found)
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
    ids = {topic: _topic_id(topic, cluster_id, replicas) for topic in names}
    chosen: list[PlannedLog] = []
    for (topic, number), folders in sorted(replicas.items()):
        report(f"scanning {topic}-{number}")
        scanned = _best([scan_log(folder) for folder in folders])
        committed = scanned.first if scanned.folder.replicated_to is None else scanned.folder.replicated_to
        chosen.append(
            PlannedLog(
                log=scanned,
                topic=names[topic],
                topic_id=ids[topic],
                until=committed if request.committed_only else MOST_OFFSET,
                takes_undecided=request.takes_undecided,
                has_no_checkpoint=request.committed_only and scanned.folder.replicated_to is None,
            )
        )
    skipped = [line for one in found for line in one.skipped]
    return ImportPlan(kind=_KIND, cluster_id=cluster_id, partitions=chosen, notes=skipped)


def _best(logs: Sequence[ScannedLog]) -> ScannedLog:
    """Return the replica of the highest leader epoch; of several the longest: its records were acknowledged last."""

    def worth(log: ScannedLog) -> tuple[int, int, int, int]:
        damaged = sum(one.until_offset - one.from_offset for one in log.damages)
        return log.leader_epoch, log.next, -damaged, -log.first

    return max(logs, key=worth)


def _one_cluster(found: Sequence[LogDirectory]) -> str:
    ids = {one.cluster_id: one.path for one in found if one.cluster_id}
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
