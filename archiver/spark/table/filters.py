"""Filters that Spark pushes down, as a selection of partitions, offsets and timestamps."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from archiver.codec.selection import ALL_RECORDS, FIRST_LONG, LAST_LONG, Selection

_EPOCH = datetime.fromtimestamp(0, UTC)
_EVERY = (FIRST_LONG, LAST_LONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """The records that pushed filters select: a range of partitions, and within each a selection of records."""

    first_partition: int = FIRST_LONG
    last_partition: int = LAST_LONG
    selection: Selection = ALL_RECORDS

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> "Narrowing":
        """Join all filters that this module supports. Others narrow nothing: Spark applies each filter again to the rows."""
        narrowing = cls()
        for one in filters:
            narrowing = narrowing.and_also(one)
        return narrowing

    def and_also(self, one: Filter) -> "Narrowing":
        match getattr(one, "attribute", None):
            case ("partition",):
                first, last = _integers(one)
                return replace(
                    self,
                    first_partition=max(self.first_partition, first),
                    last_partition=min(self.last_partition, last),
                )
            case ("offset",):
                first, last = _integers(one)
                return self._with(Selection(first_offset=first, last_offset=last))
            case ("timestamp",):
                first, last = _milliseconds(one)
                return self._with(Selection(from_ms=first, until_ms=last))
            case ("timestampMs",):
                first, last = _integers(one)
                # As a number, a timestamp of -1 is in ranges.
                return self if first <= -1 <= last else self._with(Selection(from_ms=first, until_ms=last))
            case _:
                return self

    def _with(self, selection: Selection) -> "Narrowing":
        return replace(self, selection=self.selection.within(selection))

    def selection_of(self, partition: int) -> Selection | None:
        """Return the selected records of a partition; None: no record."""
        return self.selection if self.first_partition <= partition <= self.last_partition else None


def _integers(one: Filter) -> tuple[int, int]:
    """Return the first and last whole number that a filter lets through."""
    return _range(one, lambda value: value if isinstance(value, int) else None)


def _milliseconds(one: Filter) -> tuple[int, int]:
    """Return the first and last millisecond that a filter lets through. The filter compares microseconds: its bounds are rounded inwards."""
    first_us, last_us = _range(one, _microseconds)
    return -(-first_us // 1000) if first_us > FIRST_LONG else first_us, (
        last_us // 1000 if last_us < LAST_LONG else last_us
    )


def _microseconds(value: object) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


def _range(one: Filter, measured: Callable[[object], int | None]) -> tuple[int, int]:
    """Return the first and last value that a filter lets through; for an unsupported filter, the range of all values."""
    values = one.value if isinstance(one, In) else (getattr(one, "value", None),)
    numbers = [number for value in values if (number := measured(value)) is not None]
    if not numbers or len(numbers) < sum(value is not None for value in values):
        return _EVERY
    lowest, highest = min(numbers), max(numbers)
    match one:
        case EqualTo() | EqualNullSafe() | In():
            found = lowest, highest
        case GreaterThan():
            found = lowest + 1, LAST_LONG
        case GreaterThanOrEqual():
            found = lowest, LAST_LONG
        case LessThan():
            found = FIRST_LONG, highest - 1
        case LessThanOrEqual():
            found = FIRST_LONG, highest
        case _:
            found = _EVERY
    return found
