"""Notes how far each process of an instance has read its generations: control facts that show that it works, and how fresh its copies are.

Each process has its own stream, `moments/<instance>/<process>` (docs/format.md §8). It puts a fact every `compacted.interval`.
A fact lists all generations that the process works on and replaces earlier facts, which the process deletes.
"""

import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Final, NamedTuple

from pydantic import Field, Strict

from archiver.archive.copies.roles import Generation, RolePlace
from archiver.archive.format.control import MOMENTS, decode_fact, encode_bounded, most_fact_bytes, read_with
from archiver.archive.format.fact_model import BoundedText, FactModel, Item, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import LAST_FACT_NUMBER, MOST_OFFSET, MOST_PARTITION, is_instance
from archiver.archive.format.store_clock import WHOLE_SECOND_MS, epoch_ms, from_epoch_ms
from archiver.errors import ArchiverError, CorruptSegmentError, NotWholeError
from archiver.process.running.workers import side_by_side
from archiver.store.port import ObjectKind

MOST_MOMENTS: Final = 100_000  # of one process: the limit of its partitions
FORGOTTEN_AFTER_MS: Final = 7 * 86_400_000
_PROCESS: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_PROCESS_BYTES: Final = 8
_MOST_PROCESSES: Final = 256  # to read of an instance: any writer to the prefix may put many
_READS_AT_ONCE: Final = 4  # a fact may have 64 MiB
_LOOKS: Final = 3  # a process puts facts, and deletes old ones, while they are read
# A moment is earlier than its note, but a store of several machines has several clocks.
_MOST_AHEAD_MS: Final = 60_000
_MOST_LATER_MS: Final = 300_000  # a note that was put so long after its own time is an old note, put again

_Small = Annotated[int, Strict(), Field(ge=0, le=MOST_PARTITION)]
ReportProblem = Callable[[str], None]
GenerationPlace = tuple[RolePlace, int]  # a generation, by its number, of a partition


class Moment(NamedTuple):
    """At `at_ms`, or later, the leader returned this last stable offset. All records below it were read in time and are in storage."""

    at_ms: int  # by the store's clock
    last_stable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentNote:
    """The progress of a process on one generation.

    `at_ms` None: no moment was reached in time. A process that continues the work of another one notes the other's moment,
    until it has reached its own.
    """

    topic: BoundedText
    life: _Small
    partition: _Small
    generation: Number
    at_ms: Number | None
    last_stable: Annotated[int, Strict(), Field(ge=0, le=MOST_OFFSET)] = 0

    def __post_init__(self) -> None:
        RolePlace(topic=self.topic, life=self.life, partition=self.partition)  # refuses an invalid partition

    @property
    def place(self) -> GenerationPlace:
        return RolePlace(topic=self.topic, life=self.life, partition=self.partition), self.generation

    @property
    def moment(self) -> Moment | None:
        return None if self.at_ms is None else Moment(self.at_ms, self.last_stable)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftNote(MomentNote):
    """The last progress on a generation that a process left at `left_ms`. Another process may continue it."""

    left_ms: Number  # by the store's clock


class HeardMoment(NamedTuple):
    """The state of a generation from all notes: its newest moment, and the last time a process worked on it, by the store's clock."""

    moment: Moment | None
    heard_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedLimits:
    """The settings by which a process schedules and clears copies."""

    length_ms: Number
    takeover_ms: Number
    margin_ms: Number | None  # None: a tenth of delete.retention.ms
    clear_delay_ms: Number
    keep_generations: Number


class HeardLimits(NamedTuple):
    """The limits of a process, and the time of its note by the store's clock."""

    heard_at: datetime
    limits: NotedLimits


class InstanceNotes(NamedTuple):
    """The newest notes of an instance's processes."""

    heard: dict[GenerationPlace, HeardMoment]
    heard_at: datetime | None  # the newest note of any of them, by the store's clock
    limits: HeardLimits | None  # of the process that noted limits last


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """A note of a process: the generations that it works on, and the ones that it has left.

    `noted_ms`: when it was made, by the store's clock; the first note of a process lacks it, since the clock is still unknown.
    """

    instance: BoundedText
    process: BoundedText
    moments: Annotated[tuple[Item[MomentNote], ...], Field(max_length=MOST_MOMENTS)]
    left: Annotated[tuple[Item[LeftNote], ...], Field(max_length=MOST_MOMENTS)] = ()
    noted_ms: Number | None = None
    limits: NotedLimits | None = None

    def __post_init__(self) -> None:
        if len({note.place for note in (*self.moments, *self.left)}) < len(self.moments) + len(self.left):
            raise ValueError("it tells of one generation twice")


class _ListedNote(NamedTuple):
    """A listed fact of a process. The highest number counts, so putting an old fact again changes nothing."""

    number: int
    last_modified: datetime


