"""Reads a restore's notes on its targets one by one, for group positions: an unreadable note stops no other (docs/format.md §8)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from archiver.archive.format.control import READS_AT_ONCE, RESTORES, Fact, Listed, newest_listed, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_partition_number, is_restore_id, is_topic_name
from archiver.archive.restores.finished_restores import PLAN
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import spell_some
from archiver.process.running.workers import side_by_side
from archiver.restore.plan.claims import PARTITION_CLAIMS, PartitionClaim
from archiver.restore.plan.noted_plan import PlanHeading, heading_from_fact
from archiver.restore.plan.noted_target import is_here, is_of

_MOST_NAMED: Final = 20  # restores, in an error
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedTarget:
    """The notes of one target. `problem`: why no partition counts; `refused`: why single ones do not."""

    topic: str
    topic_id: str  # of the present topic
    stream: str  # of its plan
    plan: PlanHeading
    claims: Mapping[int, PartitionClaim]
    refused: Mapping[int, str]
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedTargets:
    """The targets of a restore with readable plans; and why the others' plans are unreadable."""

    targets: tuple[NotedTarget, ...]
    refused: Mapping[str, str]


def list_targets(archive: Archive, restore_id: str) -> list[str]:
    """List the targets of a restore. Raises UsageError for an unknown restore."""
    known = sorted(filter(is_restore_id, archive.store.list_directories(archive.layout.control_prefix(RESTORES))))
    if restore_id not in known:
        there = f"there are {spell_some(known, _MOST_NAMED)}" if known else "there is none"
        raise UsageError(f"restore {restore_id}: the archive knows no restore with this id; {there}")
    directories = archive.store.list_directories(archive.layout.control_prefix(f"{RESTORES}/{restore_id}"))
    return sorted(filter(is_topic_name, directories))


def read_noted_targets(
    archive: Archive, restore_id: str, cluster_id: str, targets: Iterable[str], topic_ids: Mapping[str, str]
) -> NotedTargets:
    """Read a restore's notes on targets. `topic_ids`: of the topics that the cluster has now.

    Each partition has a claim of this restore on this very topic, or the reason for its lack.
    """
    parent = f"{RESTORES}/{restore_id}"
    newest = newest_listed(archive, parent)
    notes = _Notes(archive, cluster_id, topic_ids)
    found: list[NotedTarget] = []
    refused: dict[str, str] = {}
    for target in targets:
        stream = f"{parent}/{target}/{PLAN}"
        if stream not in newest:
            refused[target] = "nothing was planned for it"
            continue
        try:
            found.append(notes.read_target(target, stream, newest))
        except NotWholeError as error:
            refused[target] = str(error)
    return NotedTargets(targets=tuple(found), refused=refused)


class _Notes:
    """Reads notes of one restore on one cluster."""

    def __init__(self, archive: Archive, cluster_id: str, topic_ids: Mapping[str, str]) -> None:
        self._archive = archive
        self._cluster_id = cluster_id
        self._topic_ids = topic_ids

    def read_target(self, target: str, stream: str, newest: Mapping[str, Listed]) -> NotedTarget:
        """Read the plan of a target, then its claims. Raises NotWholeError for an unreadable plan."""
        fact = read_fact(self._archive, stream, newest[stream])
        plan = heading_from_fact(stream, fact)
        problem = self._problem_of(target, fact)
        claims = {} if problem or plan.repartition is not None else self._claims_of(stream, newest)
        return NotedTarget(
            topic=target,
            topic_id=self._topic_ids.get(target, ""),
            stream=stream,
            plan=plan,
            claims={number: one for number, one in claims.items() if isinstance(one, PartitionClaim)},
            refused={number: one for number, one in claims.items() if isinstance(one, str)},
            problem=problem,
        )

    def _problem_of(self, target: str, fact: Fact) -> str:
        if not is_here(fact, self._cluster_id):
            return f"topic {target} was restored into another cluster"
        if target not in self._topic_ids:
            return f"topic {target} is not on the cluster"
        if not is_of(fact, self._cluster_id, self._topic_ids[target]):
            return f"topic {target} is not the one that was restored: it was created again since"
        return ""

    def _claims_of(self, plan_stream: str, newest: Mapping[str, Listed]) -> Mapping[int, PartitionClaim | str]:
        above = plan_stream.removesuffix(PLAN)
        target = above.split("/")[-2]
        topic_id = self._topic_ids[target]
        names = [stream.removeprefix(above) for stream in newest if stream.startswith(above)]
        numbers = sorted(int(name) for name in names if is_partition_number(name))

        def read(number: int) -> PartitionClaim:
            stream = f"{above}{number}"
            fact = read_fact(self._archive, stream, newest[stream])
            if not is_of(fact, self._cluster_id, topic_id):
                raise NotWholeError(f"what is noted of {target}-{number} is of an earlier topic of that name")
            return PARTITION_CLAIMS.read(fact, stream)

        return dict(zip(numbers, side_by_side(READS_AT_ONCE, or_reason(read), numbers, "claims"), strict=True))


def or_reason(read: Callable[[int], Value]) -> Callable[[int], Value | str]:
    """Make a function return the reason of a NotWholeError instead of raising it."""

    def tolerant(number: int) -> Value | str:
        try:
            return read(number)
        except NotWholeError as error:
            return str(error)

    return tolerant
