"""Notes the retention settings of topics for sweeps, and the time since which each one holds (docs/format.md §8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import Field

from archiver.archive.format.fact_model import BoundedText, Item, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.note_stream import NoteKind
from archiver.archive.format.store_clock import WHOLE_SECOND_MS

POLICIES: Final = "policies"
_MOST_CONFIGS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedPolicy:
    """The retention settings of a topic from a moment on: its effective configs."""

    topic: BoundedText
    topic_id: BoundedText
    effective: Annotated[Mapping[str, Item[BoundedText]], Field(max_length=_MOST_CONFIGS)]
    since_ms: Number  # by the store's clock


def _stream_of(topic: str) -> str:
    return f"{POLICIES}/{topic}"


_KIND: Final = NoteKind(
    NotedPolicy,
    "a topic's retention",
    "bring its older version back, or delete all facts there: then the next sweep only notes what the topic keeps",
    lambda noted: _stream_of(noted.topic),
)


def read_policies(archive: Archive, topic: str, topic_id: str) -> Sequence[NotedPolicy]:
    """Read the noted settings of a topic with an id, the oldest first. Raises NotWholeError.

    A note counts at the earliest from its put time, even if it claims an earlier one, and never earlier than the notes before it.
    """
    noted: list[NotedPolicy] = []
    put_ms = 0
    for _, at_ms, one in _KIND.at(archive, _stream_of(topic)).history():
        put_ms = max(put_ms, at_ms - at_ms % WHOLE_SECOND_MS)
        noted.append(replace(one, since_ms=max(one.since_ms, put_ms)))
    return [one for one in noted if one.topic_id == topic_id]


def note_policy(archive: Archive, seen: NotedPolicy) -> None:
    """Note the settings unless they equal the last note."""

    def change(before: NotedPolicy | None) -> NotedPolicy | None:
        if before is None or before.topic_id != seen.topic_id:
            return seen
        if before.effective == seen.effective:
            return None
        return replace(seen, since_ms=max(seen.since_ms, before.since_ms))

    _KIND.at(archive, _stream_of(seen.topic)).update(change)
