"""Notes and finds the folds of `__consumer_offsets` (docs/format.md §12). Readers begin with the fold found for their time.

The facts of a stream rise: a later fold covers more offsets, and its newest record is no older. So a binary search finds the
last usable fold; each used fold is checked.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

from pydantic import Field, Strict

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.control import list_numbers, newest_numbers, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import FOLDS, is_partition_number
from archiver.archive.format.note_stream import NoteKind
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.notes.topics import LifeRange
from archiver.codec.frame import Frame
from archiver.codec.selection import LAST_LONG
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.groups.log.doubts import Below
from archiver.groups.log.fold_object import HOW_TO_MEND, MOST_FOLD_BYTES, FoldFacts, read_fold

ReportProblem = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldFact:
    """The note of a fold that was put and read back. The key of the fold follows from the members."""

    fold: FoldFacts
    object_sha256: Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{64}$")]


class Fold(NamedTuple):
    """A fold that a fact names."""

    key: str
    facts: FoldFacts
    sha256: str

    @property
    def below(self) -> Below:
        """The fold's record about the log below its end."""
        return Below(self.facts.next, self.facts.last_ms)


class Reach(NamedTuple):
    """The offset up to which folds of a partition in one life are valid: above it, a later life continues."""

    life: int
    until_offset: int


def fold_stream(life: int, partition: int) -> str:
    return f"{FOLDS}/{life}/{partition}"


_KIND: Final = NoteKind(
    FoldFact,
    "a fold",
    "bring its older version back",
    lambda noted: fold_stream(noted.fold.life, noted.fold.partition),
)


def reaches_of(topic: ArchivedTopic, partition: int) -> list[Reach]:
    """Return the lives of a partition's log, the newest first, each with its end; the newest ends with the archive."""
    stretches = [LifeRange(topic.life, 0, None)] if topic.fact is None else topic.fact.lineage(topic.life, partition)
    found, limit = list[Reach](), topic.partitions.get(partition, EMPTY_PARTITION).end
    for stretch in reversed(stretches):
        limit = limit if stretch.until_offset is None else min(limit, stretch.until_offset)
        found.append(Reach(stretch.life, limit))
    return found


