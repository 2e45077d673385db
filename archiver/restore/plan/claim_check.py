"""Checks that a claim in the archive can be one of this restore, by its tasks (docs/format.md §8).

Any program that may write below `control/restores/` may write a claim.
"""

from collections.abc import Collection, Sequence

from archiver.archive.restores.finished_restores import REPARTITION
from archiver.errors import NotWholeError
from archiver.restore.plan.claims import PartitionClaim, TopicClaim
from archiver.restore.plan.task import RestoreTask


def check_claim(claim: PartitionClaim, task: RestoreTask) -> None:
    """Raise NotWholeError for a claim that no run of this restore has noted."""
    found = [
        *_starts([claim.start_offset], task),
        *_behind(claim.start_offset, task),
        *_skips(claim.skipped, [task]),
        *([] if claim.verified is None else _counts(claim.verified.records, claim.skipped, task)),
    ]
    _refuse(found, str(task.partition), task)


def check_topic_claim(claim: TopicClaim, tasks: Sequence[RestoreTask], partitions: int) -> None:
    """Raise NotWholeError for a claim on all partitions of a target that no run of this restore has noted."""
    identities = {number: one.producer_id for number, one in claim.identities.items()}
    found = [
        *_starts(claim.start_offsets, tasks[0]),
        *_skips(claim.skipped, tasks),
    ]
    if len(claim.start_offsets) != partitions:
        found.append(f"is of {len(claim.start_offsets)} partitions, not of {partitions}")
    if identities.keys() != {task.partition for task in tasks} or len(set(identities.values())) != len(identities):
        found.append("does not have one producer id for each partition that is restored")
    if claim.verified is not None:
        sources, targets = claim.verified.sources, claim.verified.targets
        if sources.keys() != identities.keys() or len(targets) != partitions:
            found.append("tells of other partitions that they were verified")
        elif sum(one.records for one in sources.values()) != sum(one.records for one in targets):
            found.append("tells that other records were dealt out than are there")
        else:
            found += [told for task in tasks for told in _counts(sources[task.partition].records, claim.skipped, task)]
    _refuse(found, REPARTITION, tasks[0])


def _starts(offsets: Collection[int], task: RestoreTask) -> list[str]:
    """Find offsets at which a claim cannot begin: unless it is appended to, a topic was empty when it was claimed."""
    wrong = [one for one in offsets if one < 0 or (one and not task.mode.appends)]
    return [f"begins at offset {wrong[0]} of a topic that was empty"] if wrong else []


def _behind(start: int, task: RestoreTask) -> list[str]:
    """Find a claim on records from before the restore: they would count as restored."""
    if start >= task.first_offset:
        return []
    return [f"begins at offset {start}, where records of others were: they ended at {task.first_offset}"]


def _skips(skipped: Collection[str], tasks: Sequence[RestoreTask]) -> list[str]:
    if not skipped:
        return []
    if not tasks[0].mode.skips_damage:
        return [f"leaves out {min(skipped)!r:.300} without --skip-damaged"]
    others = set(skipped) - {part.object_key for task in tasks for part in task.parts}
    return [f"leaves out {min(others)!r:.300}, which is not planned"] if others else []


def _counts(records: int, skipped: Collection[str], task: RestoreTask) -> list[str]:
    """Find a number of verified records that differs from the wanted records, by the facts of objects."""
    least = 0 if skipped else task.wanted.at_least
    if least <= records <= task.wanted.at_most:
        return []
    return [f"says that {records:,} records of partition {task.partition} were verified, and {task.wanted} are planned"]


def _refuse(found: Sequence[str], stream: str, task: RestoreTask) -> None:
    if found:
        place = f"control/restores/{task.restore_id}/{task.target_topic}/{stream}/"
        raise NotWholeError(
            f"{place} (the newest): {found[0]}; no run of this restore has noted that. See who wrote it, and take another --id"
            " and an empty target"
        )
