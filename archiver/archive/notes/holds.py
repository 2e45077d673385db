"""Legal holds: records that no sweep may delete until the hold is released (docs/format.md §8)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import Field, Strict

from archiver.archive.format.fact_model import BoundedText, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_restore_id
from archiver.archive.format.note_stream import NoteKind
from archiver.errors import ArchiverError, CorruptSegmentError, StoreTemporaryError, UsageError
from archiver.process.running.silence import steady_s
from archiver.process.values.json_values import LARGEST
from archiver.store.port import DELETE_LIMIT_S, ObjectStore

HOLDS: Final = "holds"
_NAMES: Final = r"[A-Za-z0-9._*-]+(,[A-Za-z0-9._*-]+)*"
# Holds and unfinished restores are read again before each delete request, which is sent within this time, or not at all.
LOOK_S: Final = 30.0
DELETES_END_S: Final = LOOK_S + DELETE_LIMIT_S  # earlier deletes may still take effect so long after a hold was put
_Time = Annotated[int, Strict(), Field(ge=-LARGEST, le=LARGEST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The held records: by topics and times; both ends included, None: no end.

    `topics`: names, separated by commas, where `*` matches any characters, also none.
    """

    name: BoundedText
    topics: BoundedText
    from_ms: _Time | None = None
    until_ms: _Time | None = None
    reason: BoundedText
    by: BoundedText
    added_ms: Number
    released_ms: Number | None = None
    released_by: BoundedText | None = None
    released_reason: BoundedText | None = None

    def __post_init__(self) -> None:
        if self.topics and re.fullmatch(_NAMES, self.topics) is None:
            raise ValueError(
                f"{self.topics[:100]!r} names no topics: give names, separated by commas; `*` stands for any characters, and no"
                " regular expression is taken"
            )
        if ".*" in self.topics.split(","):
            raise ValueError(
                "'.*' names only topics that begin with a dot: no regular expression is taken; '*' matches all"
            )
        if self.from_ms is not None and self.until_ms is not None and self.from_ms > self.until_ms:
            raise ValueError("it ends before it begins")

    @property
    def is_in_force(self) -> bool:
        return self.released_ms is None

    def matches(self, topic: str) -> bool:
        return any(fnmatchcase(topic, name) for name in self.topics.split(","))

    @property
    def untouched_stems(self) -> Sequence[str]:
        """Names of topics that a regular expression like `orders.*` would match but that are not held."""
        stems = [name.removesuffix(".*") for name in self.topics.split(",") if name.endswith(".*")]
        return [stem for stem in stems if "*" not in stem and not self.matches(stem)]


_KIND: Final = NoteKind(
    Hold,
    "a hold",
    "bring its older version back. Until then nothing is swept",
    lambda hold: _stream(hold.name),
)


def read_holds(archive: Archive) -> Mapping[str, Hold]:
    """Read all holds by name, also released ones. Raises NotWholeError: an unreadable hold may hold anything."""
    return {hold.name: hold for _, hold in sorted(_KIND.read_all(archive, HOLDS).items())}


def add_hold(archive: Archive, hold: Hold) -> None:
    """Add a hold under a name that was never used, or was used for the same hold. Raises UsageError."""
    if not is_restore_id(hold.name):
        raise UsageError(
            f"{hold.name}: a hold's name is 1 to 64 of a-z A-Z 0-9 . _ -, and begins with a letter or a digit"
        )
    if not hold.topics:
        raise UsageError(f"{hold.name}: --topics is empty, and would hold nothing; '*' matches all topics")
    held = _KIND.at(archive, _stream(hold.name)).update(lambda before: before or _checked(hold))
    if held is None or replace(held, added_ms=hold.added_ms) != hold:
        raise UsageError(f"{hold.name}: there is, or was, a hold of this name; take another one")


def release_hold(archive: Archive, name: str, *, by: str, now_ms: int, reason: str | None = None) -> Hold:
    """Release a hold: the next sweep may delete its records. Raises UsageError."""

    def change(hold: Hold | None) -> Hold | None:
        if hold is None:
            raise UsageError(f"{name}: there is no such hold; `archiver hold list` shows them")
        wanted = replace(hold, released_ms=now_ms, released_by=by, released_reason=reason)
        return _checked(wanted) if hold.is_in_force else None

    released = _KIND.at(archive, _stream(name)).update(change)
    if released is None:
        raise CorruptSegmentError(f"{archive.layout.control_prefix(_stream(name))}: no fact after one was written")
    return released


def _checked(hold: Hold) -> Hold:
    """Return a hold that readers accept: sweeps refuse to run beside an unreadable one, and facts never change."""
    _KIND.model.read(_KIND.encode(hold), lambda why: UsageError(f"{hold.name}: {why}"))
    return hold


def _stream(name: str) -> str:
    return f"{HOLDS}/{name}"


def delete_after_look(
    store: ObjectStore, keys: Sequence[str], look: Callable[[], str]
) -> tuple[str, Mapping[str, ArchiverError]]:
    """Delete objects within LOOK_S of the start of `look`, which returns why they must stay; empty: they need not.

    Returns why they must stay, or what the store refused, by key. Raises StoreError where it refuses the whole request.
    """
    looked_s = steady_s()
    if why := look():
        return why, {}
    try:
        return "", store.delete_each(keys, send_by_s=looked_s + LOOK_S) if keys else {}
    except StoreTemporaryError as error:  # the outcome is unknown: the caller looks again before it repeats this
        return "", dict.fromkeys(keys, error)
