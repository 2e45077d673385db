"""What the archive has of one partition of `__consumer_offsets`: what its records still say, and what may be missing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from archiver.archive.archived_topic import ArchivedTopic, problems_within
from archiver.archive.inventory import EMPTY_PARTITION
from archiver.archive.parts import FactsOfParts, ObjectPart, parts_within, with_planned
from archiver.archive.reader import read_parts
from archiver.codec.frame import Column, Frame
from archiver.codec.selection import ALL_RECORDS, LAST_LONG, Selection
from archiver.errors import NotWholeError
from archiver.groups.commit_log import CommitRows
from archiver.groups.doubts import Doubt, Doubts, doubts_above
from archiver.groups.folds import Folds
from archiver.groups.log_beginning import begin_log
from archiver.store.port import ObjectStore

_DELETE_RETENTION_MS: Final = 86_400_000  # Kafka's default, where the topic has none of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedLog:
    """One partition of the offsets topic, as the archive has it."""

    partition: int
    rows: CommitRows
    doubts: Doubts
    cut: int  # the first offset of a record that is later than the time that was asked for; else the end
    next: int  # the end of what is archived
    first_ms: int | None  # of the oldest record and of the newest; None: there is none
    last_ms: int | None
    fold_next: int = 0  # what lies below was read from folds
    is_filled_in: bool = (
        False  # some of that lacks superseded commits: where a position was removed does not tell what else stood
    )


def read_log(
    store: ObjectStore,
    topic: ArchivedTopic,
    number: int,
    until_ms: int,
    report_problem: Callable[[str], None],
    folds: Folds | None = None,
) -> ArchivedLog:
    """Read a partition whole, its beginning from folds where they have it. What cannot be read is reported, and is a doubt."""
    beginning = begin_log(folds, topic, number, until_ms)
    whole = topic.partitions.get(number, EMPTY_PARTITION)
    inventory = whole.from_offset(beginning.next)
    for problem in problems_within(topic, number, Selection(first_offset=beginning.next)):
        report_problem(problem)
    parts = parts_within(inventory.readable, ALL_RECORDS)
    log, times = beginning.log, _Times(until_ms, beginning.first_ms, beginning.last_ms)
    doubts = [*beginning.doubts, *doubts_above(whole, beginning.next, delete_retention_ms(topic))]
    if topic.damaged.get(number):  # an object of which nobody knows what it covers
        doubts.append(Doubt(beginning.next, LAST_LONG - 1, needs_later=False))
    for part in with_planned(parts, FactsOfParts.of_parts(parts, inventory.readable)):
        try:
            for frame in read_parts(store, topic.topic, number, [part]):
                times.add(frame)
                log.add(frame)
        except NotWholeError as error:
            report_problem(f"{topic.topic}-{number}: {error}")
            doubts.append(_unread(part))
    rows = log.finish()
    return ArchivedLog(
        partition=number,
        rows=replace(rows, others=rows.others + beginning.others),
        doubts=Doubts(sorted(doubts)),
        cut=max(inventory.end, beginning.next) if times.cut is None else times.cut,
        next=max(inventory.end, beginning.next),
        first_ms=times.first_ms,
        last_ms=times.last_ms,
        fold_next=beginning.next,
        is_filled_in=beginning.is_filled_in,
    )


def _unread(part: ObjectPart) -> Doubt:
    return Doubt(part.from_offset, (part.end_offset or LAST_LONG) - 1, needs_later=False)


def delete_retention_ms(topic: ArchivedTopic) -> int:
    configs: Mapping[str, str] = {} if topic.fact is None else topic.fact.configs
    told = configs.get("delete.retention.ms", "")
    return int(told) if told.isdecimal() else _DELETE_RETENTION_MS


class _Times:
    """The times of records, and where the first one lies that is later than a time."""

    def __init__(self, until_ms: int, first_ms: int | None, last_ms: int | None) -> None:
        self._until_ms = until_ms
        self.cut: int | None = None
        self.first_ms = first_ms
        self.last_ms = last_ms

    def add(self, frame: Frame) -> None:
        times = frame.column(Column.TIMESTAMP)
        first, last = int(times.min()), int(times.max())
        self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
        self.last_ms = last if self.last_ms is None else max(self.last_ms, last)
        if self.cut is None and last > self._until_ms:
            self.cut = int(frame.column(Column.OFFSET)[np.argmax(times > self._until_ms)])
