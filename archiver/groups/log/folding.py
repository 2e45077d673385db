"""Makes folds of `__consumer_offsets` (docs/format.md §12) from an earlier fold and the objects above it.

1. `plan_folds` finds partitions with new records, and refuses partitions with missing records.
2. `run_fold` reads, reduces, puts the object, reads it back, and compares; only then it puts the fact that makes it valid.
   If killed earlier, it leaves an object that no fact names, and that is not read.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.index.inventory import EMPTY_PARTITION, PartitionInventory, problems_of
from archiver.archive.segments.partition_segments import SegmentSlice, blocks_of
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.selection import FIRST_LONG, LAST_LONG
from archiver.errors import NotWholeError
from archiver.groups.log.archived_log import whole_frames
from archiver.groups.log.doubts import Below, unsettled_above
from archiver.groups.log.fold_object import (
    FOLD_DIGEST,
    MOST_FOLD_BYTES,
    FoldFacts,
    Sources,
    digest_of,
    encode_fold,
    merge_doubts,
)
from archiver.groups.log.folds import Fold, Folds, fold_frames, reaches_of
from archiver.groups.log.log_beginning import LogBeginning, begin_log, delete_retention_ms, first_seen_ms
from archiver.process.running.failpoints import reach
from archiver.store.port import ObjectKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPlan:
    """The records of a partition to fold."""

    topic: ArchivedTopic
    partition: int
    life: int
    start: int  # the end of the newest fold; 0: none
    next: int  # the end of the new fold: the end of the archive, or before it
    objects: int  # above the newest fold
    refusal: str  # why it cannot be folded; empty: it can

    @property
    def is_due(self) -> bool:
        return not self.refusal and self.next > self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFold:
    """A valid fold. `read`: the number of records read for it, above the previous fold."""

    key: str
    facts: FoldFacts
    read: int
    size_bytes: int


def plan_folds(topic: ArchivedTopic, folds: Folds) -> Iterator[FoldPlan]:
    """Plan a fold of each partition of the offsets topic. Reads only facts."""
    for number in sorted({*topic.partitions, *topic.damaged, *folds.partitions_of(topic)}):
        yield plan_fold(topic, folds, number)


def plan_fold(topic: ArchivedTopic, folds: Folds, number: int, until: int = MOST_OFFSET) -> FoldPlan:
    """Plan a fold of a partition up to an offset, or refuse it: the newest fold may already end at or above that offset."""
    reaches = reaches_of(topic, number)
    earlier = folds.newest(reaches, number)
    below = None if earlier is None else earlier.below
    start = 0 if below is None else below.next
    return FoldPlan(
        topic=topic,
        partition=number,
        life=reaches[0].life,
        start=start,
        next=topic.partitions.get(number, EMPTY_PARTITION).end if until == MOST_OFFSET else until,
        objects=len(_above(topic, number, start, until).readable),
        refusal=_refusal(topic, folds, number, below, until),
    )


def run_fold(folds: Folds, plan: FoldPlan) -> MadeFold:
    """Fold one partition. Raises NotWholeError or FalseFactsError for missing or damaged records: no fold is noted then."""
    topic, number = plan.topic, plan.partition
    beginning = begin_log(folds, topic, number, fills_in=False)
    if refusal := _refusal(topic, folds, number, beginning.below, plan.next):  # an earlier fold may be damaged
        raise NotWholeError(refusal)
    readings = _above(topic, number, beginning.next, plan.next).readable
    totals = _Totals(beginning)
    for frame, counts_ms in whole_frames(folds.archive.store, topic.topic, number, readings):
        totals.add(frame, counts_ms)
        beginning.log.add(frame)
    rows = beginning.log.finish()
    facts = FoldFacts(
        topic=topic.topic,
        life=plan.life,
        partition=number,
        next=plan.next,
        records=len(rows),
        others=beginning.others + rows.others,
        first_ms=totals.first_ms,
        last_ms=totals.last_ms,
        settled_ms=totals.settled_ms if totals.settled_ms > totals.last_ms else None,
        digest=digest_of(rows.frame),
        doubts=_doubts(topic, number, beginning, plan.next),
        sources=_sources(beginning.whole, readings),
    )
    key, size_bytes = _put(folds, facts, rows.frame)
    return MadeFold(key=key, facts=facts, read=totals.records, size_bytes=size_bytes)


def _above(topic: ArchivedTopic, number: int, start: int, until: int) -> PartitionInventory:
    """Return the objects between two offsets. Missing offsets behind the last object are included up to the end."""
    whole = topic.partitions.get(number, EMPTY_PARTITION)
    rest = whole.from_offset(start)
    return rest.below(until) if until < whole.end else rest


def _refusal(topic: ArchivedTopic, folds: Folds, number: int, below: Below | None, until: int) -> str:
    """Return why the log above a fold, or the whole log, cannot be folded up to an offset; empty: it can."""
    start = 0 if below is None else below.next
    if start >= until:
        return f"{topic.topic}-{number}: is folded up to offset {start} already, and a fold up to {until} cannot come behind that"
    name = f"{topic.topic}-{number}"
    beyond = folds.beyond(reaches_of(topic, number), number)
    if beyond is not None:
        return f"{name}: the fold {beyond.key} ends at offset {beyond.facts.next}, beyond all that is archived; find out who put it"
    rest = _above(topic, number, start, until)
    problems = problems_of(topic.topic, number, rest, topic.damaged.get(number, ()))
    if problems:
        return "; ".join(problems)
    why = f"offsets {missing} are in no object and in no fold" if (missing := _missing(rest, start)) else ""
    if not why and any(len(block.segments.of_v1) for block in blocks_of(rest.readable)):
        why = "there are objects of v1.0, which do not tell what they lack"
    if why:
        return f"{name}: {why}; it is only folded where nothing is missing"
    # While a survivor of compaction may be behind the archive's end, a fold would keep this doubt forever.
    whole = topic.partitions.get(number, EMPTY_PARTITION)
    unsettled = unsettled_above(whole, start, delete_retention_ms(topic), first_seen_ms(topic), below)
    if unsettled and unsettled[0].first < until:
        return (
            f"{name}: of offsets {unsettled[0].first}-{unsettled[0].last} compaction took records, and what took their place may lie"
            f" behind offset {whole.end - 1}, where the archive ends; back up again first"
        )
    return ""


def _missing(rest: PartitionInventory, start: int) -> str:
    """Return the offsets in no object that are not lost: swept, or before the beginning of an archive of v1.0."""
    begin = rest.readable[0].from_offset if rest.readable else start
    behind = [str(gap) for gap in rest.swept if gap.first_offset >= begin]
    return ", ".join([f"{start}-{begin - 1}", *behind] if begin > start else behind)


class _Totals:
    """Counts records, and keeps the time of the oldest and the newest."""

    def __init__(self, beginning: LogBeginning) -> None:
        self.records = 0
        self.first_ms = LAST_LONG if beginning.first_ms is None else beginning.first_ms
        self.last_ms = FIRST_LONG if beginning.last_ms is None else beginning.last_ms
        self.settled_ms = FIRST_LONG if beginning.whole is None else beginning.whole.facts.counts_ms

    def add(self, frame: Frame, counts_ms: Longs) -> None:
        times = frame.column(Column.TIMESTAMP)
        self.records += len(frame)
        self.first_ms, self.last_ms = min(self.first_ms, int(times.min())), max(self.last_ms, int(times.max()))
        self.settled_ms = max(self.settled_ms, int(counts_ms.max()))


def _doubts(
    topic: ArchivedTopic, number: int, beginning: LogBeginning, until: int
) -> tuple[tuple[int, int, bool], ...]:
    """Return the doubts to note in a fold: records missing in its sources are also missing in the fold."""
    found = beginning.all_doubts(topic, number)
    return merge_doubts([one._replace(last=min(one.last, until - 1)) for one in found if one.first < until])


def _sources(earlier: Fold | None, readings: Sequence[SegmentSlice]) -> Sources:
    content_ids = [one for block in blocks_of(readings) for one in block.segments.content_ids()]
    return Sources(
        earlier_next=0 if earlier is None else earlier.facts.next,
        earlier_sha256="" if earlier is None else earlier.sha256,
        objects=len(content_ids),
        objects_sha256=hashlib.sha256("".join(f"{one}\n" for one in content_ids).encode()).hexdigest(),
    )


def _put(folds: Folds, facts: FoldFacts, frame: Frame) -> tuple[str, int]:
    """Put the object, read it back, and note it, in this order. Returns its key and its size."""
    archive = folds.archive
    content = encode_fold(facts, frame)
    sha256 = hashlib.sha256(content).hexdigest()
    key, size_bytes = archive.layout.fold_key(facts.key(sha256)), len(content)
    if size_bytes > MOST_FOLD_BYTES:
        raise NotWholeError(f"{key}: would have {size_bytes:,} bytes, and readers take {MOST_FOLD_BYTES:,}")
    archive.store.put_if_absent(key, content, {FOLD_DIGEST: sha256}, kind=ObjectKind.FACT)
    del content
    reach("fold.put")
    for _ in fold_frames(archive, Fold(key, facts, sha256)):  # compares its bytes and the digest of its records
        pass
    reach("fold.compared")
    folds.note(facts, sha256)
    reach("fold.noted")
    return key, size_bytes
