"""Counts the wanted records of planned objects by their facts, exactly or as two bounds. Restores use it."""

from typing import NamedTuple

import numpy as np

from archiver.archive.segments.parts import FactsOfParts
from archiver.codec.selection import FIRST_LONG, LAST_LONG, NO_TIMESTAMP, Selection
from archiver.process.values.columns import Numbers, total


class Count(NamedTuple):
    """A number of records, as exact as the facts of objects allow."""

    at_least: int
    at_most: int

    def __str__(self) -> str:
        exact = self.at_least == self.at_most
        return f"{self.at_most:,}" if exact else f"{self.at_least:,} to {self.at_most:,}"

    def __bool__(self) -> bool:
        return self.at_most > 0


def count_records(
    facts: FactsOfParts, selection: Selection, first_ms: int = FIRST_LONG, last_ms: int = LAST_LONG
) -> Count:
    """Count records within a time, by the first and last timestamp of each object: two records have these, all others are between."""
    earliest, latest, records = (
        facts.numbers(name).astype(np.int64) for name in ("min_timestamp", "max_timestamp", "records")
    )
    lowest, highest = max(selection.from_ms, first_ms), min(selection.until_ms, last_ms)
    if lowest > highest:
        return Count(0, 0)
    may_hold = (earliest <= highest) & (latest >= lowest) & (earliest <= latest)
    is_exact = facts.numbers("is_exact") & _are_selected(selection, earliest) & _are_selected(selection, latest)
    ends = 1 + (earliest != latest)
    inside = _are_within(earliest, first_ms, last_ms).astype(np.int64)
    inside += _are_within(latest, first_ms, last_ms) & (earliest != latest)
    at_least = np.where(is_exact, np.where(inside == ends, records, inside), 0)
    at_most = np.where(is_exact, records - (ends - inside), records)
    return Count(total(at_least[may_hold]), total(at_most[may_hold]))


def _are_within(times: Numbers, first_ms: int, last_ms: int) -> Numbers:
    found: Numbers = (times >= first_ms) & (times <= last_ms)
    return found


def _are_selected(selection: Selection, times: Numbers) -> Numbers:
    """Return for each timestamp whether the selection has it, as Selection.has does for one record."""
    if not selection.has_times:
        return np.ones(len(times), bool)
    found: Numbers = (times != NO_TIMESTAMP) & _are_within(times, selection.from_ms, selection.until_ms)
    return found
