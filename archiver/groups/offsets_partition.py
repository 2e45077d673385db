"""Which partition of `__consumer_offsets` the positions of a group lie in, and up to when that is archived."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_SIGN: Final = 1 << 31


def offsets_partition(group: str, partitions: int) -> int | None:
    """Return the partition, as brokers choose it: by Java's hash of the name. None: the name is none that brokers have."""
    try:
        group.encode()
    except UnicodeEncodeError:
        return None
    units = group.encode("utf-16-be")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8) + units[at + 1]) & 0xFFFFFFFF
    signed = found - 2 * _SIGN if found >= _SIGN else found
    return 0 if signed == -_SIGN else abs(signed) % partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedEnds:
    """Up to when each archived partition of the offsets topic is archived: the time of its newest record; -1: it has none."""

    partitions: int | None  # how many the topic has; None: not known
    last_ms: Mapping[int, int]

    def of(self, group: str) -> int | None:
        """Return up to when the positions of a group are archived; None: they are not. In doubt they are, as far as any."""
        known = self.partitions is not None and self.partitions > max(self.last_ms, default=-1)
        number = offsets_partition(group, self.partitions) if known and self.partitions else None
        return max(self.last_ms.values(), default=None) if number is None else self.last_ms.get(number)
