"""Keeps the plans of dry runs for an hour: `--yes DIGEST` deletes only objects of such a plan."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from archiver.archive.format.control import is_readable
from archiver.archive.format.fact_model import BoundedText, Item, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.note_stream import NoteKind
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.notes.sweeps import SWEEPS
from archiver.errors import UsageError

KEPT_MS: Final = 3_600_000
_CLEARED_MS: Final = 24 * KEPT_MS
_PLANS: Final = f"{SWEEPS}/plans"
MOST_KEPT: Final = 300_000  # objects of a plan that is kept: a fact has at most 64 MiB
_DIGITS: Final = 32
_DIGEST: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlan:
    """The objects to delete: `<key> <etag> <next>` of each."""

    made_ms: Number
    objects: Annotated[tuple[Item[BoundedText], ...], Field(max_length=MOST_KEPT)]

    @property
    def digest(self) -> str:
        told = hashlib.sha256(f"{self.made_ms}\n".encode())
        for line in self.objects:
            told.update(f"{line}\n".encode())
        return told.hexdigest()[:_DIGITS]


_AGAIN: Final = "`archiver retention --dry-run` prints a new one"
_KIND: Final = NoteKind(KeptPlan, "a sweep's plan", _AGAIN, lambda plan: _stream(plan.digest))


def keep_plan(archive: Archive, made_ms: int, objects: Sequence[str]) -> str:
    """Keep a plan. Returns its digest; empty: the plan is empty, or too large to be kept."""
    if not 0 < len(objects) <= MOST_KEPT:
        return ""
    plan = KeptPlan(made_ms=made_ms, objects=tuple(objects))
    stream = _stream(plan.digest)
    if not is_readable(_KIND.encode(plan), stream):
        return ""
    _KIND.at(archive, stream).update(lambda before: before or plan)
    return plan.digest


def read_plan(archive: Archive, digest: str, now_ms: int) -> frozenset[str]:
    """Read the objects of a plan. The digest proves it, whatever its writer. Raises UsageError, and NotWholeError."""
    if _DIGEST.fullmatch(digest) is None:
        raise UsageError(f"--yes {digest}: a digest is 32 of 0-9 a-f; {_AGAIN}")
    plan = _KIND.at(archive, _stream(digest)).read()
    if plan is None:
        raise UsageError(f"--yes {digest}: there is no such plan; {_AGAIN}")
    if not 0 <= now_ms - plan.made_ms <= KEPT_MS:
        raise UsageError(f"--yes {digest}: the plan is older than an hour; {_AGAIN}")
    return frozenset(plan.objects)


def old_plans(archive: Archive, now_ms: int) -> Iterator[str]:
    """Return the keys of plans of more than a day ago: they can no longer be agreed on."""
    for item in archive.store.list(archive.layout.control_prefix(_PLANS)):
        found = archive.layout.split_fact(item.key)
        is_plan = found is not None and _DIGEST.fullmatch(found[0].removeprefix(f"{_PLANS}/")) is not None
        if is_plan and now_ms - epoch_ms(item.last_modified) > _CLEARED_MS:
            yield item.key


def _stream(digest: str) -> str:
    return f"{_PLANS}/{digest}"
