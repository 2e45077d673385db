"""Plans imports of other tools' archives, whose modules find the partitions and decode their records to frames."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from archiver.archive.format.layout import is_topic_name
from archiver.archive.notes.topics import MOST_PARTITIONS
from archiver.archive.segments.segment_facts import HoleCause
from archiver.codec.foreign.damage import NO_OFFSETS
from archiver.codec.foreign.frame_merge import FileMerge, MergedFile, Missing, MissingOffsets
from archiver.codec.frame import Column, Frame
from archiver.errors import UsageError
from archiver.imports.filling.import_run import ImportPlan, ImportRequest, made_topic_id
from archiver.imports.filling.partition_fill import ImportHole, PartitionFill

Steps = Callable[[], Iterator[Frame | ImportHole]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignPartition:
    """A partition in another tool's files.

    `steps` reads the files from the beginning. It yields records and holes in the order of offsets, which rise strictly. A frame
    is of bounded size, and valid until the next one is asked for. A hole of NO_OFFSETS is only reported.
    """

    topic: str
    partition: int
    files: Sequence[Path]
    steps: Steps
    cluster_id: str = ""  # empty: the files have none
    notes: Sequence[str] = ()  # what a user should know; each is printed once
    positions: Mapping[str, int] = field(default_factory=dict)  # of consumer groups
    problems: Sequence[str] = ()  # what is left out, beside holes
    options: Sequence[str] = ()  # those that change what is imported
    details: Mapping[str, Any] = field(default_factory=dict)  # for the report in JSON; `steps` may fill it


def merged(files: Sequence[MergedFile], missing: Sequence[Missing]) -> Iterator[Frame | ImportHole]:
    """Yield the records and holes of files that may overlap."""
    for step in FileMerge(files, missing).steps():
        if isinstance(step, MissingOffsets):
            yield ImportHole(step.until, HoleCause.UNREADABLE if step.is_damage else HoleCause.EXPIRED, step.why)
        else:
            yield step


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSummary:
    """What a dry run has read of a partition."""

    offsets: tuple[int, int]
    records: int
    holes: Sequence[ImportHole]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedForeign:
    """A partition of another tool's archive, to be imported (a PlannedPartition)."""

    found: ForeignPartition
    topic: str  # its name in the archive
    topic_id: str
    survey: InputSummary | None

    @property
    def partition(self) -> int:
        return self.found.partition

    @property
    def place(self) -> str:
        return str(self.found.files[0].parent) if self.found.files else ""

    @property
    def files(self) -> Sequence[Path]:
        return self.found.files

    @property
    def offsets(self) -> tuple[int, int] | None:
        return None if self.survey is None else self.survey.offsets

    @property
    def holes(self) -> Sequence[ImportHole]:
        return () if self.survey is None else self.survey.holes

    @property
    def notes(self) -> Sequence[str]:
        return ()

    @property
    def problems(self) -> Sequence[str]:
        return self.found.problems

    @property
    def details(self) -> Mapping[str, Any]:
        return {**self.found.details, **({} if self.survey is None else {"records": self.survey.records})}

    def fill(self, fill: PartitionFill) -> None:
        for step in self.found.steps():
            if isinstance(step, ImportHole):
                fill.skip(step)
            else:
                fill.take(step)


def plan_foreign(
    kind: str,
    found: Sequence[ForeignPartition],
    request: ImportRequest,
    report: Callable[[str], None],
    *,
    reads_all: bool,
) -> ImportPlan:
    """Plan the import of found partitions. `reads_all`: decode them, to show what would be imported."""
    chosen = sorted((one for one in found if request.wanted(one.topic)), key=lambda one: (one.topic, one.partition))
    names = request.names(one.topic for one in chosen)
    for before, after in pairwise(chosen):
        if (before.topic, before.partition) == (after.topic, after.partition):
            raise UsageError(f"{after.topic}-{after.partition}: is there twice: {_place(before)} and {_place(after)}")
    for one in chosen:
        if not is_topic_name(names[one.topic]) or not 0 <= one.partition < MOST_PARTITIONS:
            raise UsageError(f"{_place(one)}: {one.topic}-{one.partition} is no partition of a topic")
    cluster_id = _one_cluster(chosen, request)
    planned: list[PlannedForeign] = []
    for one in chosen:
        if reads_all:
            report(f"reading {one.topic}-{one.partition}")
        planned.append(
            PlannedForeign(
                found=one,
                topic=names[one.topic],
                topic_id=made_topic_id(cluster_id, one.topic),
                survey=_survey(one) if reads_all else None,
            )
        )
    notes = dict.fromkeys(note for one in chosen for note in one.notes)
    positions: dict[str, dict[str, dict[int, int]]] = {}
    for each in planned:
        for group, offset in each.found.positions.items():
            positions.setdefault(group, {}).setdefault(each.topic, {})[each.partition] = offset
    options = dict.fromkeys(option for one in chosen for option in one.options)
    return ImportPlan(
        kind=kind,
        cluster_id=cluster_id,
        partitions=planned,
        notes=[*notes],
        positions=positions,
        options=tuple(options),
    )


def _survey(found: ForeignPartition) -> InputSummary:
    first, after, records = -1, 0, 0
    holes: list[ImportHole] = []
    for step in found.steps():
        if isinstance(step, ImportHole):
            holes.append(step)
        elif len(step):
            offsets = step.column(Column.OFFSET)
            first, after = int(offsets[0]) if first < 0 else first, int(offsets[-1]) + 1
            records += len(step)
    after = max(after, *(hole.until for hole in holes), NO_OFFSETS)
    return InputSummary(offsets=(max(first, 0), after), records=records, holes=holes)


def _one_cluster(found: Sequence[ForeignPartition], request: ImportRequest) -> str:
    ids = {one.cluster_id for one in found if one.cluster_id}
    if request.cluster_id:
        return request.cluster_id
    if not ids:
        raise UsageError("these files do not tell their cluster: give its id, or a name for it, with --cluster-id")
    if len(ids) > 1:
        raise UsageError(
            f"these files are of several clusters ({', '.join(sorted(ids))}); import each into its own archive"
        )
    return next(iter(ids))


def _place(found: ForeignPartition) -> str:
    return str(found.files[0]) if found.files else f"{found.topic}-{found.partition}"
