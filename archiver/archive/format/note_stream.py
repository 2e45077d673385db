"""Reads, lists and updates one kind of note under `control/`, with one message for a damaged note (docs/format.md §8). All note modules use it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple

from archiver.archive.format.control import (
    Fact,
    append_fact,
    decode_facts,
    latest_fact,
    list_numbers,
    newest_listed,
    read_history,
)
from archiver.archive.format.fact_model import FactModel, Value
from archiver.archive.format.handle import Archive
from archiver.errors import CorruptSegmentError
from archiver.process.values.json_values import LARGEST


class NoteKind(Generic[Value]):
    """Notes of one model. `noun` and `remedy` are for the report of a damaged note: its kind, and the advice to the user.

    `stream_of` returns the stream of a note; None: its content does not name it.
    """

    def __init__(
        self, model: type[Value], noun: str, remedy: str, stream_of: Callable[[Value], str] | None = None
    ) -> None:
        self.model = FactModel(model)
        self._noun = noun
        self._remedy = remedy
        self._stream_of = stream_of

    def at(self, archive: Archive, stream: str) -> "NoteStream[Value]":
        return NoteStream(archive, stream, self)

    def read_all(self, archive: Archive, parent: str, until_ms: int = LARGEST) -> dict[str, Value]:
        """Read the newest note of each stream below a parent, or the newest that was put by a time. Raises NotWholeError."""
        return decode_facts(
            archive,
            newest_listed(archive, parent, until_ms),
            lambda stream, fact: self.at(archive, stream).decode(fact),
        )

    def decode(self, fact: Fact, archive: Archive, stream: str, number: int | None = None) -> Value:
        """Return the value of a note; `number`: None for the newest. Raises CorruptSegmentError, also for a note of another stream."""

        def refusal(why: str) -> CorruptSegmentError:
            layout = archive.layout
            place = layout.control_prefix(stream) if number is None else layout.fact_key(stream, number)
            return CorruptSegmentError(f"{place}: invalid note of {self._noun}: {why}; {self._remedy}")

        value = self.model.read(fact, refusal)
        if self._stream_of is not None and self._stream_of(value) != stream:
            raise refusal("it names something else than its key")
        return value

    def encode(self, value: Value, before: Fact | None = None) -> Fact:
        """Return the note of a value. Keep members of the previous note that this model does not know."""
        unknown = {name: one for name, one in (before or {}).items() if name not in self.model.names}
        return {**unknown, **self.model.write(value)}


class Noted(NamedTuple, Generic[Value]):
    """A note: its number, its put time by the store's clock, and its content."""

    number: int
    put_ms: int
    value: Value


@dataclass(frozen=True, slots=True)
class NoteStream(Generic[Value]):
    """The notes of one stream; the newest counts."""

    archive: Archive
    stream: str
    kind: NoteKind[Value]

    def read(self) -> Value | None:
        """Return the newest note; None: the stream has none. Raises NotWholeError."""
        latest = latest_fact(self.archive, self.stream)
        return None if latest is None else self.decode(latest)

    def history(self) -> Iterator[Noted[Value]]:
        """Yield all notes, the oldest first. Raises NotWholeError."""
        for number, put_ms, fact in read_history(self.archive, self.stream):
            yield Noted(number, put_ms, self.decode(fact, number))

    def update(self, change: Callable[[Value | None], Value | None]) -> Value | None:
        """Put the result of `change` on the newest note. Returns the note that counts afterwards.

        Puts nothing if `change` returns None or the newest note. `change` is called again if another writer was faster, or if the
        answer to our own put was lost. In the latter case it gets our own note, and must return None or the same note.
        """

        def decide(latest: Fact | None) -> Fact | None:
            before = None if latest is None else self.decode(latest)
            after = change(before)
            return None if after is None or after == before else self.kind.encode(after, latest)

        held = append_fact(self.archive, self.stream, decide)
        return None if held is None else self.decode(held)

    def keys_of_old(self, kept: int) -> list[str]:
        """Return the keys of all notes but the newest `kept` ones."""
        numbers = list_numbers(self.archive, self.stream)[:-kept]
        return [self.archive.layout.fact_key(self.stream, number) for number in numbers]

    def decode(self, fact: Fact, number: int | None = None) -> Value:
        return self.kind.decode(fact, self.archive, self.stream, number)