@dataclass(frozen=True, slots=True)
class Folds:
    """The folds of an archive. An unreadable or damaged fold is reported once, and left out."""

    archive: Archive
    numbers: Mapping[str, int]  # of the newest fact, by stream
    report_problem: ReportProblem
    damaged: set[str] = field(default_factory=set)  # keys of folds
    _read: dict[tuple[str, int], Fold | None] = field(default_factory=dict)

    @classmethod
    def of(cls, archive: Archive, report_problem: ReportProblem) -> "Folds":
        """List the folds; read them on demand."""
        return cls(archive, newest_numbers(archive, FOLDS), report_problem)

    @classmethod
    def of_partition(
        cls, archive: Archive, lives: Iterable[int], partition: int, report_problem: ReportProblem
    ) -> "Folds":
        """List the folds of one partition in these lives."""
        numbers: dict[str, int] = {}
        for stream in (fold_stream(life, partition) for life in lives):
            if listed := list_numbers(archive, stream):
                numbers[stream] = listed[-1]
        return cls(archive, numbers, report_problem)

    def partitions_of(self, topic: ArchivedTopic) -> set[int]:
        """List the partitions with a fold in the life of a topic, or in a life that it continues."""
        fact = topic.fact
        lives = [topic.life] if fact is None else fact.lives_of(fact.root(topic.life))
        parents = {f"{FOLDS}/{life}" for life in lives}
        names = (stream.rpartition("/") for stream in self.numbers)
        return {int(name) for parent, _, name in names if parent in parents and is_partition_number(name)}

    def newest(
        self,
        reaches: Sequence[Reach],
        partition: int,
        *,
        until_ms: int = LAST_LONG,
        above: int = 0,
    ) -> Fold | None:
        """Return the largest fold whose records all count by a time, and whose end is above an offset."""
        for life, limit in reaches:
            stream = fold_stream(life, partition)
            end = self._first(stream, lambda one, limit=limit: one.next > limit or one.counts_ms > until_ms)  # type: ignore[misc]
            for fold in self._among(stream, range(end - 1, -1, -1)):
                if fold.facts.next <= above:
                    break
                if fold.facts.next <= limit and fold.facts.counts_ms <= until_ms:
                    return fold
        return None

    def smallest(self, reaches: Sequence[Reach], partition: int, at_least: int) -> Fold | None:
        """Return the smallest fold that reaches up to an offset."""
        for life, limit in reversed(reaches):
            stream = fold_stream(life, partition)
            start = self._first(stream, lambda one: one.next >= at_least)
            for fold in self._among(stream, range(start, self.numbers.get(stream, -1) + 1)):
                if fold.facts.next > limit:
                    break
                if fold.facts.next >= at_least:
                    return fold
        return None

    def of_life(self, life: int, partition: int) -> Iterator[Fold]:
        """Yield all folds of a partition in one life, the oldest first."""
        stream = fold_stream(life, partition)
        return self._among(stream, range(self.numbers.get(stream, -1) + 1))

    def beyond(self, reaches: Sequence[Reach], partition: int) -> Fold | None:
        """Return the newest fold if it ends above the archive of its life, which no writer of ours allows."""
        (life, end), *_ = reaches
        stream = fold_stream(life, partition)
        newest = next(self._among(stream, range(self.numbers.get(stream, -1), -1, -1)), None)
        return newest if newest is not None and newest.facts.next > end else None

    def _first(self, stream: str, is_beyond: Callable[[FoldFacts], bool]) -> int:
        """Return the number of the first fact with a property that all later ones have."""

        def side(number: int) -> bool:
            fold = self._fold(stream, number)
            return fold is not None and is_beyond(fold.facts)

        return bisect_left(range(self.numbers.get(stream, -1) + 1), True, key=side)

    def drop(self, fold: Fold, error: NotWholeError) -> None:
        """Report a damaged fold, and leave it out from now on."""
        self.report_problem(str(error))
        self.damaged.add(fold.key)

    def note(self, facts: FoldFacts, sha256: str) -> bool:
        """Note a fold as valid, unless an undamaged fold covers as much. Returns whether this fold is the valid one."""
        ours = FoldFact(fold=facts, object_sha256=sha256)

        def change(noted: FoldFact | None) -> FoldFact:
            if noted is None or noted.fold.next < facts.next:
                return ours
            is_damaged = noted.fold.next == facts.next and _key_of(self.archive, noted) in self.damaged
            return ours if is_damaged else noted

        return _KIND.at(self.archive, fold_stream(facts.life, facts.partition)).update(change) == ours

    def _among(self, stream: str, numbers: range) -> Iterator[Fold]:
        for number in numbers:
            fold = self._fold(stream, number)
            if fold is not None and fold.key not in self.damaged:
                yield fold

    def _fold(self, stream: str, number: int) -> Fold | None:
        place = stream, number
        if place not in self._read:
            try:
                self._read[place] = _fold_of(self.archive, stream, number)
            except NotWholeError as error:
                self.report_problem(str(error))
                self._read[place] = None
        return self._read[place]


def _fold_of(archive: Archive, stream: str, number: int) -> Fold:
    noted = _KIND.decode(read_fact(archive, stream, number), archive, stream, number)
    return Fold(_key_of(archive, noted), noted.fold, noted.object_sha256)


def _key_of(archive: Archive, noted: FoldFact) -> str:
    return archive.layout.fold_key(noted.fold.key(noted.object_sha256))


def fold_frames(archive: Archive, fold: Fold) -> Iterator[Frame]:
    """Read the records of a fold. Its bytes are compared before the first frame. Raises NotWholeError."""
    found = archive.store.get(fold.key, MOST_FOLD_BYTES)
    if found is None:
        raise CorruptSegmentError(f"{fold.key}: is gone, and a fact names it; bring it back from the bucket's versions")
    if hashlib.sha256(found[0]).hexdigest() != fold.sha256:
        raise CorruptSegmentError(f"{fold.key}: its bytes are not those that were written; {HOW_TO_MEND}")
    yield from read_fold(found[0], fold.facts, fold.key)


def lost_folds(topic: ArchivedTopic, folds: Folds) -> Iterator[str]:
    """Yield a problem for each partition whose swept objects no fold replaces any more. Reads only facts."""
    for number, inventory in topic.partitions.items():
        end = max((gap.last_offset + 1 for gap in inventory.swept), default=0)
        fold = folds.newest(reaches_of(topic, number), number, above=end - 1) if end else None
        if end and (fold is None or folds.archive.store.head(fold.key) is None):
            yield (
                f"{topic.topic}-{number}: a retention sweep took offsets up to {end - 1}, and the fold that stands for them is gone;"
                f" bring control/{fold_stream(topic.life, number)}/ back from the bucket's versions"
            )