class _ToldAt(NamedTuple):
    """The contents of a process's note at a time."""

    at: datetime
    told: _Told | None  # None: it is unreadable or missing


_TOLD: Final = FactModel(_Told)


class NoteName(NamedTuple):
    """The place of a process's fact: the name of the process, and a number."""

    process: str
    number: int

    @property
    def following(self) -> "NoteName":
        """The place of the next fact. After the highest possible number, a process takes another name."""
        return self._replace(number=self.number + 1) if self.number < LAST_FACT_NUMBER else first_note()


def first_note() -> NoteName:
    """Draw the name of a process."""
    return NoteName(secrets.token_hex(_PROCESS_BYTES), 0)


def moment_stream(instance: str, process: str) -> str:
    if not is_instance(instance) or not _PROCESS.fullmatch(process):
        raise ValueError(f"not an instance and a process of it: {instance!r}, {process!r}")
    return f"{MOMENTS}/{instance}/{process}"


def put_moments(
    archive: Archive,
    instance: str,
    process: str,
    number: int,
    moments: Collection[MomentNote],
    left: Collection[LeftNote] = (),
    *,
    noted_ms: int | None = None,
    limits: NotedLimits | None = None,
) -> bool:
    """Put the note of a process. False: another object has this key, so nothing was put; retry with another number.

    `left`: the last notes on generations that it no longer works on, as many as fit. `noted_ms`: the time by the store's clock,
    once known. Raises ArchiverError for a note that readers would refuse.
    """
    stream = moment_stream(instance, process)
    key = archive.layout.fact_key(stream, number)
    notes = tuple(sorted(moments, key=_by_place))
    also = tuple(sorted(left, key=_by_place))[: max(0, MOST_MOMENTS - len(notes))]
    told = _Told(instance=instance, process=process, moments=notes, left=also, noted_ms=noted_ms, limits=limits)
    if len(notes) > MOST_MOMENTS:
        raise ArchiverError(
            f"{key}: would have {len(notes):,} partitions, and the limit is {MOST_MOMENTS:,}; run more processes of instance"
            f" {instance}"
        )
    absent = {"left": not also, "noted_ms": noted_ms is None, "limits": limits is None}
    fact = _TOLD.write(told, {name: True for name, is_absent in absent.items() if is_absent})
    content = encode_bounded(fact, stream, key)
    if archive.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT) is not None:
        return True
    try:
        found = archive.store.get(key, most_fact_bytes(stream))  # from an earlier try whose answer was lost?
    except CorruptSegmentError:
        return False
    return found is not None and found[0] == content


def _by_place(note: MomentNote) -> tuple[str, int, int, int]:
    return note.topic, note.life, note.partition, note.generation


def read_notes(archive: Archive, instance: str, report_problem: ReportProblem = lambda _: None) -> InstanceNotes:
    """Read the newest notes of an instance's processes. Unreadable notes are reported and ignored."""
    listed = {process: max(notes) for process, notes in _listed(archive, instance).items()}
    chosen = sorted(listed, key=lambda process: listed[process].last_modified, reverse=True)
    if len(chosen) > _MOST_PROCESSES:
        report_problem(
            f"{archive.layout.control_prefix(f'{MOMENTS}/{instance}')}: has notes of {len(chosen):,} processes; only the"
            f" {_MOST_PROCESSES} that told last are read. Find out who puts them"
        )

    def read(process: str) -> _ToldAt:
        try:
            return _read_newest(archive, instance, process, listed[process])
        except NotWholeError as error:
            report_problem(str(error))
            return _ToldAt(listed[process].last_modified, None)

    told = list(side_by_side(_READS_AT_ONCE, read, chosen[:_MOST_PROCESSES], "moments"))
    heard = sorted((_heard_at(one.told, one.at), number) for number, one in enumerate(told) if one.told is not None)
    limits = [
        HeardLimits(at, fact.limits)
        for at, number in heard
        if (fact := told[number].told) is not None and fact.limits is not None
    ]
    return InstanceNotes(_merge(told), heard[-1][0] if heard else None, limits[-1] if limits else None)


def heard_by_place(told: Mapping[str, InstanceNotes]) -> dict[RolePlace, dict[Generation, HeardMoment]]:
    """Sort the notes of all instances by partition."""
    found: dict[RolePlace, dict[Generation, HeardMoment]] = {}
    for instance, notes in told.items():
        for (place, number), moment in notes.heard.items():
            found.setdefault(place, {})[Generation(instance=instance, number=number)] = moment
    return found


