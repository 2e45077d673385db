"""What topics kept, as retention sweeps saw it, and since when each policy was seen (docs/format.md §8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import Field

from archiver.archive.control import Fact, append_fact, read_dated_history
from archiver.archive.fact_model import BoundedText, FactModel, Item, Number
from archiver.archive.handle import Archive
from archiver.archive.store_clock import WHOLE_SECOND_MS
from archiver.errors import CorruptSegmentError

POLICIES: Final = "policies"
_MOST_CONFIGS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedPolicy:
    """What a topic kept from a moment on: configs as they held."""

    topic: BoundedText
    topic_id: BoundedText
    effective: Annotated[Mapping[str, Item[BoundedText]], Field(max_length=_MOST_CONFIGS)]
    since_ms: Number  # by the store's clock


_FACT: Final = FactModel(NotedPolicy)


def read_policies(archive: Archive, topic: str, topic_id: str) -> Sequence[NotedPolicy]:
    """Read the noted policies of a topic with an id, the oldest first. Raises NotWholeError.

    A policy counts from when it was put at the earliest, whatever it says itself, and from no earlier than those before it.
    """
    noted: list[NotedPolicy] = []
    put_ms = 0
    for at_ms, fact in read_dated_history(archive, _stream(topic)):
        one, put_ms = _of_fact(archive, topic, fact), max(put_ms, at_ms - at_ms % WHOLE_SECOND_MS)
        noted.append(replace(one, since_ms=max(one.since_ms, put_ms)))
    return [one for one in noted if one.topic_id == topic_id]


def note_policy(archive: Archive, seen: NotedPolicy) -> None:
    """Note a policy unless it is the one that was noted last."""

    def decide(latest: Fact | None) -> Fact | None:
        before = None if latest is None else _of_fact(archive, seen.topic, latest)
        if before is None or before.topic_id != seen.topic_id:
            return _FACT.write(seen)
        if before.effective == seen.effective:
            return None
        return _FACT.write(replace(seen, since_ms=max(seen.since_ms, before.since_ms)))

    append_fact(archive, _stream(seen.topic), decide)


def _stream(topic: str) -> str:
    return f"{POLICIES}/{topic}"


def _of_fact(archive: Archive, topic: str, fact: Fact) -> NotedPolicy:
    def refusal(why: str) -> CorruptSegmentError:
        place = archive.layout.control_prefix(_stream(topic))
        return CorruptSegmentError(
            f"{place}: a fact does not tell what the topic kept: {why}; bring its older version back, or delete all facts"
            " there: then the next sweep only notes what the topic keeps"
        )

    found = _FACT.read(fact, refusal)
    if found.topic != topic:
        raise refusal("it speaks of another topic than its key")
    return found
