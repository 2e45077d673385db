"""Notes the longest retention limits since the last agreement; sweeps ask before deleting records that these keep (docs/format.md §8)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from archiver.archive.format.control import newest_numbers
from archiver.archive.format.fact_model import BoundedText, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.note_stream import NoteKind
from archiver.archive.notes.sweeps import SWEEPS
from archiver.process.values.json_values import LARGEST

_LIMITS: Final = f"{SWEEPS}/limits"


class LimitSource(StrEnum):
    """The source of limits. Each source has its own note, so a change of source needs an agreement."""

    TOPIC = "topic"  # limits of the topic in the cluster
    FIXED = "fixed"  # limits of the configuration, for all topics that the archive knows
    GONE = "gone"  # limits of the configuration, for a topic that the cluster no longer has


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedLimits:
    """The limits that a sweep compares with; `life` is the root life. None: no such limit."""

    topic: BoundedText
    life: Number
    whose: LimitSource
    ms: Number | None
    bytes: Number | None
    floor_ms: Number

    @property
    def stream(self) -> str:
        return f"{_LIMITS}/{self.topic}/{self.life}/{self.whose}"


_KIND: Final = NoteKind(
    AppliedLimits,
    "agreed limits",
    "bring its older version back, or delete all facts there: then the next sweep asks before it deletes much",
    lambda applied: applied.stream,
)


def read_applied(archive: Archive, topic: str) -> Mapping[tuple[int, LimitSource], AppliedLimits]:
    """Read the limits that sweeps compare with, for each life of a topic. Raises NotWholeError."""
    found = _KIND.read_all(archive, f"{_LIMITS}/{topic}")
    return {(one.life, one.whose): one for one in found.values()}


def agreed_streams(archive: Archive) -> Collection[str]:
    """List the streams of all topics with noted limits, in one listing."""
    return newest_numbers(archive, _LIMITS).keys()


def change_applied(
    archive: Archive, stream: str, decide: Callable[[AppliedLimits | None], AppliedLimits | None]
) -> None:
    """Note the result of `decide` on the newest note. None: nothing to note."""

    def change(before: AppliedLimits | None) -> AppliedLimits | None:
        wanted = decide(before)
        return None if wanted is None else _bounded(wanted)

    _KIND.at(archive, stream).update(change)


def _bounded(applied: AppliedLimits) -> AppliedLimits:
    """Cap limits at the largest number that a note may have."""
    ms, size = (None if one is None else min(one, LARGEST) for one in (applied.ms, applied.bytes))
    return replace(applied, ms=ms, bytes=size, floor_ms=min(applied.floor_ms, LARGEST))
