"""Adds the last positions in restored topics that were deleted before the newest snapshot. Used by group_restore."""

from collections.abc import Callable, Collection, Iterable, Sequence

from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import TopicFact, read_newest_topic_facts
from archiver.config.model import IndexUse
from archiver.config.quantities import spell_time
from archiver.groups.log.lives import AMBIGUOUS
from archiver.groups.positions.archived_position import ArchivedPosition, PositionSource, State
from archiver.groups.positions.lost_positions import find_lost_positions
from archiver.groups.positions.shown import PositionFilter, read_all_groups, read_roots
from archiver.groups.positions.snapshots import has_snapshots

Lives = Collection[tuple[str, int]]  # a topic, and a life of it
Positions = Sequence[ArchivedPosition]


def with_lost_positions(
    archive: Archive,
    asked: PositionFilter,
    use: IndexUse,
    positions: Positions,
    restored: Lives,
    report_problem: Callable[[str], None],
) -> Positions:
    """Add the last positions in restored lives without a present position."""
    facts = _facts_of(archive, {topic for topic, _ in restored if asked.topics.fullmatch(topic)})
    lives = {(topic, facts[topic].root(life)) for topic, life in restored if topic in facts}
    silent = _without_word(lives, positions)
    if not silent or not has_snapshots(archive):
        return positions
    silent = _without_word(silent, read_all_groups(archive, asked, {topic for topic, _ in silent}, use))
    roots = read_roots(archive, {topic: facts[topic] for topic, _ in silent}, use)
    lost, out_of_reach = find_lost_positions(archive, silent, roots, asked.as_of_ms, report_problem)
    for topic, at_ms in sorted(out_of_reach.items()):
        report_problem(
            f"groups stood in {topic} at {spell_time(at_ms)}, and stand there no more as of then; so many snapshots of positions were"
            " taken since that not all were looked through. Find the time when the topic was deleted, and give one before it:"
            " `archiver groups apply --as-of TIME`"
        )
    found = {_place(one): one for one in filter(asked.wants, lost)}
    return [*(one for one in positions if _is_word(one) or _place(one) not in found), *found.values()]


def _place(one: ArchivedPosition) -> tuple[str, str, int, int]:
    return one.group, one.topic, one.partition, one.life


def _without_word(lives: Iterable[tuple[str, int]], positions: Iterable[ArchivedPosition]) -> set[tuple[str, int]]:
    """Leave out lives with a position, or a possible one."""
    told = {(one.topic, one.life) for one in positions if _is_word(one)}
    return {one for one in lives if one not in told and (one[0], AMBIGUOUS) not in told}


def _is_word(one: ArchivedPosition) -> bool:
    """Return whether a position counts. One that a snapshot lacks does not: earlier snapshots may show its last value."""
    return not (one.state is State.REMOVED and one.source is PositionSource.SNAPSHOT)


def _facts_of(archive: Archive, topics: Collection[str]) -> dict[str, TopicFact]:
    """Read the notes of topics. Unreadable ones were reported already."""
    found = read_newest_topic_facts(archive, topics.__contains__)
    return {name: fact for name, fact in found.items() if isinstance(fact, TopicFact)}
