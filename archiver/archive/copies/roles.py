"""Reads and writes the role log of a compacted partition: numbered facts with the current copy, and the instance that makes the next one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, Strict

from archiver.archive.format.control import Fact, encode_bounded, key_behind, read_fact
from archiver.archive.format.fact_model import BoundedText, FactModel, Item, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_OFFSET, CopyKey, is_instance, is_topic_name
from archiver.archive.format.store_clock import epoch_ms
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.store.port import ObjectKind

ROLES: Final = "roles"
HISTORY: Final = "topics/"
MOST_LEFT = 1_000  # generations that could not be cleared

_Offset = Annotated[int, Strict(), Field(ge=0, le=MOST_OFFSET)]


class EntryType(StrEnum):
    BEGIN = "begin"
    SWITCH = "switch"
    UNSURE = "unsure"
    HISTORY = "history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One copy of a log from its beginning: its instance, and the number of the entry that began it."""

    instance: BoundedText
    number: Number

    @classmethod
    def of_copy(cls, copy: CopyKey) -> "Generation":
        return cls(instance=copy.instance, number=copy.generation)

    def __str__(self) -> str:
        return f"{self.instance}/{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCopy:
    """A generation that had the whole log. Its objects end at `next`; from there to `position` the log held no record."""

    generation: Generation
    next: _Offset
    position: _Offset
    is_sure: Annotated[bool, Strict()]  # no: it may hold values whose tombstones expired before they were read

    def __post_init__(self) -> None:
        if self.position < self.next:
            raise ValueError(f"a copy that was read to {self.position} has objects up to {self.next}")


Holder = CompleteCopy | Literal["topics/"] | None


