"""Which of a topic's lives a commit belongs to, where several topics have had the name one after the other.

Brokers remove all positions in a topic when it is deleted. So, in the log of one partition of `__consumer_offsets`, a
deletion lies where the last position in the topic is removed. A group that is deleted looks the same; when the archive first
saw a life narrows down which it was. What cannot be told is not guessed.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from archiver.archive.topics import TopicFact

NOT_ARCHIVED: Final = -1
AMBIGUOUS: Final = -2
_CLOCKS_DIFFER_MS: Final = 60_000  # those of brokers, and of whoever saw the topic


class Root(NamedTuple):
    """One of the topics that have had a name: the life without a parent, its topic id, and when it was first seen."""

    life: int
    topic_id: str
    seen_ms: int | None


class CommitSpan(NamedTuple):
    """A position from a commit on, until it was removed; NEVER when it was not."""

    at_offset: int
    at_ms: int
    removed_at: int
    removed_ms: int
    topic_id: str


NEVER: Final = -1


def roots_of(fact: TopicFact) -> list[Root]:
    return [Root(life.life, life.topic_id, life.seen_ms) for life in fact.lives if life.parent is None]


def lives_of(roots: Sequence[Root], spans: Sequence[CommitSpan]) -> list[int]:
    """Return the life of each commit to a topic, from one partition's log; or NOT_ARCHIVED, or AMBIGUOUS."""
    by_id = {root.topic_id: root.life for root in roots if root.topic_id}
    boundaries = list(_boundaries(roots, list(_deletions(spans))))
    return [
        by_id.get(span.topic_id, NOT_ARCHIVED) if span.topic_id else _life_between(roots, boundaries, span)
        for span in spans
    ]


class _Boundary(NamedTuple):
    """Between two topics: after an offset or a time it is surely the later one, before one the earlier."""

    surely_before_offset: int
    surely_after_offset: int
    surely_before_ms: float
    surely_after_ms: float


def _life_between(roots: Sequence[Root], boundaries: Sequence[_Boundary], span: CommitSpan) -> int:
    lowest, highest = 0, len(roots) - 1
    for number, boundary in enumerate(boundaries, start=1):
        if span.at_offset > boundary.surely_after_offset or span.at_ms > boundary.surely_after_ms:
            lowest = max(lowest, number)
        if span.at_offset < boundary.surely_before_offset or span.at_ms < boundary.surely_before_ms:
            highest = min(highest, number - 1)
    return roots[lowest].life if lowest == highest else AMBIGUOUS


def _boundaries(roots: Sequence[Root], deletions: Sequence[tuple[int, int]]) -> Iterator[_Boundary]:
    """Place each deletion between two topics: by where it can lie, when the one before was seen and the one behind it."""
    everywhere = float("inf")
    for number, (before, after) in enumerate(pairwise(roots), start=1):
        earliest_ms = -everywhere if before.seen_ms is None else before.seen_ms - _CLOCKS_DIFFER_MS
        latest_ms = everywhere if after.seen_ms is None else after.seen_ms + _CLOCKS_DIFFER_MS
        possible = [offset for offset, at_ms in deletions if earliest_ms <= at_ms <= latest_ms]
        if before.seen_ms is None and after.seen_ms is None and len(deletions) == len(roots) - 1:
            possible = possible[number - 1 : number]  # as many deletions as topics have ended
        yield _Boundary(
            surely_before_offset=min(possible, default=-1),
            surely_after_offset=max(possible) if possible else 2**63 - 1,
            surely_before_ms=earliest_ms,
            surely_after_ms=latest_ms,
        )


def _deletions(spans: Sequence[CommitSpan]) -> Iterator[tuple[int, int]]:
    """Find where the last position in a topic was removed: (offset, time) of that removal."""
    events = sorted(
        [(span.at_offset, 1, 0) for span in spans]
        + [(span.removed_at, -1, span.removed_ms) for span in spans if span.removed_at != NEVER]
    )
    standing = 0
    for offset, change, at_ms in events:
        standing += change
        if standing == 0:
            yield offset, at_ms


Lives = Mapping[str, Sequence[Root]]  # of each archived topic
