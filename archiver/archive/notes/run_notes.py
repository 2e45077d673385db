"""Notes of runs, for people and `archiver status`: what each kind of run did last, and how far a backup has come (docs/format.md §8).

No position of a writer, no deletion and no restore depends on them. A job puts its note with `note_run`, which never fails it.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
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

log = logging.getLogger(__name__)

RUNS: Final = "runs"
EVERY_S: Final = 60.0  # between two notes of a service
ONLY: Final = "all"  # the name in the notes of jobs, of which one runs at a time
MOST_NAMED: Final = 100
_KEPT: Final = 2  # notes of each stream
_MOST_NAMES: Final = 50  # of each kind: processes, or restores
_ATTEMPTS: Final = 3
_STREAM_PARTS: Final = 4
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


_KINDS: Final = frozenset(map(str, RunKind))
_OUTCOMES: Final = frozenset(map(str, Outcome))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """The state of a run. `name`: the process of a service, the id of a restore, else `ONLY`; times are the store's."""

    kind: RunKind
    name: BoundedText = ONLY
    outcome: Outcome
    version: BoundedText = __version__
    took_ms: Number = 0  # since the run began
    durable_through_ms: Number | None = None  # everything that Kafka had until then is archived; None: unknown
    partitions: Number | None = None  # assigned ones of a service, or archived ones; None: of another kind of run
    problems: Texts = ()
    limits: Annotated[Mapping[str, Item[BoundedText]], Field(max_length=MOST_NAMED)] = field(default_factory=dict)
    gone: Texts = ()  # topics that Kafka no longer has
    holds: Texts = ()  # in force, according to a sweep
    next_ms: Number | None = None  # when the next copy of a compacted topic is due

    @property
    def stream(self) -> str:
        return f"{RUNS}/{self.kind}/{self.name}/{self.outcome}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A listed note of a run, with its put time by the store's clock."""

    kind: RunKind
    name: str
    outcome: Outcome
    number: int
    put_ms: int

    @property
    def stream(self) -> str:
        return f"{RUNS}/{self.kind}/{self.name}/{self.outcome}"


_KIND: Final = NoteKind(RunNote, "a run", "the next run puts another one; delete it", lambda note: note.stream)


def list_runs(archive: Archive, kind: RunKind | None = None) -> list[ListedRun]:
    """List the notes of runs in one listing, the oldest first; objects of other names are skipped."""
    parent = RUNS if kind is None else f"{RUNS}/{kind}"
    found = []
    for item in archive.store.list(archive.layout.control_prefix(parent)):
        stream, number = archive.layout.split_fact(item.key) or ("", 0)
        parts = stream.split("/")
        if len(parts) == _STREAM_PARTS and parts[1] in _KINDS and parts[3] in _OUTCOMES:
            of, name, outcome = RunKind(parts[1]), parts[2], Outcome(parts[3])
            put_ms = epoch_ms(item.last_modified)
            found.append(ListedRun(kind=of, name=name, outcome=outcome, number=number, put_ms=put_ms))
    return sorted(found, key=lambda one: (one.put_ms, one.outcome is not Outcome.RUNNING, one.number))


def read_run(archive: Archive, listed: ListedRun) -> RunNote:
    """Read a listed note. Raises NotWholeError."""
    return _KIND.decode(read_fact(archive, listed.stream, listed.number), archive, listed.stream, listed.number)


def note_run(archive: Archive, note: RunNote) -> None:
    """Put the note of a job; a failure is logged, and does not fail the job."""
    problem = put_run_note(archive, note)
    if problem:
        log.warning("%s", problem)


def put_run_note(archive: Archive, note: RunNote) -> str:
    """Put a note behind the earlier ones of its stream, and delete old ones. Returns the problem; empty: none."""
    try:
        old = _put(archive, note)
    except (ArchiverError, ValueError) as error:
        return f"{error}; `archiver status` does not learn of this run"
    try:
        archive.store.delete(old)
    except ArchiverError as error:
        return f"{error}; old notes of runs stay"
    return ""


def _put(archive: Archive, note: RunNote) -> list[str]:
    """Put a note. Returns the keys of notes that may be deleted now."""
    for _ in range(_ATTEMPTS):
        listed = list_runs(archive, note.kind)
        number = max((one.number for one in listed if one.stream == note.stream), default=-1)
        key = key_behind(archive.layout, note.stream, number)
        content = encode_bounded(_KIND.encode(note), note.stream, key)
        if archive.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT) is not None:
            put_ms = max((one.put_ms for one in listed), default=0)
            own = ListedRun(kind=note.kind, name=note.name, outcome=note.outcome, number=number + 1, put_ms=put_ms)
            return [archive.layout.fact_key(one.stream, one.number) for one in surplus([*listed, own])]
    raise ArchiverError(f"{archive.layout.control_prefix(note.stream)}: {_ATTEMPTS} other runs were faster")


def surplus(listed: Iterable[ListedRun]) -> list[ListedRun]:
    """Return the notes of one kind that may be deleted: all but the last two of each stream, and those of long-silent names."""
    streams: dict[str, list[ListedRun]] = defaultdict(list)
    newest: dict[str, int] = {}
    for one in listed:
        streams[one.stream].append(one)
        newest[one.name] = max(newest.get(one.name, 0), one.put_ms)
    kept = set(sorted(newest, key=lambda name: (newest[name], name))[-_MOST_NAMES:])
    found = []
    for notes in streams.values():
        notes.sort(key=lambda one: one.number)
        found += [one for at, one in enumerate(notes) if one.name not in kept or at < len(notes) - _KEPT]
    return found
