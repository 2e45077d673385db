"""The longest limits in force since the last agreement: a sweep asks before it deletes what they would keep (docs/format.md §8)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from archiver.archive.control import Fact, append_fact, decode_facts, newest_numbers
from archiver.archive.fact_model import BoundedText, FactModel, Number
from archiver.archive.handle import Archive
from archiver.archive.sweeps import SWEEPS
from archiver.errors import CorruptSegmentError
from archiver.process.json_values import LARGEST

_LIMITS: Final = f"{SWEEPS}/limits"


class Whose(StrEnum):
    """The source of limits. Each source is noted separately, so that a change of source asks."""

    TOPIC = "topic"  # those that the topic has in the cluster
    FIXED = "fixed"  # those of the configuration, for all topics that the archive knows
    GONE = "gone"  # those of the configuration, for a topic that the cluster no longer has


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedLimits:
    """The limits that a sweep compares with; `life` is the root life. None: no such limit."""

    topic: BoundedText
    life: Number
    whose: Whose
    ms: Number | None
    bytes: Number | None
    floor_ms: Number

    @property
    def stream(self) -> str:
        return f"{_LIMITS}/{self.topic}/{self.life}/{self.whose}"


_FACT: Final = FactModel(AppliedLimits)


def read_applied(archive: Archive, topic: str) -> Mapping[tuple[int, Whose], AppliedLimits]:
    """Read what sweeps compare with, of each life of a topic. Raises NotWholeError."""
    found = decode_facts(archive, newest_numbers(archive, f"{_LIMITS}/{topic}"), partial(_of_fact, archive))
    return {(one.life, one.whose): one for one in found.values()}


def agreed_streams(archive: Archive) -> Collection[str]:
    """List the streams of all topics in which limits are noted, in one listing."""
    return newest_numbers(archive, _LIMITS).keys()


def change_applied(
    archive: Archive, stream: str, decide: Callable[[AppliedLimits | None], AppliedLimits | None]
) -> None:
    """Note the result of `decide` on the newest note. None: nothing to note."""

    def as_fact(latest: Fact | None) -> Fact | None:
        before = None if latest is None else _of_fact(archive, stream, latest)
        wanted = decide(before)
        after = before if wanted is None else _bounded(wanted)
        return None if after is None or after == before else _FACT.write(after)

    append_fact(archive, stream, as_fact)


def _bounded(applied: AppliedLimits) -> AppliedLimits:
    """Of a multiple of the largest number, a fact has the largest number."""
    ms, size = (None if one is None else min(one, LARGEST) for one in (applied.ms, applied.bytes))
    return replace(applied, ms=ms, bytes=size, floor_ms=min(applied.floor_ms, LARGEST))


def _of_fact(archive: Archive, stream: str, fact: Fact) -> AppliedLimits:
    def refusal(why: str) -> CorruptSegmentError:
        place = archive.layout.control_prefix(stream)
        return CorruptSegmentError(
            f"{place}: its newest fact does not tell to which limits somebody agreed: {why}; bring its older version back, or"
            " delete all facts there: then the next sweep asks before it deletes much"
        )

    found = _FACT.read(fact, refusal)
    if found.stream != stream:
        raise refusal("it speaks of another topic, or of another life, than its key")
    return found
