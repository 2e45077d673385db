"""A task of `verify`: reads some of the archive's objects, and checks each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from archiver.archive.parts import ObjectPart
from archiver.archive.reader import fetch_parts, found_or_gone
from archiver.archive.segment import open_segment
from archiver.archive.segments import Segment
from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, NotWholeError, SweptError
from archiver.store.shared import patient_store_of
from archiver.upkeep.covered_ranges import Covered
from archiver.upkeep.findings import Findings
from archiver.upkeep.object_check import Level, check_object

_TASK_BYTES: Final = 256 * 1024 * 1024  # bytes of objects in a task: some seconds of work, so that progress shows


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTask:
    """The objects that one task reads."""

    storage: StorageConfig
    level: Level
    segments: tuple[Segment, ...]
    covered: Mapping[str, Sequence[Covered]] = field(
        default_factory=dict
    )  # what objects are compared with, by their keys


def check_tasks(
    storage: StorageConfig,
    segments: Sequence[Segment],
    level: Level,
    covered: Mapping[str, Sequence[Covered]] | None = None,
) -> Iterator[CheckTask]:
    """Share objects out. `covered`: the objects that some of them cover, by the keys of these."""

    def task(chosen: Sequence[Segment]) -> CheckTask:
        some = (
            {one.object_key: covered[one.object_key] for one in chosen if one.object_key in covered} if covered else {}
        )
        return CheckTask(storage=storage, level=level, segments=tuple(chosen), covered=some)

    chosen: list[Segment] = []
    size = 0
    for segment in segments:
        chosen.append(segment)
        size += segment.size
        if size >= _TASK_BYTES:
            yield task(chosen)
            chosen, size = [], 0
    if chosen:
        yield task(chosen)


def run_check(task: CheckTask) -> Findings:
    """Check the objects of a task. An error is returned in the findings, so that other tasks continue."""
    problems: list[str] = []
    checked = 0
    try:
        store = patient_store_of(task.storage)
        parts = [
            ObjectPart(object_key=segment.object_key, from_offset=0, next_offset=segment.facts.next)
            for segment in task.segments
        ]
        for segment, (part, found) in zip(task.segments, fetch_parts(store, parts), strict=True):
            try:
                key, covered = segment.object_key, task.covered.get(segment.object_key, ())
                check_object(open_segment(*found_or_gone(store, part, found), key), segment.key, task.level, covered)
            except SweptError:  # a deleted object cannot be wrong
                continue
            except NotWholeError as error:
                problems.append(str(error))
            checked += 1
    except ArchiverError as error:
        return Findings(examined=checked, problems=tuple(problems), error=str(error), exit_code=error.exit_code)
    return Findings(examined=checked, problems=tuple(problems))
