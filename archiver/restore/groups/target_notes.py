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
) -> tuple[list[NotedTarget], dict[str, str]]:
    """Read a restore's notes on targets. `topic_ids`: of the topics that the cluster has now.

    Each partition has a claim of this restore on this very topic, or the reason for its lack. Also returns the targets with
    unreadable plans, and why.
    """
    parent = f"{RESTORES}/{restore_id}"
    newest = newest_listed(archive, parent)
    found: list[NotedTarget] = []
    refused: dict[str, str] = {}
    for target in targets:
        try:
            found.append(_read_target(archive, cluster_id, f"{parent}/{target}/", newest, topic_ids.get(target)))
        except NotWholeError as error:
            refused[target] = str(error)
    return found, refused


def _read_target(
    archive: Archive, cluster_id: str, above: str, newest: Mapping[str, Listed], topic_id: str | None
) -> NotedTarget:
    """Read the plan of a target, then its claims. `above`: the beginning of its streams. Raises NotWholeError for an unreadable plan."""
    target, stream = above.split("/")[-2], f"{above}{PLAN}"
    if stream not in newest:
        raise NotWholeError("nothing was planned for it")
    fact = read_fact(archive, stream, newest[stream])
    plan, problem = heading_from_fact(stream, fact), _problem_of(target, fact, cluster_id, topic_id)

    def read_claim(number: int) -> PartitionClaim:
        claim = read_fact(archive, f"{above}{number}", newest[f"{above}{number}"])
        if not is_of(claim, cluster_id, topic_id or ""):
            raise NotWholeError(f"what is noted of {target}-{number} is of an earlier topic of that name")
        return PARTITION_CLAIMS.read(claim, f"{above}{number}")

    names = [one.removeprefix(above) for one in newest if one.startswith(above)]
    numbers = sorted(int(name) for name in names if is_partition_number(name))
    if problem or plan.repartition is not None:
        numbers = []
    claims = list(zip(numbers, side_by_side(READS_AT_ONCE, or_reason(read_claim), numbers, "claims"), strict=True))
    return NotedTarget(
        topic=target,
        topic_id=topic_id or "",
        stream=stream,
        plan=plan,
        claims={number: one for number, one in claims if isinstance(one, PartitionClaim)},
        refused={number: one for number, one in claims if isinstance(one, str)},
        problem=problem,
    )


def _problem_of(target: str, plan: Fact, cluster_id: str, topic_id: str | None) -> str:
    if not is_here(plan, cluster_id):
        return f"topic {target} was restored into another cluster"
    if topic_id is None:
        return f"topic {target} is not on the cluster"
    if not is_of(plan, cluster_id, topic_id):
        return f"topic {target} is not the one that was restored: it was created again since"
    return ""


def or_reason(read: Callable[[int], Value]) -> Callable[[int], Value | str]:
    """Make a function return the reason of a NotWholeError instead of raising it."""

    def tolerant(number: int) -> Value | str:
        try:
            return read(number)
        except NotWholeError as error:
            return str(error)

    return tolerant
