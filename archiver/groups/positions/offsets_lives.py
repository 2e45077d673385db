"""Reads the lives of `__consumer_offsets` with their logs: the current one of a time, and earlier ones, of former clusters.

A new cluster creates the topic again: the log of the new life has only positions in new topics. The final state of the previous
life has the positions in earlier topics, which ended with their topics. If one survey of a backup first saw some topics together
with a life of `__consumer_offsets`, they belong to that life.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import TopicFact
from archiver.archive.reading.catalog import find_topic
from archiver.config.model import IndexUse
from archiver.groups.log.archived_log import OffsetsLog, ReportProblem, read_log
from archiver.groups.log.folds import Folds
from archiver.groups.log.lives import CLOCKS_DIFFER_MS, NOT_ARCHIVED, Root, Roots
from archiver.groups.log.log_beginning import first_seen_ms
from archiver.groups.positions.archived_position import ArchivedPosition, Cause, State
from archiver.groups.positions.positions_as_of import positions_as_of
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.running.workers import side_by_side

_READS_AT_ONCE: Final = 2
_ONE_SURVEY_MS: Final = 3_000  # topics first seen within this time were seen in one survey


class SurveyTimes(NamedTuple):
    """The begin and end of the backup survey that first saw a life."""

    from_ms: int
    until_ms: int

    @classmethod
    def at(cls, seen_ms: int, all_ms: Iterable[int]) -> "SurveyTimes":
        times = sorted({*all_ms, seen_ms})
        first = last = times.index(seen_ms)
        while first > 0 and times[first] - times[first - 1] <= _ONE_SURVEY_MS:
            first -= 1
        while last + 1 < len(times) and times[last + 1] - times[last] <= _ONE_SURVEY_MS:
            last += 1
        return cls(times[first], times[last])


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsLife:
    """One life, read as of a time; the survey that first saw it, if it has a predecessor, and the survey that first saw the next one."""

    topic: ArchivedTopic
    logs: Sequence[OffsetsLog]
    seen: SurveyTimes | None = None
    next_seen: SurveyTimes | None = None

    def had_begun(self, at_ms: int) -> bool:
        seen_ms = first_seen_ms(self.topic)
        is_seen = seen_ms is not None and seen_ms <= at_ms
        return is_seen or any(log.first_ms is not None and log.first_ms <= at_ms for log in self.logs)

    def positions(self, roots: Roots) -> Iterator[ArchivedPosition]:
        """Yield the positions of the log, in topics of its time."""
        return positions_as_of(self.logs, {topic: self._own(some) for topic, some in roots.items()})

    def _own(self, roots: Sequence[Root]) -> Sequence[Root]:
        """Leave out topics first seen with a later life, and topics whose successors were first seen with this life or earlier."""
        kept = [one for one in roots if not _is_since(one, self.next_seen)]
        came = [number for number, one in enumerate(kept) if self.seen is not None and _is_until(one, self.seen)]
        return kept[came[-1] :] if came and _is_since(kept[came[-1]], self.seen) else kept

    def ended_positions(self, roots: Roots) -> Iterator[ArchivedPosition]:
        """Yield the positions at the end of the life: set positions ended with their topics, unless the topic existed later."""
        for one in self.positions(roots):
            if one.life == NOT_ARCHIVED:
                continue
            if one.state is not State.SET:
                yield one
            elif self._was_there_later(one, roots):
                yield one._replace(state=State.REMOVED, cause=Cause.UNKNOWN)
            else:
                yield one._replace(state=State.TOPIC_DELETED, cause=Cause.TOPIC_DELETED)

    def _was_there_later(self, position: ArchivedPosition, roots: Roots) -> bool:
        these = [one for one in roots.get(position.topic, ()) if one.life == position.life]
        later = self.next_seen
        return later is not None and any((one.alive_ms or 0) > later.until_ms + CLOCKS_DIFFER_MS for one in these)


def _is_since(root: Root, survey: SurveyTimes | None) -> bool:
    return survey is not None and root.seen_ms is not None and root.seen_ms >= survey.from_ms


def _is_until(root: Root, survey: SurveyTimes) -> bool:
    return root.seen_ms is not None and root.seen_ms <= survey.until_ms


def find_offsets_lives(
    archive: Archive, use: IndexUse = IndexUse.CHECK, report_problem: ReportProblem = lambda _: None
) -> list[ArchivedTopic]:
    """Find each life that has records, the newest last. A truncated log counts as one life with its parent."""
    newest = find_topic(archive, OFFSETS_TOPIC, use=use, report_problem=report_problem)
    fact = newest.fact
    if fact is None:
        return [newest]
    roots = {fact.root(life): life for life in newest.other_lives}  # the last life of each root
    roots.pop(fact.root(newest.life), None)
    earlier = [find_topic(archive, OFFSETS_TOPIC, roots[root], use=use) for root in sorted(roots)]
    return [*earlier, newest]


def read_offsets_lives(
    archive: Archive, facts: Collection[TopicFact], as_of_ms: int, use: IndexUse, report_problem: ReportProblem
) -> list[OffsetsLife]:
    """Read the lives that had begun by a time, the then current one last. Unreadable parts are reported. `facts`: of all topics."""
    folds = Folds.of(archive, report_problem)
    topics = find_offsets_lives(archive, use, report_problem)
    surveys = _surveys(facts)
    lives = []
    for topic in topics:
        root = topic.life if topic.fact is None else topic.fact.root(topic.life)
        numbers = sorted({*topic.partitions, *topic.damaged, *folds.partitions_of(topic)})
        read = partial(read_log, archive.store, topic, until_ms=as_of_ms, report_problem=report_problem, folds=folds)
        lives.append(
            OffsetsLife(
                topic=topic,
                logs=list(side_by_side(_READS_AT_ONCE, read, numbers, "offsets")),
                seen=surveys.get(root) if root else None,
                next_seen=next((survey for life, survey in surveys.items() if life > root), None),
            )
        )
    first, *others = lives
    return [first, *(one for one in others if one.had_begun(as_of_ms))]


def _surveys(facts: Collection[TopicFact]) -> dict[int, SurveyTimes | None]:
    """Return the survey that first saw each life of the offsets topic, by life; None: not noted."""
    all_ms = {life.seen_ms for fact in facts for life in fact.lives if life.seen_ms is not None}
    lives = [life for fact in facts if fact.topic == OFFSETS_TOPIC for life in fact.lives if life.parent is None]
    return {life.life: None if life.seen_ms is None else SurveyTimes.at(life.seen_ms, all_ms) for life in lives}


def earlier_positions(
    lives: Sequence[OffsetsLife], roots: Roots, told: Sequence[ArchivedPosition]
) -> list[ArchivedPosition]:
    """Return the positions at the end of earlier lives, except positions that a later life also has."""
    found: list[ArchivedPosition] = []
    known = {_place(one) for one in told}
    for life in reversed(lives):
        these = [one for one in life.ended_positions(roots) if _place(one) not in known]
        known |= {_place(one) for one in these}
        found += these
    return found


def _place(one: ArchivedPosition) -> tuple[str, str, int, int]:
    return one.group, one.topic, one.partition, one.life