def name_of_holder(whose: Holder) -> str:
    return str(whose.generation) if isinstance(whose, CompleteCopy) else HISTORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A generation that is no longer read: since the entry `since`, neither the holder nor the newest candidate."""

    generation: Generation
    since: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEntry:
    """An entry of a role log. It has the whole state, so only the newest entry counts."""

    type: EntryType
    instance: BoundedText  # the writer
    holder: Holder  # the current copy: an instance's, the history under `topics/`, or none
    switched: Number | None  # the entry that made it the holder
    broke: Number | None  # the entry that called this copy unsure
    replaced: Holder  # the replaced copy: its records are read behind the holder's end
    candidate: Generation | None  # the newest generation that was begun
    left: Annotated[tuple[Item[Left], ...], Field(max_length=MOST_LEFT)]  # other generations that may still exist

    @property
    def copy(self) -> CompleteCopy | None:
        """The holder, if it is a copy."""
        return self.holder if isinstance(self.holder, CompleteCopy) else None

    @property
    def current(self) -> Generation | None:
        """The generation of the holder, if that is a copy."""
        return self.holder.generation if isinstance(self.holder, CompleteCopy) else None

    @property
    def open_candidate(self) -> Generation | None:
        """The newest generation, unless it has become the holder."""
        return None if self.candidate == self.current else self.candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePlace:
    """The partition of a role log, in one life."""

    topic: str
    life: int
    partition: int

    def __post_init__(self) -> None:
        if not is_topic_name(self.topic) or min(self.life, self.partition) < 0:
            raise ValueError(f"not a partition: {self}")

    @classmethod
    def of_copy(cls, copy: CopyKey) -> "RolePlace":
        return cls(topic=copy.topic, life=copy.life, partition=copy.partition)

    def copy_key(self, generation: Generation) -> CopyKey:
        return CopyKey(
            instance=generation.instance,
            topic=self.topic,
            life=self.life,
            partition=self.partition,
            generation=generation.number,
        )

    @property
    def stream(self) -> str:
        return f"{ROLES}/{self.topic}/{self.life}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLog:
    """The state of a role log when it was read: its newest entry, or why that is unreadable, and the put times of all."""

    place: RolePlace
    number: int  # of the newest entry
    told: RoleEntry | NotWholeError
    put_at: Mapping[int, datetime]  # of each entry, by the store's clock

    @property
    def entry(self) -> RoleEntry:
        """The newest entry. Raises NotWholeError."""
        if isinstance(self.told, NotWholeError):
            raise self.told
        return self.told

    def put_ms(self, number: int) -> int:
        """Return the put time of an entry; of the next entry if it is missing, since it was put no later."""
        return epoch_ms(self.put_at[min(one for one in self.put_at if one >= min(number, self.number))])


_ENTRY: Final = FactModel(RoleEntry)


def read_newest_entry(archive: Archive, place: RolePlace, known: RoleLog | None = None) -> RoleLog | None:
    """List a role log, and read its newest entry, unless that is known. None for an empty log. Raises NotWholeError."""
    put_at = dict(_listed(archive, place))
    if not put_at:
        return None
    number = max(put_at)
    is_known = known is not None and known.number == number and known.put_at[number] == put_at[number]
    entry = known.entry if known is not None and is_known else read_entry(archive, place, number)
    return RoleLog(place=place, number=number, told=entry, put_at=put_at)


def read_entry(archive: Archive, place: RolePlace, number: int) -> RoleEntry:
    """Read a listed entry. Raises NotWholeError."""
    return _entry_of(read_fact(archive, place.stream, number), archive, place, number)


def put_entry(archive: Archive, place: RolePlace, number: int, entry: RoleEntry) -> None:
    """Put an entry, unless its number is taken. Only a later listing shows whether it counts: see `read_newest_entry`."""
    key = key_behind(archive.layout, place.stream, number - 1)
    content = encode_bounded(_fact_of(entry, place), place.stream, key)
    archive.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT)


def _listed(archive: Archive, place: RolePlace) -> Iterator[tuple[int, datetime]]:
    for item in archive.store.list(archive.layout.control_prefix(place.stream)):
        number = archive.layout.parse_fact(place.stream, item.key)
        if number is not None:
            yield number, item.last_modified


def _fact_of(entry: RoleEntry, place: RolePlace) -> Fact:
    return {**_ENTRY.write(entry), "topic": place.topic, "life": place.life, "partition": place.partition}


def _entry_of(fact: Fact, archive: Archive, place: RolePlace, number: int) -> RoleEntry:
    """Read an entry. Refuse it if it names another partition than its key, or a later entry."""

    def refusal(why: str) -> CorruptSegmentError:
        key = archive.layout.fact_key(place.stream, number)
        return CorruptSegmentError(f"{key}: does not tell which copy is read: {why}; bring its older version back")

    if (fact.get("topic"), fact.get("life"), fact.get("partition")) != (place.topic, place.life, place.partition):
        raise refusal("it speaks of another partition than its key")
    entry = _ENTRY.read(fact, refusal)
    problem = _contradiction(entry, number)
    if problem:
        raise refusal(problem)
    return entry


def _contradiction(entry: RoleEntry, number: int) -> str:
    copies = [copy for copy in (entry.holder, entry.replaced) if isinstance(copy, CompleteCopy)]
    generations = [copy.generation for copy in copies] + [one.generation for one in entry.left]
    generations += [entry.candidate] if entry.candidate else []
    numbers = [generation.number for generation in generations] + [one.since for one in entry.left]
    numbers += [one for one in (entry.switched, entry.broke) if one is not None]
    wrong = [generation.instance for generation in generations if not is_instance(generation.instance)]
    if wrong:
        return f"{wrong[0]!r} is not the name of an instance"
    if max(numbers, default=0) > number:
        return f"it names entry {max(numbers)}, and is itself entry {number}"
    if (entry.holder is None) != (entry.switched is None):
        return "it does not tell since when the holder holds"
    if entry.type is EntryType.BEGIN and (entry.candidate is None or entry.candidate.number != number):
        return "it begins another generation than its number"
    return ""
