"""Decides from notes whether a restore has finished a target: sweeps and clearings keep the objects that an unfinished restore reads.

A note that is added later must not make a restore finished: all plans of a target count, and a claim must fit each plan.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from archiver.archive.format.control import Fact, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_partition_number
from archiver.archive.notes.restore_streams import ListedNote, list_restore_notes, read_each, required
from archiver.archive.restores.noted_parts import piece_of, pieces_of, read_piece
from archiver.archive.segments.parts import FactsOfParts
from archiver.archive.segments.record_counts import Count, count_records
from archiver.codec.selection import FIRST_LONG, Selection
from archiver.process.values.json_values import as_list, as_number, as_object

PLAN: Final = "plan"  # the streams of a target: docs/format.md §8
FINISHED: Final = "finished"
APPLICATIONS: Final = "@groups"  # beside the directories of targets: notes of groups. No topic can have this name
REPARTITION: Final = "repartition"  # the single claim of a target that has another number of partitions
_VERIFIED: Final = "verified"
# Errors from reading a malformed fact.
MALFORMED: Final = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


class TargetIds(NamedTuple):
    """The target topic of a restore's note."""

    cluster_id: str
    topic_id: str


def target_ids(note: Fact) -> TargetIds | None:
    """Return the target that a note names; None: it names none, so it belongs to no known target."""
    found = [note.get(name) for name in ("target_cluster_id", "target_topic_id")]
    named = [one for one in found if isinstance(one, str) and one]
    return TargetIds(*named) if len(named) == len(found) else None


def is_claim(name: str) -> bool:
    """Return whether a stream of a target is a claim, by its name within the target."""
    return name == REPARTITION or is_partition_number(name)


def is_finished(archive: Archive, plans: Sequence[Fact], finished: ListedNote) -> bool:
    """Return whether a target is finished: all plans and the end name it, and each partition's verified claims fit each plan.

    `finished`: the newest note of its end. Raises NotWholeError.
    """
    ids = target_ids(read_fact(archive, finished.stream, finished.listed))
    if ids is None or not plans or any(target_ids(plan) != ids for plan in plans):
        return False
    parent = finished.stream.rpartition("/")[0]
    newest = {note.name: note for note in list_restore_notes(archive, parent)}
    try:
        return all(_is_verified(archive, parent, plan, ids, newest) for plan in plans)
    except MALFORMED:
        return False


def _is_verified(archive: Archive, parent: str, plan: Fact, ids: TargetIds, newest: Mapping[str, ListedNote]) -> bool:
    """Return whether each partition of a plan was verified with the planned number of records."""
    partitions = {str(as_number(one["partition"])): as_object(one) for one in as_list(plan["partitions"])}
    count = plan.get(REPARTITION)
    names = [*partitions] if count is None else [REPARTITION]  # of claims
    if not partitions or not newest.keys() >= {*names}:
        return False
    claims = read_each(archive, [newest[name] for name in names], lambda _, claim: claim)
    claim_of = {note.name: required(claim) for note, claim in claims}
    for name, partition in partitions.items():
        claim = claim_of[name if count is None else REPARTITION]
        verified, starts = as_object(claim[_VERIFIED]), [claim.get("start_offset")]
        if count is not None:
            if len(as_list(verified["targets"])) != count:
                return False
            verified, starts = as_object(verified["sources"])[name], as_list(claim["start_offsets"])
        if target_ids(claim) != ids or not (plan["appends"] is True or all(start == 0 for start in starts)):
            return False
        if not _fits(archive, f"{parent}/{PLAN}", partition, claim, as_number(verified["records"])):
            return False
    return True


def _fits(archive: Archive, stream: str, partition: Fact, claim: Fact, records: int) -> bool:
    """Return whether a number of records fits the plan of a partition. A refused partition fits: a later plan has its number."""
    if partition.get("problem"):
        return True
    wanted = _planned_records(archive, stream, partition)
    return (0 if claim.get("skipped") else wanted.at_least) <= records <= wanted.at_most


def _planned_records(archive: Archive, stream: str, partition: Fact) -> Count:
    if "pieces" in partition:
        pieces = [read_piece(archive, stream, name) for name in pieces_of({"partitions": [partition]})]
    else:
        pieces = [piece_of(partition)]
    facts = FactsOfParts.join([facts for _, facts in pieces])
    ends = {name: as_number(end, FIRST_LONG) for name, end in as_object(partition["selection"]).items()}
    return count_records(facts, Selection(**ends)) if facts else Count(0, 0)
