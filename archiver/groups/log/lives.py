"""Finds the life of a topic that a position belongs to, if several topics have had the name one after the other.

A topic exists without interruption between any two times at which it is known to have existed. Brokers remove all positions
in a deleted topic: while a position exists, the topic is the same. So a span of existing positions belongs to a life if it
has a moment at or after a known time of that life, and another one at or before a known time. A topic that no backup has
seen may have existed between two seen topics: positions in between are not assigned. The first seen topic counts as the
first one, and the last seen topic as the last one.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from archiver.archive.notes.topics import TopicFact

NOT_ARCHIVED: Final = -1
AMBIGUOUS: Final = -2
CLOCKS_DIFFER_MS: Final = 60_000  # clock skew between brokers and backups
# Brokers learn of a deletion one after the other: so long after it, positions of the deleted topic may still exist.
UNDER_WAY_MS: Final = 60_000


class Root(NamedTuple):
    """One of the topics that have had a name: the life without a parent, its topic id, and two times when it existed."""

    life: int
    topic_id: str
    seen_ms: int | None  # when a backup first saw it
    alive_ms: int | None = None  # by its archived records; counts only if it is later


Roots = Mapping[str, Sequence[Root]]  # of each archived topic


class PositionSpan(NamedTuple):
    """A time during which positions in a topic existed without interruption. None: an unknown bound."""

    from_ms: int | None
    until_ms: int | None
    of_root: int | None = None  # the number of its root, if commits name it; NO_ROOT: none or several


NO_ROOT: Final = -1


def roots_of(fact: TopicFact, alive_ms: Mapping[int, int] | None = None) -> list[Root]:
    """List the topics that have had a name, in order. `alive_ms`: by root, the last time when it is known to have existed."""
    roots = [life for life in fact.lives if life.parent is None]
    known = dict(alive_ms or {})
    for life, later in pairwise(roots):
        if later.earlier_seen_ms is not None:
            known[life.life] = max(later.earlier_seen_ms, known.get(life.life, later.earlier_seen_ms))
    return [Root(life.life, life.topic_id, life.seen_ms, known.get(life.life)) for life in roots]


def life_at(roots: Sequence[Root], from_ms: int, until_ms: int) -> int:
    """Return the life of a position that existed at some moment between two times."""
    if len(roots) < 2:
        return roots[0].life if roots else NOT_ARCHIVED
    span = PositionSpan(from_ms=until_ms, until_ms=from_ms)  # it began before `until_ms`, and ended after `from_ms`
    return lives_of(roots, [span])[0]


def lives_of(roots: Sequence[Root], stretches: Sequence[PositionSpan]) -> list[int]:
    """Return the life of each span of one partition of the offsets topic, in the order of the log; or AMBIGUOUS."""
    bounds = [_bounds(len(roots), _evidence(roots), stretch) for stretch in stretches]
    lowest, highest = 0, len(roots) - 1
    lowests, highests = [], []
    for low, high in bounds:  # lives follow each other in the order of the spans
        lowest = max(lowest, low) if low <= high else lowest
        lowests.append(lowest if low <= high else low)
    for low, high in reversed(bounds):
        highest = min(highest, high) if low <= high else highest
        highests.append(highest if low <= high else high)
    return [
        roots[low].life if low == high else AMBIGUOUS for low, high in zip(lowests, reversed(highests), strict=True)
    ]


_Evidence = Sequence[tuple[int, int, int]]  # the number of a root, and two times between which it existed


def _evidence(roots: Sequence[Root]) -> _Evidence:
    """List the known times of roots; none if they contradict the order of roots."""
    # Records may be older than their topic: their times count only after the time at which a backup saw it.
    found = [
        (number, root.seen_ms, max(root.seen_ms, root.alive_ms or 0))
        for number, root in enumerate(roots)
        if root.seen_ms is not None
    ]
    is_in_order = all(before[2] < after[1] for before, after in pairwise(found))
    return found if is_in_order else []


def _bounds(count: int, evidence: _Evidence, stretch: PositionSpan) -> tuple[int, int]:
    """Return the numbers of the first and the last possible root of a span; the first is higher: none is possible."""
    if stretch.of_root is not None:
        return (stretch.of_root, stretch.of_root) if stretch.of_root != NO_ROOT else (count, NO_ROOT)
    lowest, highest = 0, count - 1
    for number, from_ms, until_ms in evidence:
        if stretch.until_ms is not None and stretch.until_ms - CLOCKS_DIFFER_MS - UNDER_WAY_MS > from_ms:
            lowest = number
        if stretch.from_ms is not None and stretch.from_ms + CLOCKS_DIFFER_MS < until_ms:
            highest = min(highest, number)
    return lowest, highest
