"""Which records of a partition a reader wants: a range of offsets and a range of times."""

from dataclasses import dataclass, replace

FIRST_LONG = -(2**63)
LAST_LONG = 2**63 - 1
NO_TIMESTAMP = -1  # docs/format.md §3.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Offsets and timestamps, all ends inclusive. A record without a timestamp lies in no range of times but the whole."""

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
        """Tell whether a record of this time is selected, as far as times go."""
        return not self.has_times or (timestamp != NO_TIMESTAMP and self.from_ms <= timestamp <= self.until_ms)

    def within(self, other: "Selection") -> "Selection":
        """Select what both select."""
        return replace(
            self,
            first_offset=max(self.first_offset, other.first_offset),
            last_offset=min(self.last_offset, other.last_offset),
            from_ms=max(self.from_ms, other.from_ms),
            until_ms=min(self.until_ms, other.until_ms),
        )

    def may_hold(self, *, first_offset: int, last_offset: int, min_timestamp: int, max_timestamp: int) -> bool:
        """Tell whether records within these bounds can be among the selected."""
        if last_offset < self.first_offset or first_offset > self.last_offset:
            return False
        if not self.has_times:
            return True
        only_without = min_timestamp == max_timestamp == NO_TIMESTAMP
        return not only_without and min_timestamp <= self.until_ms and max_timestamp >= self.from_ms


EVERYTHING = Selection()
