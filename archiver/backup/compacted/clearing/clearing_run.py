"""Deletes former copies: surveys first, then reads the role log and restores again before each batch of deletes.

A pass over one topic:

1. read the newest entry of each role log; 2. list the copies; 3. read objects and plans of restores; 4. ask the cluster for the
bounds of the logs; 5. decide; 6. before a deletion: read those objects of the current copy that this process has neither put nor
read before; 7. for each deleted generation: read the role log and plans of restores again, delete a batch of the listed objects
within LOOK_S, and so on. A failure waits for the next pass. A process that is killed or sleeps anywhere between leaves less to do
for the next one. Objects that appear below a generation's prefix after the listing stay until a later pass lists them.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from archiver.archive.copies.roles import Generation, RolePlace, read_newest_entry
from archiver.archive.notes.holds import delete_after_look
from archiver.archive.segments.listing import ListedSegment
from archiver.backup.compacted.clearing.clearing_rules import Situation, clearing_problems, judge_clearing
from archiver.backup.compacted.clearing.clearing_survey import ClearingSurvey
from archiver.errors import ArchiverError, NotWholeError, StoreError, StoreTemporaryError
from archiver.process.running.failpoints import reach

log = logging.getLogger(__name__)

_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """A generation with deleted objects."""

    place: RolePlace
    generation: Generation
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A former copy that stays."""

    place: RolePlace
    generation: Generation
    why: tuple[str, ...]


@dataclass(slots=True)
class ClearingReport:
    """The result of a pass."""

    cleared: list[Cleared] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    alarms: dict[RolePlace, tuple[str, ...]] = field(default_factory=dict)  # reasons that block a partition
    refused: list[str] = field(default_factory=list)  # deletes that the store denied, or that failed
    unread: list[ArchiverError] = field(default_factory=list)  # failures of the store before any delete

    @property
    def failures(self) -> list[str]:
        return [*map(str, self.unread), *self.refused]


def clear_copies(
    survey: ClearingSurvey,
    places: Collection[RolePlace],
    now_ms: int,
    goes_on: Callable[[], bool] = lambda: True,
) -> ClearingReport:
    """Delete former copies of these partitions unless kept. `now_ms`: a time that the store's clock has surely reached."""
    report = ClearingReport()
    for topic in sorted({place.topic for place in places}):
        try:
            surveyed = survey.survey(topic, now_ms, frozenset(places))
        except (StoreError, StoreTemporaryError) as error:
            report.unread.append(error)
            continue
        for one in surveyed:
            if not goes_on():
                return report
            _clear(survey, one, report, goes_on)
    return report


def _clear(survey: ClearingSurvey, one: Situation, report: ClearingReport, goes_on: Callable[[], bool]) -> None:
    if one.problem:
        report.alarms[one.place] = (one.problem,)
        return
    if alarms := clearing_problems(one):
        report.alarms[one.place] = alarms
    for generation, why in judge_clearing(one, survey.rules).items():
        if why:
            report.kept.append(Kept(place=one.place, generation=generation, why=why))
        elif _holder_is_whole(survey, one, generation, report, goes_on):
            reach("clearing.decided")
            _delete(survey, one, generation, report, goes_on)


def _holder_is_whole(
    survey: ClearingSurvey, one: Situation, generation: Generation, report: ClearingReport, goes_on: Callable[[], bool]
) -> bool:
    """Read the current copy before a generation is deleted, except for objects that this process has put or read before."""
    if one.copy is None:
        return False
    holder = one.copy.generation
    end = max((copy.state.end for copy in one.standing if copy.generation == generation and copy.state), default=0)
    needed = [item for item in one.objects.get(holder, ()) if item.key.base < end]
    try:
        return survey.catalog.read_bodies(one.place.copy_key(holder), needed, goes_on)
    except NotWholeError as error:
        report.alarms[one.place] = (f"what is read is damaged: {error}",)
    except (StoreError, StoreTemporaryError) as error:
        report.unread.append(error)
    return False


def _delete(
    survey: ClearingSurvey, one: Situation, generation: Generation, report: ClearingReport, goes_on: Callable[[], bool]
) -> None:
    """Delete the listed objects of a generation in batches, while the conditions hold."""

    def look() -> str:
        if not goes_on() or not _holds(survey, one, generation):
            return "what was decided on holds no longer"
        reach("clearing.looked")
        return ""

    objects, deleted = one.objects[generation], list[ListedSegment]()
    for start in range(0, len(objects), _BATCH):
        batch = objects[start : start + _BATCH]
        try:
            why, refused = delete_after_look(survey.archive.store, [item.item.key for item in batch], look)
        except StoreError as error:
            report.refused.append(str(error))
        else:
            if why:
                break
            report.refused += list(map(str, refused.values()))[:1]
            deleted += [item for item in batch if item.item.key not in refused]
        reach("clearing.deleted")
    if deleted:
        size = sum(item.item.size for item in deleted)
        report.cleared.append(Cleared(place=one.place, generation=generation, objects=len(deleted), bytes=size))


def _holds(survey: ClearingSurvey, one: Situation, generation: Generation) -> bool:
    """Return whether the newest entry is still the surveyed one, and no unfinished restore may read the generation."""
    try:
        newest = read_newest_entry(survey.archive, one.place)
        pins = survey.read_pins(one.now_ms)
    except (NotWholeError, StoreError, StoreTemporaryError) as error:
        log.warning("%s: nothing of it is cleared for now: %s", one.place.stream, error)
        return False
    is_newest = newest is not None and (newest.number, newest.entry) == (one.number, one.entry)
    return is_newest and not pins.unreadable and one.place.copy_key(generation) not in pins.restores
