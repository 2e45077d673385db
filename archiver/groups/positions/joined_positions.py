"""Joins positions from `__consumer_offsets` and from snapshots: for each position, the later source holds.

A snapshot is later only if the archived log ends before it, or lacks the group's partition of the offsets topic. If the log
ends later, its result holds, even if it is "unknown". Within one minute of clock skew both sources must agree; otherwise the
position is unknown. If a later snapshot has a group without one of its positions, this position has ended. If it lacks the
whole group, the position is unknown, since the snapshot's user may not see the group. If the log is known to lack records of
before the time, only a later snapshot counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from archiver.groups.log.archived_until import ArchivedUntil
from archiver.groups.log.lives import AMBIGUOUS, CLOCKS_DIFFER_MS, Roots, life_at
from archiver.groups.log.position_rows import NO_ROW
from archiver.groups.positions.archived_position import UNKNOWN_MS, ArchivedPosition, Cause, PositionSource, State
from archiver.groups.positions.snapshots import GroupSnapshot, Snapshots, archived_position

Place = tuple[str, str, int]  # group, topic, partition


def join_positions(
    by_log: Iterable[ArchivedPosition], snapshots: Snapshots, ends: ArchivedUntil, roots: Roots
) -> Iterator[ArchivedPosition]:
    """Yield all positions, by group, topic, partition and life."""
    logged: dict[Place, list[ArchivedPosition]] = defaultdict(list)
    for one in by_log:
        logged[one.group, one.topic, one.partition].append(one)
    joint = _Joint(snapshots=snapshots, ends=ends, roots=roots)
    for place in sorted(logged.keys() | joint.places()):
        yield from sorted(joint.join(place, logged.get(place, [])), key=lambda one: one.life)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joint:
    """The snapshots to join with a log, and its end."""

    snapshots: Snapshots
    ends: ArchivedUntil
    roots: Roots

    def places(self) -> set[Place]:
        return {
            (group, topic, partition)
            for group, told in chain(self.snapshots.groups.items(), self.snapshots.following.items())
            for topic, partitions in told.topics.items()
            for partition in partitions
        }

    def join(self, place: Place, logged: Sequence[ArchivedPosition]) -> Iterable[ArchivedPosition]:
        if self.snapshots.newest_ms is None:
            return map(_unknown, logged) if self.ends.lags_for(place[0]) else logged
        told = self.snapshots.groups.get(place[0])
        at_ms = self.snapshots.newest_ms if told is None else told.time_ms
        end_ms = self.ends.of(place[0])
        snapshot = None if told is None else self._position(place, told)
        if self.ends.lags_for(place[0]):
            if end_ms is None or end_ms >= at_ms:
                return map(_unknown, logged or ([] if snapshot is None else [snapshot]))
        elif end_ms is not None and end_ms + CLOCKS_DIFFER_MS >= at_ms:
            # The log covers the snapshot's time. If the log lacks the snapshot's position, a record is missing.
            if snapshot is not None and not logged:
                return [snapshot._replace(state=State.UNKNOWN)]
            asked_ms = at_ms + (0 if told is None else told.duration_ms)
            is_later = end_ms > asked_ms + CLOCKS_DIFFER_MS or (place[0] in self.snapshots.missing and told is None)
            return logged if is_later else _agreed(logged, snapshot)
        found = self._by_snapshot(place[0], logged, snapshot, at_ms)
        is_of_then = at_ms + (0 if told is None else told.duration_ms) >= self.snapshots.until_ms
        return found if is_of_then else self._before_next(place, [*found])

    def _by_snapshot(
        self, group: str, logged: Sequence[ArchivedPosition], snapshot: ArchivedPosition | None, at_ms: int
    ) -> Iterable[ArchivedPosition]:
        if snapshot is not None:
            return _replaced(logged, snapshot)
        if group in self.snapshots.groups:
            return [_ended(one, State.REMOVED, at_ms) for one in logged]
        if group in self.snapshots.missing:
            return map(_unknown, logged) if self.ends.lags_for(group) else logged
        return [_ended(one, State.UNKNOWN, at_ms) for one in logged]

    def _before_next(self, place: Place, found: Sequence[ArchivedPosition]) -> Iterator[ArchivedPosition]:
        """Yield positions of a snapshot: ambiguous if the group's next snapshot differs, unknown if no later snapshot has the group."""
        if place[0] in self.snapshots.missing_behind:
            yield from (_unknown(one) if one.state is State.SET else one for one in found)
            return
        told = self.snapshots.following.get(place[0])
        later = None if told is None else self._position(place, told)
        is_new = later is not None and not any(one.life in {later.life, AMBIGUOUS} for one in found)
        for one in found:
            is_same_life = later is not None and one.state is State.SET and one.life == later.life
            yield _between(one, later) if later is not None and is_same_life else one
        if later is not None and is_new:
            yield _between(later._replace(offset=-1, leader_epoch=-1, metadata="", at_ms=UNKNOWN_MS), later)

    def _position(self, place: Place, told: GroupSnapshot) -> ArchivedPosition | None:
        group, topic, partition = place
        held = told.topics.get(topic, {}).get(partition)
        if held is None:
            return None
        life = life_at(self.roots.get(topic, ()), told.time_ms, told.time_ms + told.duration_ms)
        return archived_position(group, topic, partition, life, held, told.time_ms, State.SET)


