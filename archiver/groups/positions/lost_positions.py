"""Finds the last positions in topics that the newest snapshot no longer has: their topic may have been deleted before it.

Brokers remove all positions in a deleted topic. As in the log (archiver.groups.positions.removal_causes), the last positions in a life of a
topic count as its final ones: the positions in the last snapshot that has any. If the topic is known to have existed after the
next snapshot, they ended by themselves, and none counts. Groups lose their positions within a minute, one after the other. So
positions only in the last but one of these snapshots also count, if the next one followed at once, and no group committed between.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.codec.selection import LAST_LONG
from archiver.groups.log.lives import AMBIGUOUS, CLOCKS_DIFFER_MS, UNDER_WAY_MS, Root, life_at
from archiver.groups.positions.archived_position import ArchivedPosition, Cause, State
from archiver.groups.positions.snapshots import ReportProblem, Snapshot, SnapshotReader, archived_position

# The most snapshots to read: at one a minute, those of a day and a half.
_MOST_READ: Final = 2_000
_MOST_DAYS: Final = 400
# The time between two snapshots, at one a minute, while the positions in a topic are being removed.
_AT_ONCE_MS: Final = UNDER_WAY_MS + 60_000
_Place = tuple[str, int]  # group, partition


def find_lost_positions(
    archive: Archive,
    lives: Collection[tuple[str, int]],
    roots: Mapping[str, list[Root]],
    until_ms: int,
    report_problem: ReportProblem,
) -> tuple[list[ArchivedPosition], dict[str, int]]:
    """Find the last positions in lives of topics, given by topic and root, that have no position in the newest snapshot.

    Also returns the topics whose positions are so early that not all later snapshots were read, with a time of such positions.
    """
    searches = [_Search(topic=topic, root=root, roots=roots.get(topic, [])) for topic, root in sorted(lives)]
    oldest_ms, count = until_ms, 0
    topics = {topic for topic, _ in lives}
    for snapshot in islice(SnapshotReader(archive, until_ms, report_problem, topics).newest_first(), _MOST_READ):
        oldest_ms, count = snapshot.time_ms, count + 1
        for one in searches:
            one.take(snapshot)
        if all(one.is_done for one in searches):
            break
    without = [one for one in searches if not (one.is_done or one.last)]
    out_of_reach: dict[str, int] = {}
    if without and count == _MOST_READ:
        for snapshot in islice(SnapshotReader(archive, oldest_ms, report_problem).newest_of_days(), _MOST_DAYS):
            for one in without:
                if one.topic not in out_of_reach and one.positions_in(snapshot):
                    out_of_reach[one.topic] = snapshot.time_ms
    return [position for one in searches for position in one.found()], out_of_reach


@dataclass(slots=True, kw_only=True)
class _Search:
    """Searches snapshots, from the newest on, for the last positions in a life of a topic."""

    topic: str
    root: int
    roots: list[Root]
    is_done: bool = False
    _none_ms: int = LAST_LONG  # the time of the oldest snapshot of all groups behind the last with positions
    _unseen: set[str] = field(default_factory=set)  # groups missing in the snapshot right behind that
    _last_ms: int = LAST_LONG  # the time of the last snapshot with positions
    last: dict[_Place, ArchivedPosition] = field(default_factory=dict)
    _before: dict[_Place, ArchivedPosition] | None = None  # positions in the previous snapshot; None: not read yet
    _untold: set[str] = field(default_factory=set)  # groups missing in these snapshots
    _unsure: dict[_Place, ArchivedPosition] = field(default_factory=dict)

    def take(self, snapshot: Snapshot) -> None:
        if self.is_done:
            return
        here = self.positions_in(snapshot)
        if not self.last:
            self._begin(snapshot, here)
            return
        unsure = {place: one for place, one in here.items() if place[0] in self._untold}
        self._unsure |= {place: one._replace(state=State.UNKNOWN) for place, one in unsure.items()}
        if self._before is None:
            self._before = {place: one for place, one in here.items() if place[0] not in self._untold}
            self._untold |= {*snapshot.missing} - snapshot.groups.keys() - {group for group, _ in self.last}
        self._untold -= snapshot.groups.keys()
        self._untold &= {*snapshot.missing}  # missing in both: the group did not exist then
        self.is_done = not self._untold

    def _begin(self, snapshot: Snapshot, here: dict[_Place, ArchivedPosition]) -> None:
        missing = {*snapshot.missing} - snapshot.groups.keys()
        if not here:
            self._none_ms, self._unseen = self._none_ms if missing else snapshot.time_ms, missing
        self.is_done = self._was_there_without()
        if here and not self.is_done:
            # A group missing in the next snapshot may have committed meanwhile.
            unseen = {
                place: one._replace(state=State.UNKNOWN) for place, one in here.items() if place[0] in self._unseen
            }
            self._last_ms, self.last, self._untold = snapshot.time_ms, here | unseen, missing

    def _was_there_without(self) -> bool:
        """Return whether the topic existed after the removal of its last position: then its deletion removed none."""
        until_ms = self._none_ms + CLOCKS_DIFFER_MS
        return any(root.life == self.root and (root.alive_ms or 0) > until_ms for root in self.roots)

    def positions_in(self, snapshot: Snapshot) -> dict[_Place, ArchivedPosition]:
        """Return all positions in the topic, if they may belong to this life of it."""
        life = life_at(self.roots, snapshot.time_ms, snapshot.time_ms + snapshot.duration_ms)
        if life not in {self.root, AMBIGUOUS}:
            return {}
        found: dict[_Place, ArchivedPosition] = {}
        for group, topics in snapshot.groups.items():
            for partition, held in topics.get(self.topic, {}).items():
                one = archived_position(group, self.topic, partition, life, held, snapshot.time_ms, State.TOPIC_DELETED)
                found[group, partition] = one._replace(cause=Cause.UNKNOWN)
        return found

    def found(self) -> list[ArchivedPosition]:
        """Return the positions of the life, by group and partition."""
        before = self._before or {}
        stood = self._none_ms - self._last_ms <= _AT_ONCE_MS and all(
            place in before and _is_same(before[place], one) for place, one in self.last.items()
        )
        went = {place: one for place, one in before.items() if place not in self.last}
        if not stood:
            went = {place: one._replace(state=State.UNKNOWN) for place, one in went.items()}
        found = {**self._unsure, **went, **self.last}
        return [found[place] for place in sorted(found)]


def _is_same(one: ArchivedPosition, other: ArchivedPosition) -> bool:
    return one[:4] == other[:4] and one[5:8] == other[5:8]
