"""Derives alarms about compacted topics from their status: one line each. Used by `status` and by metrics."""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from archiver.archive.copies.roles import CompleteCopy, Generation, RolePlace
from archiver.backup.compacted.clearing.status import CompactedStatus, PartitionStatus
from archiver.config.quantities import spell_time
from archiver.process.output.progress import spell_seconds


class AlarmKind(StrEnum):
    """The kind of an alarm, as a label for metrics."""

    UNREADABLE = "unreadable"  # a role log, or a note of an instance, cannot be read
    NO_ROLE = "no-role"  # no instance has begun a copy
    NO_COPY = "no-copy"  # no copy is complete
    UNSURE = "unsure"  # the current copy may have values that were deleted
    UNATTAINABLE = "unattainable"  # reading takes longer than tombstones are kept
    UNHEARD = "unheard"  # an instance is silent
    OVERDUE = "overdue"  # the turn is over, but no process makes the next copy
    DAMAGED = "damaged"  # the current copy has a gap, or an unreadable object
    IN_QUESTION = "in-question"  # the log contradicts the current copy, or it is damaged: no copy is cleared


class Alarm(NamedTuple):
    """One alarm; `place` None: it concerns an instance, or a note without a partition."""

    kind: AlarmKind
    place: RolePlace | None
    text: str


def alarms_in(status: CompactedStatus) -> Iterator[Alarm]:
    """Yield the alarms of a partition. Of an ended life only damage is reported."""
    for problem in status.problems:
        yield Alarm(AlarmKind.UNREADABLE, None, problem)
    yield from _unheard(status)
    for place in status.missing:
        text = f"{name_of(place)}: is compacted, and no instance has begun a copy of it; run both instances"
        yield Alarm(AlarmKind.NO_ROLE, place, text)
    for one in status.partitions:
        for kind, text in _alarms_of(status, one):
            yield Alarm(kind, one.place, f"{name_of(one.place)}: {text}")


def _unheard(status: CompactedStatus) -> Iterator[Alarm]:
    for instance, heard_ms in status.heard_ms.items() if status.partitions else ():
        if heard_ms is None:
            yield Alarm(AlarmKind.UNHEARD, None, f"instance {instance}: was never heard of; run it")
        elif status.now_ms - heard_ms > status.takeover_ms:
            silence = spell_seconds((status.now_ms - heard_ms) / 1000)
            yield Alarm(AlarmKind.UNHEARD, None, f"instance {instance}: unheard of for {silence}; run it")


def _alarms_of(status: CompactedStatus, one: PartitionStatus) -> Iterator[tuple[AlarmKind, str]]:
    if one.problem:
        yield AlarmKind.UNREADABLE, one.problem
    for text in one.damage:
        yield AlarmKind.DAMAGED, text + ("; the next copy is due at once" if one.is_live else "")
    for text in one.alarms:
        yield AlarmKind.IN_QUESTION, f"no copy of it is cleared: {text}"
    if one.is_live and not one.problem:
        yield from _copy_alarms(status, one)
        yield from _turn_alarms(status, one)


def _copy_alarms(status: CompactedStatus, one: PartitionStatus) -> Iterator[tuple[AlarmKind, str]]:
    holder = one.holder
    if one.doubt:
        yield AlarmKind.UNSURE, one.doubt.removeprefix(f"{one.place.topic}-{one.place.partition}: ")
    if not isinstance(holder, CompleteCopy):
        if one.candidate is not None:
            what = "what lies under topics/ is read" if holder else "nothing can be read"
            yield AlarmKind.NO_COPY, f"no copy is complete yet, and {what}"
    elif not holder.is_sure:
        since = "" if one.unsure_ms is None else f" since {spell_time(one.unsure_ms)}"
        yield AlarmKind.UNSURE, f"{generation_name(holder.generation)} may hold values that were deleted{since}"
        if one.since_ms is not None and one.begun_ms is not None:
            yield from _unattainable(one, holder.generation, one.since_ms - one.begun_ms, "took")
    if one.candidate is not None and one.candidate_ms is not None:
        yield from _unattainable(one, one.candidate, status.now_ms - one.candidate_ms, "takes")


def _unattainable(
    one: PartitionStatus, generation: Generation, reading_ms: int, verb: str
) -> Iterator[tuple[AlarmKind, str]]:
    """Report a generation that was read for longer than Kafka keeps tombstones, and lags by as much."""
    seen = next((found for found in one.generations if found.generation == generation), None)
    is_fresh = seen is not None and seen.moment_ms is not None
    is_slow = one.limit_ms is not None and reading_ms >= one.limit_ms
    if one.kept_ms is not None and is_slow and not (is_fresh and verb == "takes"):
        reading, kept = spell_seconds(reading_ms / 1000), spell_seconds(one.kept_ms / 1000)
        slow = f"reading {verb} {reading}, delete.retention.ms is {kept}"
        text = f"{generation_name(generation)} cannot become sure, unattainable: {slow}; read faster, or raise delete.retention.ms"
        yield AlarmKind.UNATTAINABLE, text


def _turn_alarms(status: CompactedStatus, one: PartitionStatus) -> Iterator[tuple[AlarmKind, str]]:
    """Report an overdue turn: no candidate, or a candidate without a working process."""
    if one.candidate is not None and one.candidate_ms is not None:
        heard = [found.heard_ms for found in one.generations if found.generation == one.candidate]
        last_ms = max([one.candidate_ms, *(moment for moment in heard if moment is not None)])
        if status.now_ms - last_ms > status.takeover_ms:
            silence = spell_seconds((status.now_ms - last_ms) / 1000)
            yield AlarmKind.OVERDUE, f"no instance has worked on {generation_name(one.candidate)} for {silence}"
    elif isinstance(one.holder, CompleteCopy) and one.due_ms is not None:
        late_ms = status.now_ms - one.due_ms
        if late_ms > status.takeover_ms:
            yield (
                AlarmKind.OVERDUE,
                f"the next copy is due since {spell_time(one.due_ms)}, and no instance has begun it",
            )


def name_of(place: RolePlace) -> str:
    life = f"@{place.life}" if place.life else ""
    return f"{place.topic}{life}-{place.partition}"


def generation_name(generation: Generation) -> str:
    return f"generation {generation.number} of {generation.instance}"
