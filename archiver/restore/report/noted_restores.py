"""Lists the restores that have notes in the archive, and reads the plans of one. Used by `restore list` and `restore show`."""

from dataclasses import dataclass, field

from archiver.archive.format.control import RESTORES, Fact, Listed, decode_facts
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_restore_id, is_topic_name
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.restores.finished_restores import FINISHED, PLAN, target_ids
from archiver.errors import UsageError
from archiver.process.values.json_values import as_number
from archiver.restore.plan.noted_plan import heading_from_fact

_LEAST_PARTS = 4  # restores/<id>/<target>/<name>


@dataclass(slots=True)
class NotedRestore:
    """The listed notes of one restore: its first and last put, its planned and its finished targets."""

    restore_id: str
    begun_ms: int
    last_ms: int
    planned: dict[str, Listed] = field(default_factory=dict)  # the newest plan of each target
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
    below = RESTORES if restore_id is None else f"{RESTORES}/{restore_id}"
    for item in archive.store.list(archive.layout.control_prefix(below)):
        stream, number = archive.layout.split_fact(item.key) or ("", 0)
        parts = stream.split("/")
        if len(parts) < _LEAST_PARTS or not is_restore_id(parts[1]):
            continue
        put_ms = epoch_ms(item.last_modified)
        one = found.setdefault(parts[1], NotedRestore(parts[1], put_ms, put_ms))
        one.begun_ms, one.last_ms = min(one.begun_ms, put_ms), max(one.last_ms, put_ms)
        if is_topic_name(parts[2]) and parts[3:] == [PLAN]:  # listed in the order of their numbers
            one.planned[parts[2]] = Listed(number, item.size, put_ms)
        elif is_topic_name(parts[2]) and parts[3:] == [FINISHED]:
            one.finished.add(parts[2])
    return sorted(found.values(), key=lambda one: (one.begun_ms, one.restore_id))


def read_restore(archive: Archive, restore_id: str) -> tuple[NotedRestore, list[PlannedTopic]]:
    """Read the plans of a restore. Raises UsageError if it has no notes, NotWholeError for a damaged plan."""
    found = list_restores(archive, restore_id) if is_restore_id(restore_id) else []
    if not found:
        raise UsageError(f"{restore_id}: the archive has no notes of such a restore; `archiver restore list` shows all")
    plans = {f"{RESTORES}/{restore_id}/{target}/{PLAN}": one for target, one in found[0].planned.items()}
    return found[0], list(decode_facts(archive, plans, _topic).values())


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
