"""Compares folds of `__consumer_offsets` with the objects below their ends, for sweeps and `verify`."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.handle import Archive
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.errors import FalseFactsError, NotWholeError
from archiver.groups.log.archived_log import whole_frames
from archiver.groups.log.commit_log import CommitLog
from archiver.groups.log.folds import Fold, Folds, fold_frames, reaches_of
from archiver.groups.log.log_beginning import rows_within
from archiver.groups.positions.offsets_lives import find_offsets_lives
from archiver.process.running.workers import side_by_side

_READS_AT_ONCE: Final = 2


def prove_fold(archive: Archive, topic: ArchivedTopic, number: int, fold: Fold, earlier: Fold | None = None) -> None:
    """Compare a fold with the objects below its end. Raises NotWholeError if it lacks a record of these, or has another one.

    `earlier`: a proved fold that ends before this one. It replaces the objects below its own end.
    """
    folded, log, position = CommitLog(), CommitLog(), 0
    for frame in fold_frames(archive, fold):
        folded.add(frame)
    told = folded.finish().frame
    if earlier is not None:
        for frame in fold_frames(archive, earlier):
            log.add(frame)
        position = earlier.facts.next
    whole = topic.partitions.get(number, EMPTY_PARTITION).below(fold.facts.next)
    for reading in whole.from_offset(position).readable:
        log.add(rows_within(told, position, reading.from_offset))  # records of objects that earlier sweeps deleted
        for frame, _ in whole_frames(archive.store, topic.topic, number, [reading]):
            log.add(frame)
        position = reading.next
    log.add(rows_within(told, position, fold.facts.next))
    found = log.finish().frame
    if not (np.array_equal(found.table, told.table) and np.array_equal(found.body, told.body)):
        raise NotWholeError(
            f"{fold.key}: does not hold what the objects below offset {fold.facts.next} hold. Find out who put it, and delete it"
            " and its note"
        )


def check_folds(archive: Archive) -> list[str]:
    """Compare each fold with the existing objects. Returns differences, and unreadable objects."""
    unreadable: list[str] = []
    folds = Folds.of(archive, unreadable.append)
    if not folds.numbers:
        return []
    places = [(topic, number) for topic in find_offsets_lives(archive) for number in folds.partitions_of(topic)]
    found = side_by_side(
        _READS_AT_ONCE, lambda place: list(_problems_of_partition(archive, folds, *place)), places, "folds"
    )
    return [*dict.fromkeys([*unreadable, *(problem for some in found for problem in some)])]


def _problems_of_partition(archive: Archive, folds: Folds, topic: ArchivedTopic, number: int) -> Iterator[str]:
    reaches, earlier = reversed(reaches_of(topic, number)), None
    found = (fold for life, end in reaches for fold in folds.of_life(life, number) if fold.facts.next <= end)
    for fold in found:  # their ends rise
        if earlier is not None and fold.facts.next <= earlier.facts.next:
            earlier = None
        try:
            prove_fold(archive, topic, number, fold, earlier)
        except (NotWholeError, FalseFactsError) as error:
            yield str(error)
        else:
            earlier = fold
