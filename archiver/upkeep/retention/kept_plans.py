"""Keeps the plans of dry runs for an hour: `--yes DIGEST` deletes only objects of such a plan."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from archiver.archive.control import append_first_fact, is_readable, latest_fact
from archiver.archive.fact_model import BoundedText, FactModel, Item, Number
from archiver.archive.handle import Archive
from archiver.archive.store_clock import epoch_ms
from archiver.archive.sweeps import SWEEPS
from archiver.errors import CorruptSegmentError, UsageError

KEPT_MS: Final = 3_600_000
_CLEARED_MS: Final = 24 * KEPT_MS
_PLANS: Final = f"{SWEEPS}/plans"
MOST_KEPT: Final = 300_000  # objects of a plan that is kept: a fact has at most 64 MiB
_DIGITS: Final = 32
_DIGEST: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlan:
    """What goes: `<key> <etag> <next>` of each object."""

    made_ms: Number
    objects: Annotated[tuple[Item[BoundedText], ...], Field(max_length=MOST_KEPT)]

    @property
    def digest(self) -> str:
        told = hashlib.sha256(f"{self.made_ms}\n".encode())
        for line in self.objects:
            told.update(f"{line}\n".encode())
        return told.hexdigest()[:_DIGITS]


_FACT: Final = FactModel(KeptPlan)


def keep_plan(archive: Archive, made_ms: int, objects: Sequence[str]) -> str:
    """Keep a plan. Returns its digest; empty: it has nothing, or too much to be kept."""
    if not 0 < len(objects) <= MOST_KEPT:
        return ""
    plan = KeptPlan(made_ms=made_ms, objects=tuple(objects))
    stream, fact = _stream(plan.digest), _FACT.write(plan)
    if not is_readable(fact, stream):
        return ""
    append_first_fact(archive, stream, fact)
    return plan.digest


def read_plan(archive: Archive, digest: str, now_ms: int) -> frozenset[str]:
    """Read what goes by a plan. Whoever put it, it is what has this digest. Raises UsageError, and NotWholeError."""
    again = "`archiver retention --dry-run` prints a new one"
    if _DIGEST.fullmatch(digest) is None:
        raise UsageError(f"--yes {digest}: a digest is 32 of 0-9 a-f; {again}")
    fact = latest_fact(archive, _stream(digest))
    if fact is None:
        raise UsageError(f"--yes {digest}: there is no such plan; {again}")

    def refusal(why: str) -> CorruptSegmentError:
        return CorruptSegmentError(f"{archive.layout.control_prefix(_stream(digest))}: is not a plan: {why}; {again}")

    plan = _FACT.read(fact, refusal)
    if plan.digest != digest:
        raise refusal("it has another digest than its key")
    if not 0 <= now_ms - plan.made_ms <= KEPT_MS:
        raise UsageError(f"--yes {digest}: the plan is older than an hour; {again}")
    return frozenset(plan.objects)


def old_plans(archive: Archive, now_ms: int) -> Iterator[str]:
    """Return the keys of plans of more than a day ago: nobody can agree on them any more."""
    for item in archive.store.list(archive.layout.control_prefix(_PLANS)):
        found = archive.layout.split_fact(item.key)
        is_plan = found is not None and _DIGEST.fullmatch(found[0].removeprefix(f"{_PLANS}/")) is not None
        if is_plan and now_ms - epoch_ms(item.last_modified) > _CLEARED_MS:
            yield item.key


def _stream(digest: str) -> str:
    return f"{_PLANS}/{digest}"
