"""The folds that replace swept objects of `__consumer_offsets`: chosen with the plan, written and read back before any delete.

1. A fold covers the deleted objects: it ends at the end of an object, at or above the end of each deleted one. It has no record
   later than the time from which on positions must stay known, so that a reader of any later time begins with it or a later fold.
2. The sweep's own fold ends as far up as possible. If the newest fold already ends there or above, no fold can be put before it:
   then an earlier one limits the deletes.
3. Before the first batch of a partition, the fold is compared with the objects below its end: it must have their contents.
4. Before each batch, the fold is read back whole, as a reader of that time would.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.segments.partition_segments import blocks_of
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.config.quantities import spell_time
from archiver.errors import NotWholeError
from archiver.groups.log.folding import plan_fold, run_fold
from archiver.groups.log.folds import Fold, Folds, Reach, fold_frames, reaches_of
from archiver.groups.positions.fold_proof import prove_fold
from archiver.process.output.text import spell_count
from archiver.upkeep.retention.planning.partition_verdict import GoingItem, Staying
from archiver.upkeep.retention.planning.survey import PartitionSweep


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveringFolds:
    """Folds of the offsets topic, as it was listed. Positions must stay known as of `known_ms` and any later time."""

    archive: Archive
    topic: ArchivedTopic
    known_ms: int
    _proved: set[str] = field(default_factory=set)  # hashes of the folds that were compared with their objects

    def choose(self, sweep: PartitionSweep, folds: Folds) -> PartitionSweep:
        """Plan to delete only objects of a partition that a fold replaces, or will. Writes nothing."""
        if not sweep.going:
            return sweep
        coverable = self._coverable(sweep)
        until, refusal = self._own_end(sweep.partition, coverable, folds)
        standing = None if until else self._standing(sweep.partition, folds)
        fold_next = until if standing is None else standing.facts.next
        going = tuple(one for one in coverable if one.told.next <= fold_next)
        kept = len(sweep.going) - len(going)
        staying = {**sweep.staying, Staying.UNFOLDED: kept} if kept else sweep.staying
        notes = [self._covered_note(going, fold_next, is_own=bool(until))] if going else []
        if kept:
            why = refusal or "they belong to a history of the log that was cut back"
            count = spell_count(kept, "object stays", "objects stay")
            notes.append(f"{count} that may go by age, for no fold can stand for what they have: {why}")
        return replace(
            sweep,
            going=going,
            staying=staying,
            unforeseen_bytes=min(sweep.unforeseen_bytes, sum(one.item.size for one in going)),
            fold_next=fold_next if going else 0,
            notes=(*sweep.notes, *notes),
        )

    def ensure(self, sweep: PartitionSweep) -> None:
        """Create the fold that replaces the deleted objects, unless it exists; read it back. Raises NotWholeError, or FalseFactsError."""
        number, problems = sweep.partition, list[str]()
        folds = self._folds(number, problems)
        newest = folds.newest(self._reaches(number), number)
        if newest is None or newest.facts.next < sweep.fold_next:
            run_fold(folds, plan_fold(self.topic, folds, number, sweep.fold_next))
            folds = self._folds(number, problems)
        fold = folds.newest(self._reaches(number), number, until_ms=self.known_ms)
        if fold is None or fold.facts.next < sweep.fold_next:
            told = f": {problems[0]}" if problems else ""
            raise NotWholeError(
                f"{self.topic.topic}-{number}: no fold of before {spell_time(self.known_ms)} reaches up to offset"
                f" {sweep.fold_next}, as the one does that is to stand for what goes; nothing more of it goes{told}"
            )
        if fold.sha256 in self._proved:
            for _ in fold_frames(self.archive, fold):
                pass
        else:
            prove_fold(self.archive, self.topic, number, fold)
            self._proved.add(fold.sha256)

    def _reaches(self, number: int) -> Sequence[Reach]:
        return reaches_of(self.topic, number)

    def _folds(self, number: int, problems: list[str]) -> Folds:
        lives = [reach.life for reach in self._reaches(number)]
        return Folds.of_partition(self.archive, lives, number, problems.append)

    def _coverable(self, sweep: PartitionSweep) -> Sequence[GoingItem]:
        """Leave out objects above the point where a life's log was cut back: no fold that is read has them."""
        ends = {reach.life: reach.until_offset for reach in self._reaches(sweep.partition)}
        return [one for one in sweep.going if one.told.next <= ends.get(one.item.life, 0)]

    def _own_end(self, number: int, going: Sequence[GoingItem], folds: Folds) -> tuple[int, str]:
        """Return where the sweep's own fold ends (0: no fold possible), and why it cannot end further up."""
        newest = folds.newest(self._reaches(number), number)
        start = 0 if newest is None else newest.facts.next
        ends = sorted({one.told.next for one in going})
        above = [end for end in ends if end > start]
        if newest is not None and newest.facts.counts_ms > self.known_ms:
            above = []  # folds after it are as young, and replace nothing yet
        young_from = self._young_from(number, start)

        def refusal(end: int) -> str:
            if end > young_from:
                return f"offset {young_from} and those behind it have records that are younger than they may be, or of the future"
            return plan_fold(self.topic, folds, number, end).refusal

        # Whatever refuses a fold refuses one that ends further up.
        count = bisect_left(above, True, key=lambda end: bool(refusal(end)))
        if count < len(above):
            return above[count - 1] if count else 0, refusal(above[count])
        if not above and newest is not None and newest.facts.counts_ms > self.known_ms:
            return 0, (
                f"the newest one, up to offset {start}, has records of {spell_time(newest.facts.counts_ms)}; when these are old"
                " enough, it stands for all below it"
            )
        return above[-1] if above else 0, ""

    def _young_from(self, number: int, start: int) -> int:
        """Return the first offset whose records are too young: from there on positions must stay known."""
        inventory = self.topic.partitions.get(number, EMPTY_PARTITION).from_offset(start)
        for reading in inventory.readable:
            facts = reading.segment.facts
            if isinstance(facts, SegmentFacts) and facts.max_timestamp > self.known_ms:
                return reading.from_offset
        return MOST_OFFSET

    def _standing(self, number: int, folds: Folds) -> Fold | None:
        """Return the newest fold that a reader of the time begins with, if it ends where objects meet."""
        fold = folds.newest(self._reaches(number), number, until_ms=self.known_ms)
        if fold is None:
            return None
        blocks = blocks_of(self.topic.partitions.get(number, EMPTY_PARTITION).readable)
        meets = any(np.isin(fold.facts.next, np.concatenate([one.from_offset, one.next])) for one in blocks)
        return fold if meets else None

    def _covered_note(self, going: Sequence[GoingItem], fold_next: int, *, is_own: bool) -> str:
        what = "a fold that is written first" if is_own else "the fold"
        return f"{what}, up to offset {fold_next}, stands for {spell_count(len(going), 'object')} to delete"
