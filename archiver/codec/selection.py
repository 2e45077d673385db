"""Selects records for a reader: some partitions of a topic, with a range of offsets and a range of times each."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

FIRST_LONG = -(2**63)
LAST_LONG = 2**63 - 1
NO_TIMESTAMP = -1  # docs/format.md §3.1
_MOST_PARTITIONS = 100_000

Ranges = Mapping[int, tuple[int, int]]  # partition -> first and last offset, both inclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Offsets and timestamps, all ends inclusive. A record without a timestamp is selected only if all times are."""

    first_offset: int = 0
    last_offset: int = LAST_LONG
    from_ms: int = FIRST_LONG
    until_ms: int = LAST_LONG

    @property
    def has_times(self) -> bool:
        return self.from_ms > FIRST_LONG or self.until_ms < LAST_LONG

    @property
    def is_empty(self) -> bool:
        return self.first_offset > self.last_offset or self.from_ms > self.until_ms

    def has(self, timestamp: int) -> bool:
        """Return whether the time range contains this timestamp."""
        return not self.has_times or (timestamp != NO_TIMESTAMP and self.from_ms <= timestamp <= self.until_ms)

    def within(self, other: "Selection") -> "Selection":
        """Return the intersection of both selections."""
        return replace(
            self,
            first_offset=max(self.first_offset, other.first_offset),
            last_offset=min(self.last_offset, other.last_offset),
            from_ms=max(self.from_ms, other.from_ms),
            until_ms=min(self.until_ms, other.until_ms),
        )


ALL_RECORDS = Selection()

Wanted = Callable[[int], Selection | None]  # by partition; None: nothing of it


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Some partitions of a topic, a range of offsets for each, and one range of times for all."""

    partitions: frozenset[int] | None = None  # None: all
    offsets: Ranges | None = None  # None: all offsets; of a partition that is not named, none
    from_ms: int = FIRST_LONG
    until_ms: int = LAST_LONG

    @property
    def names_partitions(self) -> bool:
        return self.partitions is not None or self.offsets is not None

    def of(self, partition: int) -> Selection | None:
        """Return the selected offsets of a partition; None if it is not selected."""
        if self.partitions is not None and partition not in self.partitions:
            return None
        if self.offsets is not None and partition not in self.offsets:
            return None
        first, last = (0, LAST_LONG) if self.offsets is None else self.offsets[partition]
        return Selection(first_offset=first, last_offset=last, from_ms=self.from_ms, until_ms=self.until_ms)


WHOLE = TopicSelection()


def parse_partitions(text: str) -> frozenset[int]:
    """Parse `0,3-5`. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + _MOST_PARTITIONS:
            raise ValueError(f"{part!r} is not like 3 or 3-5")
        found.update(range(first, last + 1))
    return frozenset(found)


def parse_offsets(text: str) -> Ranges:
    """Parse `0:100-200,1:50-`: partition, first and last offset. Raises ValueError."""
    found: dict[int, tuple[int, int]] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9}):(\d{1,18})(?:(-)(\d{1,18})?)?\s*", part, re.ASCII)
        if match is None:
            raise ValueError(f"{part!r} is not like 0:100-200, 0:100- or 0:100")
        partition, first = int(match[1]), int(match[2])
        last = LAST_LONG if match[3] and not match[4] else int(match[4] or first)
        if first > last or partition in found:
            raise ValueError(f"{part!r}: each partition once, the lower offset first")
        found[partition] = (first, last)
    return found
