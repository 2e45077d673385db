"""Restored lives of topics in which nobody has a position: where they were deleted before the newest snapshot, an earlier one tells."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from archiver.archive.control import newest_numbers
from archiver.archive.handle import Archive
from archiver.archive.topics import TopicFact, list_newest_topic_facts, read_topic_facts
from archiver.config.model import IndexUse
from archiver.config.quantities import spell_time
from archiver.groups.archived_position import ArchivedPosition
from archiver.groups.lives import AMBIGUOUS, roots_of
from archiver.groups.lost_positions import find_lost_positions
from archiver.groups.shown import PositionFilter, show_groups
from archiver.groups.snapshots import STREAM

_ANY: Final = re.compile(".*", re.DOTALL)
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
    """Add the last positions in restored lives in which nobody stands."""
    facts = _facts_of(archive, {topic for topic, _ in restored if asked.topics.fullmatch(topic)})
    lives = {(topic, facts[topic].root(life)) for topic, life in restored if topic in facts}
    silent = _without_word(lives, positions)
    if not silent or not newest_numbers(archive, STREAM):
        return positions
    named = re.compile("|".join(sorted(re.escape(topic) for topic, _ in silent)))
    silent = _without_word(silent, _read_all(archive, replace(asked, groups=_ANY, topics=named), use))
    roots = {topic: roots_of(facts[topic]) for topic, _ in silent}
    lost = find_lost_positions(archive, silent, roots, asked.as_of_ms, report_problem)
    for topic, at_ms in sorted(lost.out_of_reach.items()):
        report_problem(
            f"groups stood in {topic} at {spell_time(at_ms)}, and stand there no more as of then; so many snapshots of positions were"
            " taken since that not all were looked through. Find the time when the topic was deleted, and give one before it:"
            " `archiver groups apply --as-of TIME`"
        )
    return [*positions, *filter(asked.wants, lost.positions)]


def _read_all(archive: Archive, asked: PositionFilter, use: IndexUse) -> Positions:
    """Read positions of all groups. What cannot be read was told when those of the wanted groups were read."""
    return [one.position for one in show_groups(archive, asked, use, lambda _: None).positions]


def _without_word(lives: Iterable[tuple[str, int]], positions: Iterable[ArchivedPosition]) -> set[tuple[str, int]]:
    """Leave out lives of which a position tells anything, or may do."""
    told = {(one.topic, one.life) for one in positions}
    return {one for one in lives if one not in told and (one[0], AMBIGUOUS) not in told}


def _facts_of(archive: Archive, topics: Collection[str]) -> dict[str, TopicFact]:
    """Read what the archive knows of topics. One that cannot be read was told of already."""
    known = list_newest_topic_facts(archive)
    found = read_topic_facts(archive, {name: known[name] for name in known if name in topics})
    return {name: fact for name, fact in found.items() if isinstance(fact, TopicFact)}
