"""Maps a group to its partition of `__consumer_offsets`, and finds the time up to which each partition is archived."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from archiver.archive.index.inventory import EMPTY_PARTITION, PartitionInventory
from archiver.archive.notes.topics import LogEnd, TopicFact
from archiver.config.quantities import spell_time
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.output.text import spell_count, spell_some

_MOST_NAMED: Final = 10  # partitions, in one line
_SIGN: Final = 1 << 31


def offsets_partition(group: str, partitions: int) -> int | None:
    """Return the partition that brokers choose: by Java's hash of the name. None: brokers cannot have such a name."""
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


class Lag(NamedTuple):
    """A partition whose archive ends before the noted end of its log."""

    partition: int
    until_ms: int  # it is complete up to this time; -1: unknown
    archived: int  # the end of the archive
    end: LogEnd | None  # None: no backup has begun this partition

    def __str__(self) -> str:
        until = "" if self.until_ms < 0 else f", of {spell_time(self.until_ms)}"
        log = "no backup has opened it"
        if self.end is not None:
            log = f"its log ended at offset {self.end.offset} at {spell_time(self.end.at_ms)}"
        return f"{self.partition} (archived up to offset {self.archived}{until}; {log})"


def lags_of(
    fact: TopicFact | None, life: int, partitions: Mapping[int, PartitionInventory], last_ms: Mapping[int, int | None]
) -> list[Lag]:
    """List the partitions that lag. `last_ms`: the time of the newest archived record of each partition, if known."""
    if fact is None or not fact.ends or fact.root(life) != fact.root(fact.current.life):
        return []
    found = list[Lag]()
    for number in range(fact.partitions):
        archived, end = partitions.get(number, EMPTY_PARTITION).end, fact.ends.get(number)
        if end is None or archived < end.offset:
            times = last_ms.get(number), None if end is None else end.whole_ms
            found.append(Lag(number, max(-1 if at_ms is None else at_ms for at_ms in times), archived, end))
    return found


def lagging_problem(lags: Sequence[Lag]) -> str:
    """Describe the lagging partitions, the consequence, and the remedy."""
    named = spell_some([*map(str, lags)], _MOST_NAMED)
    return (
        f"{OFFSETS_TOPIC}: {spell_count(len(lags), 'partition is', 'partitions are')} archived only in part: {named}. Positions of groups"
        " there are unknown, and groups may be missing. A backup was killed, or has not come so far yet, or a transaction holds the"
        " log back (`archiver groups show --against-kafka` names it); back up again"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedUntil:
    """The time up to which each partition of the offsets topic is archived: the time of its newest record; -1: it has none."""

    partitions: int | None  # their number in the topic; None: unknown
    last_ms: Mapping[int, int]
    lags: Mapping[int, Lag] = field(default_factory=dict)  # as of the requested time, by partition

    def of(self, group: str) -> int | None:
        """Return the time up to which a group's positions are archived; None: not archived. If its partition is unknown, the latest time of all."""
        number = self._partition(group)
        if number is None:
            return max(self.last_ms.values(), default=None)
        lag = self.lags.get(number)
        return self.last_ms.get(number) if lag is None else max(lag.until_ms, self.last_ms.get(number, -1))

    def lags_for(self, group: str) -> bool:
        """Return whether positions of a group may be missing, because its partition (or any, if unknown) lags."""
        number = self._partition(group)
        return bool(self.lags) if number is None else number in self.lags

    def _partition(self, group: str) -> int | None:
        known = self.partitions is not None and self.partitions > max(self.last_ms, default=-1)
        return offsets_partition(group, self.partitions) if known and self.partitions else None
