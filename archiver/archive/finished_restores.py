"""Whether a restore has finished a target, by its notes: sweeps and clearings keep what an unfinished one reads, and its notes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from archiver.archive.control import Fact, newest_numbers, read_fact, read_facts
from archiver.archive.handle import Archive

PLAN: Final = "plan"  # the streams of a target: docs/format.md §8
FINISHED: Final = "finished"
REPARTITION: Final = "repartition"  # the one claim of a target that has another number of partitions
_VERIFIED: Final = "verified"


class TargetIds(NamedTuple):
    """Which topic a note of a restore is about."""

    cluster_id: str
    topic_id: str


def target_ids(note: Fact) -> TargetIds | None:
    """Return the target that a note names; None: it does not name one, and is of no target that is known."""
    found = [note.get(name) for name in ("target_cluster_id", "target_topic_id")]
    named = [one for one in found if isinstance(one, str) and one]
    return TargetIds(*named) if len(named) == len(found) else None


def is_finished(archive: Archive, parent: str, plan: Fact, finished: int, *, has_claims: bool = True) -> bool:
    """Tell whether the target of a plan is finished: the end names it, and each partition of the plan was verified there.

    `parent`: what the streams of the target begin with. `finished`: the number of the newest fact of its end. `has_claims`: False
    where a sweep has proved it before, and is deleting the notes. Raises NotWholeError.
    """
    ids = target_ids(plan)
    if ids is None or target_ids(read_fact(archive, f"{parent}/{FINISHED}", finished)) != ids:
        return False
    return not has_claims or _is_verified(archive, parent, plan, ids)


def _is_verified(archive: Archive, parent: str, plan: Fact, ids: TargetIds) -> bool:
    partitions = plan.get("partitions")
    if not isinstance(partitions, list) or not all(isinstance(one, Mapping) for one in partitions):
        return False
    numbers = {str(one.get("partition")) for one in partitions}
    count = plan.get(REPARTITION)
    streams = {f"{parent}/{name}" for name in (numbers if count is None else {REPARTITION})}
    newest = newest_numbers(archive, parent)
    if not numbers or not streams <= newest.keys():
        return False
    claims = read_facts(archive, {stream: newest[stream] for stream in streams}).values()
    return all(
        target_ids(claim) == ids and (_has_contents(claim) if count is None else _has_dealt(claim, numbers, count))
        for claim in claims
    )


def _has_contents(claim: Fact) -> bool:
    found = claim.get(_VERIFIED)
    return isinstance(found, Mapping) and type(found.get("records")) is int


def _has_dealt(claim: Fact, sources: set[str], targets: object) -> bool:
    """Tell whether all source and target partitions of a repartitioned target were verified."""
    found = claim.get(_VERIFIED)
    if not isinstance(found, Mapping):
        return False
    dealt, filled = found.get("sources"), found.get("targets")
    return (
        isinstance(dealt, Mapping) and sources <= dealt.keys() and isinstance(filled, list) and len(filled) == targets
    )
