"""Retention limits of a topic: from its configs, the longest of several, and the longest within the grace time."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from archiver.archive.notes.policies import NotedPolicy
from archiver.archive.notes.topics import POLICY
from archiver.config.quantities import spell_exact_duration, spell_exact_size
from archiver.process.values.json_values import spelled_number

RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
RETENTION_GROUPS: Final = "retention.groups"  # of this program's configuration: of the offsets topic it decides alone
DECIDING: Final = (POLICY, RETENTION_MS, RETENTION_BYTES)  # the configs of a topic that decide on retention
_FOR_EVER: Final = -1
_DELETES: Final = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Records beyond either limit are deleted; None: no such limit. Records younger than `floor_ms` always stay."""

    ms: int | None = None
    bytes: int | None = None
    floor_ms: int = 0

    @property
    def keeps_all(self) -> bool:
        return self.ms is None and self.bytes is None

    def __str__(self) -> str:
        if self.keeps_all:
            return "for ever"
        told = [] if self.ms is None else [f"{RETENTION_MS} {_with_unit(self.ms, spell_exact_duration)}"]
        told += [] if self.bytes is None else [f"{RETENTION_BYTES} {_with_unit(self.bytes, spell_exact_size)}"]
        told += [f"retention.floor {_with_unit(self.floor_ms, spell_exact_duration)}"] if self.floor_ms else []
        return ", ".join(told)


FOR_EVER: Final = Limits()


def _with_unit(value: int, spell: Callable[[int], str]) -> str:
    """Spell a number as Kafka does, and, where that is shorter, as the configuration may."""
    spelled = spell(value)
    return str(value) if len(spelled) >= len(str(value)) else f"{value} ({spelled})"


def limits_of(effective: Mapping[str, str]) -> Limits:
    """Return the limits of a topic by its effective configs. Raises ValueError if these do not determine them."""
    missing = [name for name in DECIDING if name not in effective]
    if missing:
        raise ValueError(f"{', '.join(missing)} is not known")
    if RETENTION_GROUPS in effective:
        return Limits(ms=_limit(effective, RETENTION_GROUPS))
    if not says_delete(effective[POLICY]):
        return FOR_EVER
    return Limits(ms=_limit(effective, RETENTION_MS), bytes=_limit(effective, RETENTION_BYTES))


def says_delete(policy: str) -> bool:
    """Return whether a cleanup.policy has a log's old records deleted."""
    return _DELETES in {part.strip() for part in policy.split(",")}


def spell_groups_limit(groups_ms: int | None) -> str:
    """Spell the configuration's own limit as a topic's are spelled; None: forever."""
    return str(_FOR_EVER if groups_ms is None else groups_ms)


def _limit(effective: Mapping[str, str], name: str) -> int | None:
    try:
        found = spelled_number(effective[name], _FOR_EVER)
    except ValueError as error:
        raise ValueError(f"{name} is {effective[name][:40]!r}") from error
    return None if found == _FOR_EVER else found


def longest(several: Iterable[Limits]) -> Limits:
    """Return limits that keep whatever any of these keeps. Of none: forever."""
    known = list(several)
    return Limits(
        ms=_largest([one.ms for one in known]),
        bytes=_largest([one.bytes for one in known]),
        floor_ms=max((one.floor_ms for one in known), default=0),
    )


def _largest(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known) if values and len(known) == len(values) else None


def widened(limits: Limits, factor: float) -> Limits:
    """Return limits that keep this many times as much."""
    return replace(limits, ms=_widened(limits.ms, factor), bytes=_widened(limits.bytes, factor))


def _widened(value: int | None, factor: float) -> int | None:
    """Multiply exactly: a product of floats may be less than a large number that was to grow."""
    return None if value is None else max(value, math.ceil(value * Fraction(factor)))


def policy_in_force(noted: Sequence[NotedPolicy], now_ms: int, grace_ms: int) -> Limits:
    """Return the longest limits that were in force within the time of grace. `noted`: of one topic id, the oldest first.

    Raises ValueError where the configs of a topic do not determine its limits, or nothing was noted.
    """
    if not noted:
        raise ValueError("nothing was noted of it")
    ends = [one.since_ms for one in noted[1:]]
    in_force = [noted[-1], *(one for one, end in zip(noted, ends, strict=False) if end > now_ms - grace_ms)]
    return longest(limits_of(one.effective) for one in in_force)
