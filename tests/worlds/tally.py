"""What a cycle has compared, and what was not alike."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from tests.support.records import Rec

Partitions = Mapping[int, Sequence[Rec]]


@dataclass(slots=True)
class Tally:
    """Counts. Two things that should be alike and are not make a difference each."""

    records: int = 0  # that were archived, each once
    kills: int = 0
    compared: int = 0
    differences: list[str] = field(default_factory=list)

    def compare(self, what: str, expected: Partitions, found: Partitions) -> None:
        """Record by record, in order. A partition without a record is as good as none."""
        for partition in sorted({*expected, *found}):
            wanted, there = expected.get(partition, ()), found.get(partition, ())
            self._compare(f"{what}-{partition}", wanted, there)

    def compare_values(self, what: str, expected: object, found: object) -> None:
        if expected != found:
            self.differences.append(f"{what}: {found!r} and not {expected!r}")

    def _compare(self, what: str, expected: Iterable[Rec], found: Iterable[Rec]) -> None:
        for index, (one, other) in enumerate(zip_longest(expected, found)):
            self.compared += 1
            if one != other:
                self.differences.append(f"{what}, record {index}: {_cut(other)} and not {_cut(one)}")


def _cut(record: Rec | None) -> str:
    return "none" if record is None else f"{record!r:.300}"
