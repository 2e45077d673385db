"""Computes the positions of consumer groups as of a time from the archive alone: the last commit of each position, and its state.

1. Each partition of `__consumer_offsets` is read, and reduced to relevant rows (archiver.groups.log.commit_log).
2. Each row gets the life of its topic (archiver.groups.positions.row_lives). The rows up to the time form episodes.
3. For each position, in each life, the last episode counts. A removed position may have ended with its topic
   (archiver.groups.positions.removal_causes); otherwise it no longer exists.
4. If a later commit or removal may be missing, the position is unknown.
5. If a commit in a transaction may not have counted yet, the position is ambiguous (archiver.groups.positions.uncertain_positions).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from archiver.codec.frame import Longs
from archiver.codec.selection import LAST_LONG
from archiver.groups.log.archived_log import OffsetsLog
from archiver.groups.log.commit_log import Flags
from archiver.groups.log.lives import AMBIGUOUS, Roots
from archiver.groups.log.position_rows import NO_ROW
from archiver.groups.positions.archived_position import UNKNOWN_MS, ArchivedPosition, Cause, PositionSource, State
from archiver.groups.positions.episodes import Episodes
from archiver.groups.positions.log_as_of import LogAsOf, known_from_ms
from archiver.groups.positions.removal_causes import (
    Signs,
    TopicLife,
    cause_of,
    group_removals,
    removals_of,
    signs_of_all,
)
from archiver.groups.positions.uncertain_positions import missed_positions, with_pending


def positions_as_of(logs: Sequence[OffsetsLog], roots: Roots) -> Iterator[ArchivedPosition]:
    """Yield all positions as of a time. `roots`: of archived topics. They are made one by one, since there may be a million."""
    told = [LogAsOf.of(log, roots) for log in logs]
    signs = signs_of_all((one.signs for one in told), roots)
    found = [_Found.of(one, signs) for one in told]
    ended = {which for one in found for which in one.ended_topics()}
    for one in found:
        log = chain(one.positions(ended), missed_positions(one.told, roots))
        yield from with_pending(one.told, log)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """The newest episode of each position and life, in the order of the log."""

    place: Longs  # the episode
    life: Longs
    is_split: Flags  # the episode began in this life and continued in another one: records between them are missing

    @classmethod
    def of(cls, told: LogAsOf) -> "_Entries":
        some = told.episodes
        lives = told.life_of(some.row)
        split = np.flatnonzero((some.first != NO_ROW) & (told.life_of(some.first) != lives))
        place = np.concatenate([np.arange(len(some)), split])
        life = np.concatenate([lives, told.life_of(some.first[split])])
        is_split = np.arange(len(place)) >= len(some)
        # A split entry sorts before the end of its episode, and behind all earlier episodes.
        order = np.lexsort((~is_split, place, life, some.key[place]))
        same = (np.diff(some.key[place[order]]) == 0) & (np.diff(life[order]) == 0)
        newest = order[np.append(~same, True)] if len(order) else order
        newest = newest[np.argsort(place[newest], kind="stable")]
        return cls(place=place[newest], life=life[newest], is_split=is_split[newest])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The state of each entry."""

    told: LogAsOf
    entries: _Entries
    is_lone: Flags  # a removal without a commit
    is_ended: Flags  # removed with its topic
    is_unknown: Flags
    is_stale: Flags  # a commit may be missing between the last known one and the removal
    is_ambiguous: Flags
    known_from_ms: Longs

    @classmethod
    def of(cls, told: LogAsOf, signs: Mapping[TopicLife, Signs]) -> "_Found":
        some, entries = told.episodes, _Entries.of(told)
        place = entries.place
        is_ended, is_unsure = removals_of(
            told.signs, signs, some.row[place], some.removed_at[place], some.removed_ms[place]
        )
        is_ambiguous = _is_ambiguous(some, entries) | is_unsure
        is_lost = _is_value_lost(told, entries, some.removed_at[place])
        is_unknown, reach = _unknown(told, entries, is_lost & (is_ended | is_ambiguous))
        return cls(
            told=told,
            entries=entries,
            is_lone=some.at_offset[place] == NO_ROW,
            is_ended=is_ended,
            is_unknown=is_unknown,
            # A later commit may be missing completely, even its removal.
            is_stale=is_lost | _is_value_lost(told, entries, np.full(len(place), told.log.cut)),
            is_ambiguous=is_ambiguous,
            known_from_ms=known_from_ms(told, some.key[place], reach, entries.life),
        )

    def ended_topics(self) -> set[TopicLife]:
        """Return the topics and lives that removed a committed position when they ended."""
        places = np.flatnonzero(self.is_ended & ~self.is_lone)
        topics = self.told.episodes.topic
        pairs = np.stack([topics.numbers[self.entries.place[places]], self.entries.life[places]])
        return {(topics.texts[topic], life) for topic, life in np.unique(pairs, axis=1).T.tolist()}

    def positions(self, ended: Collection[TopicLife]) -> Iterator[ArchivedPosition]:
        removed_groups = group_removals(self.told.log)
        known_from_ms = self.known_from_ms.tolist()
        for number, known in enumerate(_positions(self.told, self.entries)):
            state = self._state(number, known, ended)
            if state is State.SET:
                yield known
                continue
            cause, groups = Cause.NONE, removed_groups.get(known.group, ())
            if known.removed_at != NO_ROW:
                cause = cause_of(known.removed_ms, known.at_ms, groups, with_topic=bool(self.is_ended[number]))
            yield known._replace(
                state=state,
                known_from_ms=known_from_ms[number] if state is State.UNKNOWN else UNKNOWN_MS,
                cause=cause,
                is_stale=bool(self.is_stale[number]),
            )

    def _state(self, number: int, known: ArchivedPosition, ended: Collection[TopicLife]) -> State:
        if self.is_unknown[number]:
            return State.UNKNOWN
        if self.is_lone[number]:  # in a deleted topic, the value would be needed for a restore
            if self.is_ended[number] and (known.topic, known.life) in ended:
                return State.UNKNOWN
            # The position was removed, whatever its value; but a later commit may belong to the same life.
            return State.AMBIGUOUS if self.is_ambiguous[number] and known.life != AMBIGUOUS else State.REMOVED
        if self.is_ambiguous[number]:
            return State.AMBIGUOUS
        if self.is_ended[number]:
            return State.TOPIC_DELETED
        return State.SET if known.removed_at == NO_ROW else State.REMOVED


