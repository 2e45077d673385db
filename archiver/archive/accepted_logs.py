"""Where users have accepted that the log of a compacted topic begins later, or ends earlier, than its copies (docs/format.md §8)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, Strict

from archiver.archive.control import Fact, append_fact, latest_fact
from archiver.archive.fact_model import BoundedText, FactModel, Item, Number
from archiver.archive.handle import Archive
from archiver.archive.layout import MOST_OFFSET, MOST_PARTITION
from archiver.errors import CorruptSegmentError
from archiver.process.json_values import spelled_number

ACCEPTED: Final = "accepted"
_Offset = Annotated[int, Strict(), Field(ge=0, le=MOST_OFFSET)]
_PartitionName = Annotated[int, BeforeValidator(partial(spelled_number, most=MOST_PARTITION)), PlainSerializer(str)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedEnd:
    """The log may end at `log_end` or above, though the holder had been read to `position`."""

    log_end: _Offset
    position: _Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLog:
    """What was accepted of one partition; None: that was not in question."""

    log_start: _Offset | None = None  # the log may begin here or above
    end: AcceptedEnd | None = None

    def accepts_start(self, log_start: int) -> bool:
        return self.log_start is not None and log_start >= self.log_start

    def accepts_end(self, log_end: int, position: int) -> bool:
        return self.end is not None and log_end >= self.end.log_end and position <= self.end.position


NOTHING_ACCEPTED: Final = AcceptedLog()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    """What was accepted of a topic, in one life."""

    topic: BoundedText
    life: Number
    partitions: Mapping[Item[_PartitionName], Item[AcceptedLog]]


_FACT: Final = FactModel(_Accepted)


def read_accepted(archive: Archive, topic: str, life: int) -> Mapping[int, AcceptedLog]:
    """Read what was accepted of each partition. Raises NotWholeError."""
    fact = latest_fact(archive, _stream(topic, life))
    return {} if fact is None else _of_fact(archive, topic, life, fact)


def accept_logs(archive: Archive, topic: str, life: int, logs: Mapping[int, AcceptedLog]) -> None:
    """Write down what is accepted of partitions. What was accepted of the others, or of their other end, stays so."""

    def decide(latest: Fact | None) -> Fact | None:
        before = {} if latest is None else _of_fact(archive, topic, life, latest)
        merged = {number: _merged(before.get(number, NOTHING_ACCEPTED), log) for number, log in logs.items()}
        after = dict(sorted({**before, **merged}.items()))
        return None if after == before else _FACT.write(_Accepted(topic=topic, life=life, partitions=after))

    append_fact(archive, _stream(topic, life), decide)


def _stream(topic: str, life: int) -> str:
    return f"{ACCEPTED}/{topic}/{life}"


def _merged(before: AcceptedLog, now: AcceptedLog) -> AcceptedLog:
    return AcceptedLog(
        log_start=before.log_start if now.log_start is None else now.log_start, end=now.end or before.end
    )


def _of_fact(archive: Archive, topic: str, life: int, fact: Fact) -> dict[int, AcceptedLog]:
    def refusal(why: str) -> CorruptSegmentError:
        place = archive.layout.control_prefix(_stream(topic, life))
        return CorruptSegmentError(
            f"{place}: its newest fact does not tell what was accepted: {why}; delete it, and accept again"
        )

    found = _FACT.read(fact, refusal)
    if (found.topic, found.life) != (topic, life):
        raise refusal("it speaks of another topic than its key")
    return dict(found.partitions)
