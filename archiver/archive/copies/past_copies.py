"""Reads a topic's copies as of a time: for each partition a copy that was complete then and still exists. copied_topic uses it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from archiver.archive.copies.archived_topic import CopyRange, CopyReading
from archiver.archive.copies.partition_copies import (
    CopyReader,
    History,
    LifeEntry,
    ReadPartition,
    is_whole_until,
    join_read,
)
from archiver.archive.copies.role_logs import RoleLogs
from archiver.archive.copies.roles import CompleteCopy, RoleEntry
from archiver.archive.segments.partition_segments import segment_blocks
from archiver.errors import NotWholeError, UsageError

_CLOCK: Final = timedelta(seconds=1)  # stores return put times in whole seconds
_FIRST_MOMENT: Final = datetime.min.replace(tzinfo=UTC)
_LAST_MOMENT: Final = datetime.max.replace(tzinfo=UTC)


class PastCopies:
    """The copies of one topic as of a time. `history` reads the objects under `topics/`."""

    def __init__(self, logs: RoleLogs, reader: CopyReader, history: History) -> None:
        self._logs = logs
        self._reader = reader
        self._history = history

    def read(
        self, read: Mapping[int, ReadPartition], entries: Mapping[int, LifeEntry], as_of_ms: int
    ) -> dict[int, ReadPartition]:
        """Return for each partition a reading that was complete at a time. Raises UsageError."""
        moment = _moment(as_of_ms)
        found: dict[int, ReadPartition] = {}
        earliest: dict[int, datetime] = {}
        for number, (life, entry) in entries.items():
            since = self._first_moment(life, number, entry)
            then = read[number] if since <= moment else self._earlier(life, number, moment, read[number])
            if then is None:
                earliest[number] = since
            else:
                found[number] = then
        if earliest:
            number, latest = max(earliest.items(), key=lambda one: one[1])
            raise UsageError(
                f"{self._logs.topic}: the archive has no state as of then: the copy that is read of partition {number} was complete at"
                f" {latest:%Y-%m-%dT%H:%M:%SZ}, and older values may have been compacted before; take --until"
                f" {latest:%Y-%m-%dT%H:%M:%SZ} or later, or --history for what was archived under topics/"
            )
        for number, false in self._reader.false_switches(entries).items():
            if false not in (then := found[number]).damaged:
                found[number] = then._replace(damaged=[*then.damaged, false])
        return found

    def _first_moment(self, life: int, number: int, entry: RoleEntry) -> datetime:
        """Return a time when the current copy was already complete. `topics/` is complete from its beginning."""
        if not isinstance(entry.holder, CompleteCopy) or entry.switched is None:
            return _FIRST_MOMENT
        put = self._logs.put_by(life, number, entry.switched)
        return _LAST_MOMENT if put is None else put + _CLOCK

    def _earlier(self, life: int, number: int, moment: datetime, present: ReadPartition) -> ReadPartition | None:
        """Return the copy that was current at a time, if it still exists and reached that time, followed by the present reading."""
        numbers = self._logs.numbers(life, number)
        then = max((one for one, put in numbers.items() if put + _CLOCK <= moment), default=None)
        told = None if then is None else self._logs.entry(life, number, then)
        if isinstance(told, NotWholeError):
            return None
        if told is not None and isinstance(told.holder, CompleteCopy):
            read, until = self._reader.read_alone(number, life, told.holder), told.holder.next
        else:
            inventory, damaged = self._history(life, number, 0)
            reading = CopyReading(stretches=(CopyRange(None, life, 0),))
            read, until = ReadPartition(inventory, damaged, reading, inventory.end), inventory.end
        joined = join_read(read, present)
        puts = [some.last_put for some in segment_blocks(read.inventory.segments) if some.last_put is not None]
        has_reached = joined is read or max(puts, default=moment - _CLOCK) >= moment
        return joined if has_reached and is_whole_until(read, until) else None


def _moment(at_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return _LAST_MOMENT if at_ms > 0 else _FIRST_MOMENT