def _is_ambiguous(some: Episodes, entries: _Entries) -> Flags:
    """Return for each entry whether it may belong to another life, or a later commit to its life."""
    unsure = entries.place[entries.life == AMBIGUOUS]
    latest = np.full(int(some.key.max(initial=-1)) + 1, NO_ROW)
    np.maximum.at(latest, some.key[unsure], unsure)
    found: Flags = entries.place <= latest[some.key[entries.place]]
    return found


def _is_value_lost(told: LogAsOf, entries: _Entries, until: Longs) -> Flags:
    """Return for each removed entry whether another commit below an offset may follow the known one."""
    some, place = told.episodes, entries.place
    at, is_removed = some.at_offset[place], some.removed_at[place] != NO_ROW
    before = told.log.doubts.reach(np.where(is_removed, until, at), np.ones(len(place), bool))
    is_untimed = (some.at_ms[place] < 0) & (told.log.rows.until_ms != LAST_LONG)
    found: Flags = is_removed & ((before > at) | ~some.is_readable[place] | is_untimed)
    return found


def _unknown(told: LogAsOf, entries: _Entries, is_value_lost: Flags) -> tuple[Flags, Longs]:
    """Return the unknown entries, and the last offset of their possibly missing records. `is_value_lost`: a needed value may be lost."""
    some, place, log = told.episodes, entries.place, told.log
    at, removed_at = some.at_offset[place], some.removed_at[place]
    last_known, is_removed = np.maximum(at, removed_at), removed_at != NO_ROW
    until = np.minimum(log.cut, _ends_of_lives(told)[told.signs.numbers[some.row[place]]])
    until = np.where(entries.life >= 0, until, log.cut)
    # The last row of each key may be after the time.
    last_offset = told.rows.offset[np.searchsorted(told.rows.key, some.key[place], side="right") - 1]
    reach = log.missing_from(last_known, until, last_offset > last_known)
    is_lost = entries.is_split | (is_value_lost & (at != NO_ROW))
    is_unread = (~some.is_readable[place] & ~is_removed) | _is_without_time(told)[place]
    found = is_lost | is_unread | (reach > last_known)
    return found, np.where(is_lost, LAST_LONG, np.maximum(reach, last_known))


def _ends_of_lives(told: LogAsOf) -> Longs:
    """Return for each life of a topic the first offset that certainly belongs to a later life."""
    signs = told.signs
    found = np.full(len(signs.topic_lives), LAST_LONG)
    behind: dict[str, int] = {}
    for number in sorted(range(len(found)), key=lambda one: -signs.topic_lives[one][1]):
        topic, life = signs.topic_lives[number]
        found[number] = behind.get(topic, LAST_LONG)
        if life >= 0:
            behind[topic] = min(int(signs.first_offset[number]), behind.get(topic, LAST_LONG))
    return found


def _is_without_time(told: LogAsOf) -> Flags:
    """Return for each episode whether its last row may be after the time: neither it nor a later one has a time."""
    rows, some = told.rows, told.episodes
    if told.log.rows.until_ms == LAST_LONG:
        return np.zeros(len(some), bool)
    timed = np.flatnonzero(~rows.is_later & (rows.ms >= 0))
    latest = np.full(int(some.key.max(initial=-1)) + 1, NO_ROW)
    np.maximum.at(latest, rows.key[timed], rows.offset[timed])
    found: Flags = np.maximum(some.at_offset, some.removed_at) > latest[some.key]
    return found


def _positions(told: LogAsOf, entries: _Entries) -> Iterator[ArchivedPosition]:
    """Make the positions as if all were set."""
    some, place, fold_next = told.episodes, entries.place, told.log.fold_next
    groups, topics, metadata = (
        [texts.texts[number] for number in texts.numbers[place].tolist()]
        for texts in (some.group, some.topic, some.metadata)
    )
    columns = (
        some.partition, some.offset, some.leader_epoch, some.commit_ms, some.at_offset, some.removed_ms, some.at_ms,
        some.removed_at,
    )  # fmt: skip
    numbers = zip(entries.life.tolist(), *(column[place].tolist() for column in columns), strict=True)
    for group, topic, text, found in zip(groups, topics, metadata, numbers, strict=True):
        life, partition, offset, leader_epoch, commit_ms, at_offset, removed_ms, at_ms, removed_at = found
        yield ArchivedPosition(
            group=group,
            topic=topic,
            life=life,
            partition=partition,
            state=State.SET,
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=text,
            commit_ms=commit_ms,
            at_offset=at_offset,
            removed_ms=removed_ms,
            at_ms=at_ms,
            removed_at=removed_at,
            source=PositionSource.FOLD if NO_ROW < at_offset < fold_next else PositionSource.LOG,
        )
