"""What the archive's notes tell of restores: all of them by one listing, and one with its plans and claims. Used by `restore list` and `show`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from archiver.archive.format.control import RESTORES, Fact, Listed, decode_facts, newest_listed
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_restore_id, is_topic_name
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.restores.finished_restores import (
    APPLICATIONS,
    FINISHED,
    PLAN,
    REPARTITION,
    is_claim,
    plans_among,
    target_ids,
)
from archiver.errors import UsageError
from archiver.process.values.json_values import as_number
from archiver.restore.plan.claims import PARTITION_CLAIMS, TOPIC_CLAIMS, TopicClaim
from archiver.restore.plan.noted_plan import heading_from_fact

_LEAST_PARTS = 4  # restores/<id>/<target>/<name>


@dataclass(slots=True)
class NotedRestore:
    """The listed notes of one restore: when it began and last wrote, its planned and its finished targets, and its groups."""

    restore_id: str
    begun_ms: int
    last_ms: int
    planned: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)  # digests of the names of groups that it has set

    @property
    def is_finished(self) -> bool:
        return bool(self.planned) and self.planned <= self.finished


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedTopic:
    """The newest plan of a target, and its claims. Counts of verified partitions and records are of this plan's topic."""

    source: str
    life: int
    target: str
    cluster_id: str
    topic_id: str
    partitions: int
    verified: int
    records: int
    verified_records: int
    stored_bytes: int
    appends: bool
    is_finished: bool
    terms: Mapping[str, object]


def list_restores(archive: Archive, restore_id: str | None = None) -> list[NotedRestore]:
    """List the restores that have notes, by when they began; or one of them. Sweeps delete the notes of old restores."""
    found: dict[str, NotedRestore] = {}
    below = RESTORES if restore_id is None else f"{RESTORES}/{restore_id}"
    for item in archive.store.list(archive.layout.control_prefix(below)):
        stream, _ = archive.layout.split_fact(item.key) or ("", 0)
        parts = stream.split("/")
        if len(parts) < _LEAST_PARTS or not is_restore_id(parts[1]):
            continue
        put_ms = epoch_ms(item.last_modified)
        one = found.setdefault(parts[1], NotedRestore(parts[1], put_ms, put_ms))
        one.begun_ms, one.last_ms = min(one.begun_ms, put_ms), max(one.last_ms, put_ms)
        if parts[2] == APPLICATIONS:
            one.groups.add(parts[3])
        elif is_topic_name(parts[2]) and parts[3] == PLAN:
            one.planned.add(parts[2])
        elif is_topic_name(parts[2]) and parts[3] == FINISHED:
            one.finished.add(parts[2])
    return sorted(found.values(), key=lambda one: (one.begun_ms, one.restore_id))


def read_restore(archive: Archive, restore_id: str) -> tuple[NotedRestore, list[NotedTopic]]:
    """Read the plans and claims of a restore. Raises UsageError where it has none, NotWholeError where one is damaged."""
    found = list_restores(archive, restore_id) if is_restore_id(restore_id) else []
    if not found:
        raise UsageError(f"{restore_id}: the archive has no notes of such a restore; `archiver restore list` shows all")
    newest = newest_listed(archive, f"{RESTORES}/{restore_id}")
    topics = decode_facts(archive, plans_among(newest), lambda stream, plan: _topic(archive, stream, plan, newest))
    return found[0], [topics[stream] for stream in sorted(topics)]


def _topic(archive: Archive, stream: str, plan: Fact, newest: Mapping[str, Listed]) -> NotedTopic:
    heading, ids = heading_from_fact(stream, plan), target_ids(plan)
    parent, _, _ = stream.rpartition("/")
    claims = {name: one for name, one in newest.items() if name.startswith(f"{parent}/") and is_claim(_last(name))}
    counts = [
        count
        for counted in decode_facts(archive, claims, lambda name, fact: list(_verified(name, fact, plan))).values()
        for count in counted
    ]
    return NotedTopic(
        source=heading.source,
        life=heading.life,
        target=parent.split("/")[2],
        cluster_id="" if ids is None else ids.cluster_id,
        topic_id="" if ids is None else ids.topic_id,
        partitions=len(heading.partitions),
        verified=len(counts),
        records=sum(as_number(one.get("records")) for one in heading.partitions),
        verified_records=sum(counts),
        stored_bytes=sum(as_number(one.get("stored_bytes")) for one in heading.partitions),
        appends=heading.appends,
        is_finished=f"{parent}/{FINISHED}" in newest,
        terms=plan.get("terms") or {},
    )


def _verified(stream: str, claim: Fact, plan: Fact) -> Iterator[int]:
    """Yield the verified records of each source partition of a claim; nothing of a claim on another topic of that name."""
    if target_ids(claim) != target_ids(plan):
        return
    of_topic = _last(stream) == REPARTITION
    read = TOPIC_CLAIMS.read(claim, stream) if of_topic else PARTITION_CLAIMS.read(claim, stream)
    if isinstance(read, TopicClaim):
        yield from () if read.verified is None else (one.records for one in read.verified.sources.values())
    elif read.verified is not None:
        yield read.verified.records


def _last(stream: str) -> str:
    return stream.rpartition("/")[2]
