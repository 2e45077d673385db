"""Lists the restores that have notes in the archive, and reads the plans of one. Used by `restore list` and `restore show`."""

from dataclasses import dataclass, field

from archiver.archive.format.control import RESTORES, Fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_restore_id, is_topic_name
from archiver.archive.notes.restore_streams import ListedNote, list_restore_notes, read_each, required
from archiver.archive.restores.finished_restores import FINISHED, PLAN, target_ids
from archiver.errors import UsageError
from archiver.process.values.json_values import as_number
from archiver.restore.plan.noted_plan import heading_from_fact


@dataclass(slots=True)
class NotedRestore:
    """The listed notes of one restore: its first and last put, its planned and its finished targets."""

    restore_id: str
    begun_ms: int
    last_ms: int
    planned: dict[str, ListedNote] = field(default_factory=dict)  # the newest plan of each target
    finished: set[str] = field(default_factory=set)

    @property
    def is_finished(self) -> bool:
        return bool(self.planned) and self.planned.keys() <= self.finished


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """The newest plan of a target."""

    source: str
    life: int
    target: str
    cluster_id: str
    topic_id: str
    partitions: int
    records: int
    stored_bytes: int
    appends: bool


def list_restores(archive: Archive, restore_id: str | None = None) -> list[NotedRestore]:
    """List the restores that have notes, by when they began; or one of them. Sweeps delete the notes of old restores."""
    found: dict[str, NotedRestore] = {}
    for note in list_restore_notes(archive, RESTORES if restore_id is None else f"{RESTORES}/{restore_id}"):
        put_ms = note.listed.put_ms
        one = found.setdefault(note.restore_id, NotedRestore(note.restore_id, put_ms, put_ms))
        one.begun_ms, one.last_ms = min(one.begun_ms, put_ms), max(one.last_ms, put_ms)
        if is_topic_name(note.target) and note.name == PLAN:
            one.planned[note.target] = note
        elif is_topic_name(note.target) and note.name == FINISHED:
            one.finished.add(note.target)
    return sorted(found.values(), key=lambda one: (one.begun_ms, one.restore_id))


def read_restore(archive: Archive, restore_id: str) -> tuple[NotedRestore, list[PlannedTopic]]:
    """Read the plans of a restore. Raises UsageError if it has no notes, NotWholeError for a damaged plan."""
    found = list_restores(archive, restore_id) if is_restore_id(restore_id) else []
    if not found:
        raise UsageError(f"{restore_id}: the archive has no notes of such a restore; `archiver restore list` shows all")
    return found[0], [required(topic) for _, topic in read_each(archive, found[0].planned.values(), _topic)]


def _topic(stream: str, plan: Fact) -> PlannedTopic:
    heading, ids = heading_from_fact(stream, plan), target_ids(plan)
    return PlannedTopic(
        source=heading.source,
        life=heading.life,
        target=stream.split("/")[2],
        cluster_id="" if ids is None else ids.cluster_id,
        topic_id="" if ids is None else ids.topic_id,
        partitions=len(heading.partitions),
        records=sum(as_number(one.get("records")) for one in heading.partitions),
        stored_bytes=sum(as_number(one.get("stored_bytes")) for one in heading.partitions),
        appends=heading.appends,
    )
