"""Schedules the next copy of a partition, and the instance that may act. All times are the store's, so processes agree."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from archiver.archive.copies.roles import CompleteCopy, Generation, RoleEntry
from archiver.backup.compacted.turn.turn_decisions import Dues

FIRST_TAKEOVER_MS: Final = 600_000
_MOST_DOUBLED: Final = 6  # a failed attempt is retried after a turn, after two more, four more, up to 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTimes:
    """Length of a turn, and longest silence of an instance. `stagger_ms`: the delay of this partition's turns."""

    length_ms: int
    takeover_ms: int
    stagger_ms: int = 0


def turn_stagger_ms(topic: str, partition: int, length_ms: int) -> int:
    """Return the constant delay of a partition's turns: up to a tenth of a turn."""
    return share_of(topic, partition, length_ms // 10)


def share_of(topic: str, partition: int, whole: int) -> int:
    """Return a part of a whole, constant for a partition: it spreads the regular work of partitions over time."""
    share = int.from_bytes(hashlib.sha256(f"{topic}/{partition}".encode()).digest()[:4], "big")
    return whole * share >> 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTimes:
    """The state in storage besides the newest entry."""

    now_ms: int
    first_seen_ms: int  # the first request for a copy of this partition, before any entry
    put_ms: Mapping[int, int]  # entry -> its put time
    heard_ms: Mapping[Generation, int]  # the last note of a process that works on a generation
    damaged_since_ms: int | None = None  # time since which this process knows the damage of the current copy


def judge(
    entry: RoleEntry | None, stored: StoredTimes, times: TurnTimes, instances: Collection[str], *, begins_first: bool
) -> Dues:
    """Return the clock's decisions. `instances`: others are ignored."""
    due_ms = turn_due_ms(entry, stored, times, instances)
    patience_ms = times.takeover_ms
    if entry is None:
        patience_ms = min(patience_ms, FIRST_TAKEOVER_MS)
    candidate = entry.open_candidate if entry else None
    return Dues(
        is_turn_due=due_ms is not None and stored.now_ms >= due_ms,
        is_overdue=due_ms is not None and stored.now_ms >= due_ms + patience_ms,
        is_candidate_heard=candidate is not None and _is_heard(candidate, stored, times, instances),
        may_try_again=entry is not None and candidate is not None and _may_try_again(entry, candidate, stored, times),
        begins_first=begins_first,
    )


def _may_try_again(entry: RoleEntry, candidate: Generation, stored: StoredTimes, times: TurnTimes) -> bool:
    """Return whether to give up a candidate that cannot become current. Each one since the switch doubles the pause.

    If the current copy was found damaged after the candidate's begin, at once: readers lack more than deletions.
    """
    since = -1 if entry.switched is None else entry.switched
    in_vain = sum(1 for one in entry.left if one.since > since)
    begun_ms = stored.put_ms.get(candidate.number, stored.first_seen_ms)
    if stored.damaged_since_ms is not None and begun_ms < stored.damaged_since_ms:
        return True
    return stored.now_ms >= begun_ms + (times.length_ms << min(in_vain, _MOST_DOUBLED))


def turn_due_ms(
    entry: RoleEntry | None, stored: StoredTimes, times: TurnTimes, instances: Collection[str]
) -> int | None:
    """Return the time from which a next generation is due; None: not by the clock."""
    if entry is None:
        return stored.first_seen_ms
    switched_ms = stored.put_ms.get(entry.switched or 0, stored.first_seen_ms)
    if not isinstance(entry.holder, CompleteCopy):
        return switched_ms
    dues_ms = [switched_ms + times.length_ms + times.stagger_ms]
    heard_ms = _last_heard_ms(entry.holder.generation, stored)
    if entry.holder.generation.instance not in instances:
        dues_ms.append(switched_ms)
    elif stored.now_ms - heard_ms > times.takeover_ms:
        dues_ms.append(heard_ms + times.takeover_ms)
    if stored.damaged_since_ms is not None:
        dues_ms.append(stored.damaged_since_ms)
    if entry.broke is not None and (entry.candidate is None or entry.candidate.number < entry.broke):
        dues_ms.append(
            stored.put_ms.get(entry.broke, stored.now_ms)
        )  # one attempt at once; another when the turn is over
    return min(dues_ms)


def _is_heard(generation: Generation, stored: StoredTimes, times: TurnTimes, instances: Collection[str]) -> bool:
    is_silent = stored.now_ms - _last_heard_ms(generation, stored) > times.takeover_ms
    return generation.instance in instances and not is_silent


def _last_heard_ms(generation: Generation, stored: StoredTimes) -> int:
    """Return the time of the last note about a generation, at least of its begin."""
    return max(stored.heard_ms.get(generation, 0), stored.put_ms.get(generation.number, 0))
