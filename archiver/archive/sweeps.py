"""Reports of retention sweeps: what each took, of which topics, and what it left and why (docs/format.md §8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field

from archiver.archive.control import Fact, append_fact, list_numbers
from archiver.archive.fact_model import BoundedText, FactModel, Item, Number
from archiver.archive.handle import Archive

SWEEPS: Final = "sweeps"
_REPORTS: Final = f"{SWEEPS}/reports"
_KEPT_REPORTS: Final = 1_000
MOST_TOPICS: Final = 100_000
_MOST_REASONS: Final = 100
Reasons = Annotated[Mapping[str, Item[Number]], Field(max_length=_MOST_REASONS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptTopic:
    """What a sweep took of a topic, and why the rest stayed. `stopped`: why it ended before its end; empty: it did not."""

    objects: Number
    records: Number
    bytes: Number
    deleted_because: Reasons
    kept_because: Reasons
    stopped: BoundedText


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptControl:
    """What a sweep took of one kind of control objects, and why groups of them stayed."""

    groups: Number
    objects: Number
    bytes: Number
    kept_because: Reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """One run. `kept`: topics of which nothing could go, and why; `refused`: how many deletes the store refused."""

    begun_ms: Number
    topics: Annotated[Mapping[str, Item[SweptTopic]], Field(max_length=MOST_TOPICS)]
    kept: Annotated[Mapping[str, Item[BoundedText]], Field(max_length=MOST_TOPICS)]
    refused: Number
    problems: Annotated[Sequence[Item[BoundedText]], Field(max_length=_MOST_REASONS)]
    control: Annotated[Mapping[str, Item[SweptControl]], Field(max_length=_MOST_REASONS)] = field(default_factory=dict)


_FACT: Final = FactModel(SweepReport)


def append_report(archive: Archive, report: SweepReport) -> None:
    """Put a report behind those of earlier sweeps."""
    wanted: Fact = _FACT.write(report)
    append_fact(archive, _REPORTS, lambda latest: None if latest == wanted else wanted)


def old_reports(archive: Archive) -> list[str]:
    """Return the keys of reports of long ago."""
    return [archive.layout.fact_key(_REPORTS, number) for number in list_numbers(archive, _REPORTS)[:-_KEPT_REPORTS]]
