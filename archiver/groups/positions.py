"""Where consumer groups stood as of a time, by the archive alone: of each position the last commit, and what became of it.

1. Each partition of `__consumer_offsets` is read, and reduced to episodes (archiver.groups.episodes).
2. Each episode is given the life of its topic (archiver.groups.lives).
3. Of each position, in each life, the last episode counts. One that was removed ended with its topic, if no group has
   committed to that life since; else it is no position any more.
4. Where a commit may be missing behind the one that is known, the position is unknown.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from archiver.codec.frame import Longs
from archiver.codec.selection import LAST_LONG
from archiver.groups.archived_log import ArchivedLog
from archiver.groups.archived_position import ArchivedPosition, Source, State
from archiver.groups.episodes import NO_ROW, Episodes, episodes_of
from archiver.groups.lives import AMBIGUOUS, NOT_ARCHIVED, CommitSpan, Root, lives_of

Flags = npt.NDArray[np.bool_]

# Brokers hear of a deletion one after the other: commits of so short a time behind it were under way.
_UNDER_WAY_MS: Final = 60_000


class _Told(NamedTuple):
    """The episodes of one partition of the offsets topic up to the time, those after it, and the lives of both."""

    log: ArchivedLog
    episodes: Episodes
    lives: Longs
    later: Episodes
    later_lives: Longs


class _LastCommit(NamedTuple):
    """Of all groups to one life of a topic, in one partition of the offsets topic."""

    at_offset: int
    at_ms: int


_STANDS: Final = _LastCommit(LAST_LONG, LAST_LONG)
LastCommits = Mapping[tuple[str, int], Mapping[int, _LastCommit]]  # (topic, life) -> partition of the offsets topic


@dataclass(frozen=True, slots=True)
class PositionsAsOf:
    """All positions of a time. They are made one by one: there may be a million of them."""

    logs: Sequence[ArchivedLog]
    roots: Mapping[str, Sequence[Root]]  # of archived topics

    def __iter__(self) -> Iterator[ArchivedPosition]:
        told = [_tell(log, self.roots) for log in self.logs]
        last_commits = _last_commits(told)
        for one in told:
            yield from _positions(one, last_commits)


def _tell(log: ArchivedLog, roots: Mapping[str, Sequence[Root]]) -> _Told:
    episodes, later = episodes_of(log.rows), episodes_of(log.rows, later=True)
    lives, later_lives = _lives(episodes, later, roots, is_filled_in=log.is_filled_in)
    return _Told(log, episodes, lives, later, later_lives)


def _lives(
    episodes: Episodes, later: Episodes, roots: Mapping[str, Sequence[Root]], *, is_filled_in: bool
) -> tuple[Longs, Longs]:
    """Return the life of each episode; of topics that had one life alone, without looking at the log."""
    both = [np.full(len(one), NOT_ARCHIVED, np.int64) for one in (episodes, later)]
    names = set(episodes.topic.texts) | set(later.topic.texts)
    for name in names.intersection(roots):
        places = [_rows_of(one, name) for one in (episodes, later)]
        spans = [span for one, rows in zip((episodes, later), places, strict=True) for span in _spans(one, rows)]
        found = np.array(lives_of(roots[name], spans), np.int64)
        if is_filled_in and len(roots[name]) > 1:  # then only a topic id tells
            found = np.where([bool(span.topic_id) for span in spans], found, AMBIGUOUS)
        both[0][places[0]], both[1][places[1]] = found[: len(places[0])], found[len(places[0]) :]
    return both[0], both[1]


def _rows_of(episodes: Episodes, topic: str) -> Longs:
    if topic not in episodes.topic.texts:
        return np.empty(0, np.int64)
    found: Longs = np.flatnonzero(episodes.topic.numbers == episodes.topic.texts.index(topic))
    return found


def _spans(episodes: Episodes, rows: Longs) -> Iterable[CommitSpan]:
    ids, numbers = episodes.topic_id.texts, episodes.topic_id.numbers[rows].tolist()
    columns = (episodes.at_offset, episodes.at_ms, episodes.ends_at, episodes.ends_ms)
    spans = zip(*(column[rows].tolist() for column in columns), strict=True)
    for (at_offset, at_ms, removed_at, removed_ms), number in zip(spans, numbers, strict=True):
        yield CommitSpan(at_offset, at_ms, removed_at, removed_ms, ids[number])


def _last_commits(told: Iterable[_Told]) -> LastCommits:
    found: dict[tuple[str, int], dict[int, _LastCommit]] = defaultdict(dict)
    for one in told:
        for episodes, lives in ((one.episodes, one.lives), (one.later, one.later_lives)):
            keys = np.stack([episodes.topic.numbers, lives])
            for topic, life in np.unique(keys, axis=1).T.tolist():
                rows = np.flatnonzero((episodes.topic.numbers == topic) & (lives == life))
                at = _LastCommit(int(episodes.at_offset[rows].max()), int(episodes.at_ms[rows].max()))
                if episodes is one.episodes and (episodes.removed_at[rows] == NO_ROW).any():
                    at = _STANDS  # so its topic was not deleted
                of_life = found[episodes.topic.texts[topic], life]
                of_life[one.log.partition] = max(at, of_life.get(one.log.partition, at))
    return found


def _positions(told: _Told, last_commits: LastCommits) -> Iterator[ArchivedPosition]:
    episodes, log = told.episodes, told.log
    rows = _newest_of_each(episodes, told.lives)
    some, lives = episodes.only(rows), told.lives[rows]
    ended_with_topic = [
        _ended_with_topic(log.partition, *row, last_commits)
        for row in zip(
            [some.topic.texts[number] for number in some.topic.numbers.tolist()],
            lives.tolist(),
            some.removed_at.tolist(),
            some.removed_ms.tolist(),
            strict=True,
        )
    ]
    is_ended = np.array(ended_with_topic, bool)
    until = np.where(is_ended, some.removed_at, log.cut)
    has_later = is_ended | np.isin(some.key, told.later.key)
    last_known = np.where(is_ended, some.at_offset, np.maximum(some.at_offset, some.removed_at))
    is_unknown = (log.doubts.reach(until, has_later) > last_known) | ~some.is_readable
    is_ambiguous = _is_ambiguous(some, lives)
    for place in range(len(some)):
        state = _state(some, place, is_ambiguous, is_ended, is_unknown)
        yield _position(some, place, int(lives[place]), state, log.fold_next)
    yield from _without_commit(told)


def _newest_of_each(episodes: Episodes, lives: Longs) -> Longs:
    """Return the last episode of each position in each life, in the order of the log."""
    of_key = enumerate(zip(episodes.key.tolist(), lives.tolist(), strict=True))
    newest = {key: place for place, key in of_key}  # of several the last one stays
    return np.array(sorted(newest.values()), np.int64)


def _is_ambiguous(some: Episodes, lives: Longs) -> Flags:
    """Tell of each position whether it may be of another life, or whether a later commit may be of its life."""
    unsure = dict(zip(some.key[lives == AMBIGUOUS].tolist(), some.at_offset[lives == AMBIGUOUS].tolist(), strict=True))
    latest = np.array([unsure.get(key, NO_ROW) for key in some.key.tolist()], np.int64)
    found: Flags = some.at_offset <= latest
    return found


def _ended_with_topic(
    partition: int, topic: str, life: int, removed_at: int, removed_ms: int, last_commits: LastCommits
) -> bool:
    if removed_at == NO_ROW or life == AMBIGUOUS:
        return False
    return not any(
        last.at_offset > removed_at if number == partition else last.at_ms > removed_ms + _UNDER_WAY_MS
        for number, last in last_commits[topic, life].items()
    )


def _state(some: Episodes, place: int, is_ambiguous: Flags, is_ended: Flags, is_unknown: Flags) -> State:
    if is_unknown[place]:
        return State.UNKNOWN
    if is_ambiguous[place]:
        return State.AMBIGUOUS
    if is_ended[place]:
        return State.TOPIC_DELETED
    return State.SET if some.removed_at[place] == NO_ROW else State.REMOVED


def _position(episodes: Episodes, place: int, life: int, state: State, fold_next: int = 0) -> ArchivedPosition:
    return ArchivedPosition(
        group=episodes.group.texts[episodes.group.numbers[place]],
        topic=episodes.topic.texts[episodes.topic.numbers[place]],
        life=life,
        partition=int(episodes.partition[place]),
        state=state,
        offset=int(episodes.offset[place]),
        leader_epoch=int(episodes.leader_epoch[place]),
        metadata=episodes.metadata.texts[episodes.metadata.numbers[place]],
        commit_ms=int(episodes.commit_ms[place]),
        at_offset=int(episodes.at_offset[place]),
        removed_ms=int(episodes.removed_ms[place]),
        at_ms=int(episodes.at_ms[place]),
        source=Source.FOLD if episodes.at_offset[place] < fold_next else Source.LOG,
    )


def _without_commit(told: _Told) -> Iterator[ArchivedPosition]:
    """Positions that are committed later, and may have been before."""
    later = told.later
    places = np.flatnonzero(~np.isin(later.key, told.episodes.key))
    first = np.unique(later.key[places], return_index=True)[1] if len(places) else places
    chosen = places[first]
    reach = told.log.doubts.reach(np.full(len(chosen), told.log.cut), np.ones(len(chosen), bool))
    for place in chosen[reach >= 0].tolist():
        known = _position(later, place, int(told.later_lives[place]), State.UNKNOWN)
        yield known._replace(offset=-1, leader_epoch=-1, metadata="", commit_ms=-1, at_offset=-1, removed_ms=NO_ROW)