def _between(one: ArchivedPosition, later: ArchivedPosition) -> ArchivedPosition:
    """Return the position; as ambiguous if the next snapshot has another offset."""
    if one.offset == later.offset:
        return one
    return one._replace(state=State.AMBIGUOUS, other_offset=later.offset, other_ms=later.at_ms)


def _unknown(one: ArchivedPosition) -> ArchivedPosition:
    return one._replace(state=State.UNKNOWN, known_from_ms=UNKNOWN_MS)


def _stands(one: ArchivedPosition) -> bool:
    return one.removed_at == NO_ROW


def _ended(one: ArchivedPosition, state: State, at_ms: int) -> ArchivedPosition:
    """Return a position as ended, since a later snapshot lacks it; an earlier removal is unchanged."""
    if not _stands(one):
        return one
    cause = Cause.UNKNOWN if state is State.REMOVED else Cause.NONE
    return one._replace(
        state=state, at_ms=at_ms, source=PositionSource.SNAPSHOT, cause=cause, known_from_ms=UNKNOWN_MS, is_stale=True
    )


def _agreed(logged: Sequence[ArchivedPosition], snapshot: ArchivedPosition | None) -> Iterator[ArchivedPosition]:
    """Keep the log's position if the snapshot agrees; otherwise it is unknown, since either source may be later."""
    is_told = any(one.state is State.SET and snapshot is not None and _is_same(one, snapshot) for one in logged)
    for one in logged:
        may_stand = _stands(one) or (snapshot is not None and snapshot.life in {one.life, AMBIGUOUS})
        is_doubted = one.state in {State.SET, State.REMOVED, State.TOPIC_DELETED} and may_stand and not is_told
        yield one._replace(state=State.UNKNOWN, known_from_ms=UNKNOWN_MS) if is_doubted else one
    if snapshot is not None and all(one.life != snapshot.life for one in logged):
        yield snapshot._replace(state=State.UNKNOWN)


def _replaced(logged: Sequence[ArchivedPosition], snapshot: ArchivedPosition) -> Iterator[ArchivedPosition]:
    """Replace the log's position by the position of a later snapshot."""
    same = [one for one in logged if one.state is State.SET and _is_same(one, snapshot)]
    yield from same or [snapshot]  # the log has more details of the same commit
    for one in logged:
        if one.life == snapshot.life:
            continue
        if not _stands(one):  # committed again if the snapshot may belong to its life
            is_unsure = snapshot.life == AMBIGUOUS and one.state is State.TOPIC_DELETED
            yield one._replace(state=State.AMBIGUOUS) if is_unsure else one
        elif AMBIGUOUS not in {one.life, snapshot.life}:  # its topic was deleted behind the end of the log
            yield _ended(one, State.UNKNOWN, snapshot.at_ms)


def _is_same(one: ArchivedPosition, snapshot: ArchivedPosition) -> bool:
    told = (snapshot.life, snapshot.offset, snapshot.leader_epoch, snapshot.metadata)
    return (one.life, one.offset, one.leader_epoch, one.metadata) == told
