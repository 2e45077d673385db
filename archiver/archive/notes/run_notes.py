"""Notes of runs, for people and `archiver status`: the last runs of each kind, and how far a backup is (docs/format.md §8).

No position of a writer, no deletion and no restore depends on them.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from archiver import __version__
from archiver.archive.format.control import encode_bounded, key_behind, read_fact
from archiver.archive.format.fact_model import BoundedText, Item, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.note_stream import NoteKind
from archiver.archive.format.store_clock import epoch_ms
from archiver.errors import ArchiverError
from archiver.store.port import ObjectKind

RUNS: Final = "runs"
EVERY_S: Final = 60.0  # between two notes of a service
ONLY: Final = "all"  # the name in the notes of jobs: one runs at a time
MOST_NAMED: Final = 100
_MOST_TEXT: Final = 500  # of a problem
_MOST_NAMES: Final = 50  # of each kind: processes, or restores
Texts = Annotated[tuple[Item[BoundedText], ...], Field(max_length=MOST_NAMED)]


class RunKind(StrEnum):
    BACKUP = "backup"
    UNTIL_END = "until-end"
    COMPACTED = "compacted"
    RETENTION = "retention"
    VERIFY = "verify"
    RESTORE = "restore"
    DRILL = "drill"

    @property
    def is_service(self) -> bool:
        return self in {RunKind.BACKUP, RunKind.COMPACTED}


class Outcome(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """The state of a run. `name`: the process of a service, the id of a restore, else `ONLY`; times are the store's."""

    kind: RunKind
    name: BoundedText = ONLY
    outcome: Outcome
    version: BoundedText = __version__
    took_ms: Number = 0  # since the run began
    durable_through_ms: Number | None = None  # everything that Kafka had until then is archived; None: unknown
    partitions: Number | None = None  # of a service: the assigned ones; of `--until-end`: the archived ones; else None
    problems: Texts = ()
    limits: Annotated[Mapping[str, Item[BoundedText]], Field(max_length=MOST_NAMED)] = field(default_factory=dict)
    gone: Texts = ()  # topics that Kafka no longer has
    holds: Texts = ()  # in force, according to a sweep
    next_ms: Number | None = None  # when the next copy of a compacted topic is due


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A listed note of a run, with its put time by the store's clock."""

    kind: RunKind
    name: str
    outcome: Outcome
    number: int
    put_ms: int


def as_problems(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts as the problems of a note, each cut to its limit."""
    return tuple(one[:_MOST_TEXT] for one in texts)


def stream_of(run: RunNote | ListedRun) -> str:
    return f"{RUNS}/{run.kind}/{run.name}/{run.outcome}"


_KIND: Final = NoteKind(RunNote, "a run", "the next run puts another one; delete it", stream_of)


def list_runs(archive: Archive, kind: RunKind | None = None) -> list[ListedRun]:
    """List the notes of all runs, or of one kind, by one listing, the oldest first. Objects with other names are skipped."""
    parent = RUNS if kind is None else f"{RUNS}/{kind}"
    found = []
    for item in archive.store.list(archive.layout.control_prefix(parent)):
        stream, number = archive.layout.split_fact(item.key) or ("", 0)
        with suppress(ValueError):
            _, of, name, outcome = stream.split("/")
            put_ms = epoch_ms(item.last_modified)
            found.append(ListedRun(kind=RunKind(of), name=name, outcome=Outcome(outcome), number=number, put_ms=put_ms))
    return sorted(found, key=lambda one: (one.put_ms, one.outcome is not Outcome.RUNNING, one.number))


def read_run(archive: Archive, listed: ListedRun) -> RunNote:
    """Read a listed note. Raises NotWholeError."""
    stream = stream_of(listed)
    return _KIND.decode(read_fact(archive, stream, listed.number), archive, stream, listed.number)


def put_run_note(archive: Archive, note: RunNote) -> str:
    """Put a note behind the earlier ones of its stream, and delete old ones. Returns the problem; empty: none."""
    stream = stream_of(note)
    try:
        listed = list_runs(archive, note.kind)
        number = max((one.number for one in listed if stream_of(one) == stream), default=-1)
        key = key_behind(archive.layout, stream, number)
        content = encode_bounded(_KIND.encode(note), stream, key)
        if archive.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT) is None:
            return f"{key}: another run has put its note first; this run has no note"
    except (ArchiverError, ValueError) as error:
        return f"{error}; `archiver status` will not show this run"
    old = [one for one in listed if stream_of(one) == stream and one.number < number]
    surplus = [archive.layout.fact_key(stream_of(one), one.number) for one in [*old, *_of_silent(listed, note.name)]]
    try:
        archive.store.delete(surplus)
    except ArchiverError as error:
        return f"{error}; old notes of runs are not deleted"
    return ""


def _of_silent(listed: Sequence[ListedRun], own: str) -> list[ListedRun]:
    """Return the notes of names without a recent note, which are deleted; `own` is kept."""
    names = dict.fromkeys([own, *(one.name for one in reversed(listed))])
    return [one for one in listed if one.name in list(names)[_MOST_NAMES:]]
