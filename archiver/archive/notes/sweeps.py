"""Reads and writes the reports of retention sweeps: deleted and kept objects by topic, with reasons (docs/format.md §8)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field, Strict

from archiver.archive.format.control import READS_AT_ONCE, append_fact, list_numbers, read_fact
from archiver.archive.format.fact_model import BoundedText, Item, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.note_stream import NoteKind
from archiver.errors import NotWholeError
from archiver.process.running.workers import side_by_side

SWEEPS: Final = "sweeps"
_REPORTS: Final = f"{SWEEPS}/reports"
_KEPT_REPORTS: Final = 1_000
MOST_TOPICS: Final = 100_000
_MOST_REASONS: Final = 100
Reasons = Annotated[Mapping[str, Item[Number]], Field(max_length=_MOST_REASONS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptTopic:
    """Deleted objects of a topic, and why the rest was kept. `stopped`: why the sweep ended early; empty: it did not."""

    objects: Number
    records: Number
    bytes: Number
    deleted_because: Reasons
    kept_because: Reasons
    stopped: BoundedText


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptControl:
    """Deleted control objects of one kind, and why groups of them were kept."""

    groups: Number
    objects: Number
    bytes: Number
    kept_because: Reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """One run. `kept`: topics without deletions, and why; `refused`: deletes that the store refused.

    `waiting`: topics that need an agreement; `failed`: objects that could not be listed or read whole.
    A life of a topic that was created again is named `<topic>@<life>`. `without_kafka`: it used no cluster.
    """

    begun_ms: Number
    topics: Annotated[Mapping[str, Item[SweptTopic]], Field(max_length=MOST_TOPICS)]
    kept: Annotated[Mapping[str, Item[BoundedText]], Field(max_length=MOST_TOPICS)]
    refused: Number
    without_kafka: Annotated[bool, Strict()] = False
    problems: Annotated[Sequence[Item[BoundedText]], Field(max_length=_MOST_REASONS)]
    control: Annotated[Mapping[str, Item[SweptControl]], Field(max_length=_MOST_REASONS)] = field(default_factory=dict)
    took_ms: Number = 0
    waiting: Annotated[Sequence[Item[BoundedText]], Field(max_length=MOST_TOPICS)] = ()
    failed: Number = 0

    @property
    def is_complete(self) -> bool:
        return not self.refused and not self.failed and not any(one.stopped for one in self.topics.values())


_KIND: Final = NoteKind(SweepReport, "a sweep's result", "the next sweep puts another one behind it")


def read_last_report(archive: Archive) -> SweepReport | None:
    """Read the report of the last sweep; None if no sweep has run. Raises NotWholeError."""
    return _KIND.at(archive, _REPORTS).read()


def read_reports(archive: Archive, most: int) -> Iterator[SweepReport | NotWholeError]:
    """Read the reports of the last sweeps, oldest first, several at a time; of an unreadable one the error. `most` 0: all."""

    def read(number: int) -> SweepReport | NotWholeError:
        try:
            return _KIND.decode(read_fact(archive, _REPORTS, number), archive, _REPORTS, number)
        except NotWholeError as error:
            return error

    return side_by_side(READS_AT_ONCE, read, list_numbers(archive, _REPORTS)[-most:], "report")


def append_report(archive: Archive, report: SweepReport) -> None:
    """Append a report to the reports of earlier sweeps, even if the last one is unreadable."""
    wanted = _KIND.encode(report)
    append_fact(archive, _REPORTS, lambda latest: None if latest == wanted else wanted)


def old_reports(archive: Archive) -> list[str]:
    """Return the keys of old reports, which may be deleted."""
    return _KIND.at(archive, _REPORTS).keys_of_old(_KEPT_REPORTS)