def clear_old_moments(archive: Archive, instance: str, process: str, number: int, now_ms: int) -> None:
    """Delete the facts of a process, except the one with this number and its predecessor, and all facts of forgotten processes.

    Facts above that number come from other writers and are deleted too: they would replace the note of the process.
    `now_ms`: by the store's clock. Raises StoreError where the store refuses, which costs only space.
    """
    own = moment_stream(instance, process)
    forgotten_before_ms = now_ms - FORGOTTEN_AFTER_MS
    keys: list[str] = []
    for other, notes in _listed(archive, instance).items():
        stream = moment_stream(instance, other)
        if stream == own:
            keys += [
                archive.layout.fact_key(stream, note.number)
                for note in notes
                if note.number not in {number - 1, number}
            ]
        elif epoch_ms(max(note.last_modified for note in notes)) < forgotten_before_ms:
            keys += [archive.layout.fact_key(stream, note.number) for note in notes]
    archive.store.delete(sorted(keys))


def _listed(archive: Archive, instance: str, process: str = "") -> dict[str, list[_ListedNote]]:
    """List the facts of all processes of an instance, or of one of them."""
    if not is_instance(instance):
        raise ValueError(f"not the name of an instance: {instance!r}")
    prefix = archive.layout.control_prefix(f"{MOMENTS}/{instance}")
    found: dict[str, list[_ListedNote]] = {}
    for item in archive.store.list(f"{prefix}{process}"):
        name = item.key.removeprefix(prefix).partition("/")[0]
        is_process = _PROCESS.fullmatch(name) is not None
        number = archive.layout.parse_fact(moment_stream(instance, name), item.key) if is_process else None
        if number is not None:
            found.setdefault(name, []).append(_ListedNote(number, item.last_modified))
    return found


def _read_newest(archive: Archive, instance: str, process: str, newest: _ListedNote) -> _ToldAt:
    """Read the newest fact of a process; list again if the process has replaced and deleted it meanwhile."""
    stream = moment_stream(instance, process)
    for _ in range(_LOOKS):
        read = partial(_told_in, archive, stream, newest, instance, process)
        told = read_with(archive, stream, newest.number, read)
        if told is not None:
            return _ToldAt(newest.last_modified, told)
        notes = _listed(archive, instance, f"{process}/").get(process, [])
        if not notes:
            return _ToldAt(newest.last_modified, None)
        newest = max(notes)
    raise CorruptSegmentError(f"{archive.layout.control_prefix(stream)}: its facts are gone as soon as they are listed")


def _told_in(archive: Archive, stream: str, listed: _ListedNote, instance: str, process: str, content: bytes) -> _Told:
    """Read a fact. Refuse it if it names another process than its key, or a time after it was put."""
    key = archive.layout.fact_key(stream, listed.number)

    def refusal(why: str) -> CorruptSegmentError:
        return CorruptSegmentError(
            f"{key}: does not tell what a process has read: {why}; find out who put it, and delete it"
        )

    told = _TOLD.read(decode_fact(content, key, stream), refusal)
    if (told.instance, told.process) != (instance, process):
        raise refusal("it speaks of another process than its key")
    latest_ms = epoch_ms(listed.last_modified) + _MOST_AHEAD_MS
    if any(note.at_ms is not None and note.at_ms > latest_ms for note in (*told.moments, *told.left)):
        raise refusal("it tells of a moment after it was put")
    if told.noted_ms is not None and told.noted_ms > latest_ms:
        raise refusal("it was made after it was put")
    if any(note.left_ms > latest_ms for note in told.left):
        raise refusal("it has left something after it was put")
    return told


def _heard_at(told: _Told, put_at: datetime) -> datetime:
    """Return the last certain time of a process's work: the put of the fact, unless an old fact was put again."""
    is_old = told.noted_ms is not None and epoch_ms(put_at) - told.noted_ms > _MOST_LATER_MS
    return from_epoch_ms(told.noted_ms) if told.noted_ms is not None and is_old else put_at


def _merge(told: Iterable[_ToldAt]) -> dict[GenerationPlace, HeardMoment]:
    """Merge the notes of several processes on the same generations, as after a rebalance.

    Each moment is true by itself, so the newest counts, even if its note is older: a process may have slept. A note without a
    moment means that the reading was too slow until then, or has not begun: earlier moments no longer count.
    """
    heard: dict[GenerationPlace, HeardMoment] = {}
    none_until_ms: dict[GenerationPlace, int] = {}
    for one, fact in ((one, one.told) for one in told if one.told is not None):
        for note in (*fact.moments, *fact.left):
            place, moment = note.place, note.moment
            heard_at = from_epoch_ms(note.left_ms) if isinstance(note, LeftNote) else _heard_at(fact, one.at)
            before = heard.get(place, HeardMoment(None, heard_at))
            heard[place] = HeardMoment(
                max(filter(None, (before.moment, moment)), default=None), max(before.heard_at, heard_at)
            )
            if moment is None:
                until_ms = epoch_ms(one.at) + WHOLE_SECOND_MS
                none_until_ms[place] = max(none_until_ms.get(place, 0), until_ms)
    for place, until_ms in none_until_ms.items():
        moment = heard[place].moment
        if moment is not None and moment.at_ms < until_ms:
            heard[place] = heard[place]._replace(moment=None)
    return heard
