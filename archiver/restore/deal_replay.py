"""How many records of a source partition, below some of its offsets, were dealt to each target partition: the deal is done again, and nothing is sent.

Needs no Spark; what a task is given is plain and picklable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from archiver.archive.handle import patient_archive_of
from archiver.archive.parts import ObjectPart
from archiver.archive.record_counts import Count
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.kernels.murmur2 import Partitioner
from archiver.codec.selection import Selection
from archiver.codec.tally import Tally
from archiver.config.model import StorageConfig
from archiver.errors import NotWholeError
from archiver.process.columns import Numbers, narrow
from archiver.process.text import spell_count
from archiver.restore.claims import Contents
from archiver.restore.repartition_source import read_dealt
from archiver.restore.task import TaskReport, failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """All that a task needs to do the deal of one source partition again."""

    restore_id: str
    storage: StorageConfig
    source_topic: str
    target_topic: str
    partition: int  # of the source
    parts: Sequence[ObjectPart]
    selection: Selection
    wanted: Count  # records, as far as facts of objects tell
    appends: bool
    skipped: tuple[str, ...]  # damaged objects that the restore has left out
    noted: Contents | None  # what the restore dealt of this source, by its claim; None: it has no claim on the source
    target_partitions: int
    offsets: Longs  # of the source, rising

    @property
    def skips_damage(self) -> bool:
        """Whatever was asked for, the skipped objects were left out: the digest of the others shows that."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a source partition has dealt to each target partition; nothing when that could not be found out."""

    target_topic: str
    partition: int  # of the source
    dealt: Numbers  # by target
    below: Numbers  # [offset, target]: of that, what lies below each offset of the task
    failure: TaskReport | None = None


def run_replay(task: ReplayTask) -> Replay:
    """Deal out a source partition once more. Errors come back as a report, so that the other partitions go on."""
    try:
        return _replay(task)
    except Exception as error:  # noqa: BLE001 - also a defect: the partitions beside this one go on all the same
        nothing = np.empty(0, np.int64)
        where = f"{task.source_topic}-{task.partition} into {task.target_topic}"
        failure = failed(task.target_topic, task.partition, error, where)
        return Replay(
            target_topic=task.target_topic, partition=task.partition, dealt=nothing, below=nothing, failure=failure
        )


def _replay(task: ReplayTask) -> Replay:
    total = Tally()
    frames = read_dealt(patient_archive_of(task.storage), task, task.skipped, None, total)
    dealt, below = count_dealt(_rising(frames, task), task.target_partitions, task.partition, task.offsets)
    noted = task.noted
    if noted is None or (total.records, total.digest) != (noted.records, noted.digest):
        then = "none" if noted is None else f"{noted.records} of {noted.digest:016x}"
        raise NotWholeError(
            f"the archive gives {spell_count(total.records, 'record')} of digest {total.digest:016x} for what the restore had"
            f" planned, and the restore has dealt {then}: the archive has changed since. Bring it back to what it was, or"
            " restore under another name with --rename and another --id"
        )
    return Replay(target_topic=task.target_topic, partition=task.partition, dealt=narrow(dealt), below=_narrow(below))


def count_dealt(frames: Iterator[Frame], targets: int, source: int, offsets: Longs) -> tuple[Longs, Longs]:
    """Count the records of a source that go to each target: all of them, and [offset, target] those below each of the rising offsets."""
    partitioner = Partitioner(targets, source)
    dealt, below = np.zeros(targets, np.int64), np.empty((len(offsets), targets), np.int64)
    done = 0
    for frame in frames:
        own, chosen = frame.column(Column.OFFSET), partitioner.choose(frame)
        after = done + int(np.searchsorted(offsets[done:], own[-1], side="right"))
        # Each record counts for the wanted offsets behind it: the rows are cut there, and the pieces added up.
        cuts = np.searchsorted(own, offsets[done:after])
        pieces = np.searchsorted(cuts, np.arange(len(own)), side="right")
        counts = np.bincount(pieces * targets + chosen, minlength=(len(cuts) + 1) * targets)
        sums = dealt + np.cumsum(counts.reshape(len(cuts) + 1, targets), axis=0)
        below[done:after], dealt, done = sums[:-1], sums[-1], after
    below[done:] = dealt
    return dealt, below


def _rising(frames: Iterator[Frame], task: ReplayTask) -> Iterator[Frame]:
    """Refuse objects that are not in the order of their offsets: no restore has planned them so."""
    last = -1
    for frame in frames:
        first = int(frame.table[Column.OFFSET, 0])
        if first <= last:
            raise NotWholeError(
                f"control/restores/{task.restore_id}/{task.target_topic}/plan/ (the newest): plans offset {first} behind"
                f" {last}; no restore has noted that. See who wrote it"
            )
        last = int(frame.table[Column.OFFSET, -1])
        yield frame


def _narrow(below: Longs) -> Numbers:
    """Return the counts in the narrowest type: they are of each offset and each target partition."""
    return narrow(below.reshape(-1)).reshape(below.shape)
