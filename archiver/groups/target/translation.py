"""Translates a group's position in a source partition to the restored target partition, through the offset map of the restore.

1. In a truncated log, an offset above the branch belongs to one of two logs; the source offset depends on which one.
2. The map gives the target offset of the first restored record at or after the source offset.
3. If the target has already deleted that record, its log start replaces the offset.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from archiver.archive.restores.offset_map import OffsetMap
from archiver.codec.frame import Longs
from archiver.groups.positions.archived_position import ArchivedPosition, PositionSource, State
from archiver.groups.target.application_decisions import UNSET, WantedPosition
from archiver.kafka.brokers.cluster import TopicPartition

_CLOCKS_DIFFER_MS: Final = 10 * 60_000
_UNKNOWN: Final = -1  # an epoch, or a time
_LARGEST: Final = 2**63 - 1
Truths = npt.NDArray[np.bool_]


class Kind(StrEnum):
    """A remark on a translation. Each position gets one of the first six."""

    EXACT = "exact"  # the record at the committed offset was restored
    NEXT = "next restored record"  # that record was not restored, or the offset never belonged to a record
    FIRST = "before the first restored record"
    TIP = "at the end of the archive"
    BEHIND = "behind the last restored record"  # the archive has more, which was not restored
    BEYOND = "beyond the end of the archive"  # `number`: by so many offsets
    BRANCH = "taken to the branch"  # `number`: this offset. The log was truncated there, below the commit
    EARLIER = "the earlier of two offsets"  # `number`: the other one. Which one was right is unknown
    RAISED = "raised to the log start"  # `number`: so many offsets of the target are deleted
    WITH_TOPIC = "removed with its topic, or as the last one in it"
    REMOVED = "removed while its topic lived on"


class Remark(NamedTuple):
    """Remarks on a translated position."""

    kind: Kind
    number: int | None = None


class Reason(StrEnum):
    """Why a position is not set on the target."""

    UNKNOWN = "unknown"
    AMBIGUOUS = "ambiguous"
    REMOVED = "removed"
    ANOTHER_LIFE = "another life of its topic"
    NOT_RESTORED = "topic not restored"
    NOTHING_RESTORED = "nothing of its partition was restored"  # behind records that existed before
    REFUSED = "partition not restored whole"
    REPARTITIONED = "topic repartitioned"
    SET_EARLIER = "set by an earlier run"  # while the archive still had the position


UNTOLD: Final = frozenset({Reason.UNKNOWN, Reason.AMBIGUOUS})  # the archive lacks the position
# The archive or the restore lacks the answer; the other reasons are final.
OPEN_REASONS: Final = UNTOLD | frozenset({Reason.REFUSED, Reason.REPARTITIONED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A truncation of a partition's log: the life that continued there, and the evidence that separates its commits from earlier ones."""

    life: int  # the child
    offset: int
    seen_ms: int | None  # when a backup found it; None: not noted
    child_epoch: int = _UNKNOWN  # leader epoch of the child's first object
    child_first: int = _LARGEST  # the first record there
    parent_epoch: int = _UNKNOWN  # leader epoch of the parent's last object
    parent_next: int | None = None  # the end of the parent's archive; None: unknown

    @property
    def epochs_tell(self) -> bool:
        """Whether the child has its own epochs. A killed leader before Kafka 4.0 may continue in the same epoch."""
        return self.child_epoch >= 0 and self.child_epoch > self.parent_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    """A restored source partition, with its target. `forks`: those of all its lives, in order, the root's first.

    `held_life` held the partition's end when it was restored: forks up to that life are within the restored log.
    """

    root: int
    held_life: int
    target: WantedPosition
    offset_map: OffsetMap
    log_start: int  # the present log start of the target
    archive_end: int  # the present end of the archive in that life
    forks: tuple[Fork, ...] = ()

    @property
    def source_end(self) -> int:
        """The highest end of the source that archive or restore has known."""
        return max(self.archive_end, self.offset_map.facts.source_next)

    @property
    def is_untouched(self) -> bool:
        """Whether the restore added no record to existing ones. A consumer behind the source's end would skip these."""
        facts = self.offset_map.facts
        return facts.records == 0 and facts.target_next > 0


class TranslatedPosition(NamedTuple):
    """A position and its place on the target, or why it is not set there."""

    position: ArchivedPosition
    target: WantedPosition | None  # None: the topic was not restored
    remarks: tuple[Remark, ...] = ()
    reason: Reason | None = None  # None: it is set
    told: str = ""  # details of the reason

    @property
    def is_set(self) -> bool:
        return self.reason is None

    @property
    def offset(self) -> int:
        return UNSET if self.target is None else self.target.offset


def translate(positions: Sequence[ArchivedPosition], restored: RestoredPartition) -> list[TranslatedPosition]:
    """Translate positions of one partition, in their order."""
    reasons = [unset_reason(one, restored.root) for one in positions]
    found = _translated([one for one, why in zip(positions, reasons, strict=True) if why is None], restored)
    return [
        next(found) if why is None else TranslatedPosition(one, restored.target, reason=why)
        for one, why in zip(positions, reasons, strict=True)
    ]


def unset_reason(position: ArchivedPosition, root: int) -> Reason | None:
    """Return why an archived position cannot be translated for this topic; None if it can be."""
    if position.life >= 0 and position.life != root:
        return Reason.ANOTHER_LIFE
    if position.state is State.REMOVED:
        return Reason.REMOVED
    if position.state is State.UNKNOWN:
        return Reason.UNKNOWN
    if position.state is State.AMBIGUOUS:
        return None if position.is_between else Reason.AMBIGUOUS
    if position.life != root:  # its topic id is not in the archive
        return Reason.ANOTHER_LIFE
    return None if position.is_certain else Reason.UNKNOWN


class _Commits(NamedTuple):
    """Commits of one partition, as columns; -1: unknown."""

    offsets: Longs
    epochs: Longs
    at_ms: Longs

    @classmethod
    def of(cls, positions: Sequence[ArchivedPosition]) -> "_Commits":
        count = len(positions)
        return cls(
            np.fromiter((one.offset for one in positions), np.int64, count),
            np.fromiter((one.leader_epoch for one in positions), np.int64, count),
            # A snapshot has the time it was taken, not the time of the commit.
            np.fromiter(
                (_UNKNOWN if one.source is PositionSource.SNAPSHOT else one.at_ms for one in positions), np.int64, count
            ),
        )


def _translated(found: Sequence[ArchivedPosition], restored: RestoredPartition) -> Iterator[TranslatedPosition]:
    positions = [one.earlier() for one in found]
    commits, offset_map = _Commits.of(positions), restored.offset_map
    sources, branches = _on_restored_log(commits, restored.forks, restored.held_life)
    targets = offset_map.translate(sources)
    is_record = (targets < offset_map.facts.target_next) & (offset_map.translate_back(targets) == sources)
    rows = (column.tolist() for column in (sources, branches, targets, is_record))
    for was, position, source, branch, target, exact in zip(found, positions, *rows, strict=True):
        if restored.is_untouched and source < restored.source_end:
            yield TranslatedPosition(position, restored.target, reason=Reason.NOTHING_RESTORED)
            continue
        is_changed = branch != UNSET or position.was_removed or position.is_between
        is_plain = exact and not is_changed and target >= restored.log_start
        remarks = _EXACT if is_plain else tuple(_remarks(source, branch, target, restored, is_record=exact))
        remarks += tuple(_of_two(position, was))
        if position.was_removed:
            remarks += (Remark(Kind.WITH_TOPIC if position.state is State.TOPIC_DELETED else Kind.REMOVED),)
        place = restored.target._replace(offset=max(target, restored.log_start), metadata=position.metadata)
        yield TranslatedPosition(position, place, remarks)


_EXACT: Final = (Remark(Kind.EXACT),)


def _of_two(taken: ArchivedPosition, was: ArchivedPosition) -> Iterator[Remark]:
    if was.is_between:
        yield Remark(Kind.EARLIER, was.offset if taken.offset == was.other_offset else was.other_offset)


def _remarks(
    source: int, branch: int, target: int, restored: RestoredPartition, *, is_record: bool
) -> Iterator[Remark]:
    yield _place(source, target, restored, is_record=is_record)
    if branch != UNSET:
        yield Remark(Kind.BRANCH, branch)
    if target < restored.log_start:
        yield Remark(Kind.RAISED, restored.log_start - target)


def _place(source: int, target: int, restored: RestoredPartition, *, is_record: bool) -> Remark:
    """Return how an offset relates to the restored range."""
    if is_record:
        return Remark(Kind.EXACT)
    if source > restored.source_end:
        return Remark(Kind.BEYOND, source - restored.source_end)
    if target == restored.offset_map.facts.target_next:
        return Remark(Kind.TIP if source == restored.source_end else Kind.BEHIND)
    return Remark(Kind.FIRST if source < restored.offset_map.sources[0] else Kind.NEXT)


# --- truncated logs


def _on_restored_log(commits: _Commits, forks: Sequence[Fork], held_life: int) -> tuple[Longs, Longs]:
    """Return the offsets of commits on the restored log, and the branches that they were moved to; UNSET: none.

    A commit of another log is valid in the restored log only below the lowest branch between the two logs.
    """
    passed = _forks_passed(commits, forks)
    sources, branches = commits.offsets.copy(), np.full(len(commits.offsets), UNSET, np.int64)
    for number, fork in enumerate(forks, start=1):
        if fork.life <= held_life:
            is_other = passed < number
        else:  # an unrestored log: a commit may belong to it unless it certainly belongs to a restored one
            is_other = (passed >= number) | ~_surely_before(commits, forks[number - 1 :])
        is_cut = is_other & (sources > fork.offset)
        sources[is_cut] = branches[is_cut] = fork.offset
    return sources, branches


def _forks_passed(commits: _Commits, forks: Sequence[Fork]) -> Longs:
    """Return the last fork that each commit is certainly behind; 0: it may belong to the first log."""
    passed = np.zeros(len(commits.offsets), np.int64)
    for number, fork in enumerate(forks, start=1):
        passed[_surely_behind(commits, fork)] = number
    return passed


def _surely_behind(commits: _Commits, fork: Fork) -> Truths:
    """Return which commits certainly belong to the child: by leader epoch, or, without epochs, by offset and time."""
    found: Truths = np.zeros(len(commits.offsets), bool)
    if fork.epochs_tell:
        found |= commits.epochs >= fork.child_epoch
    if fork.parent_next is not None and fork.seen_ms is not None:
        is_untold = (commits.epochs < 0) if fork.epochs_tell else ~_in_earlier_epoch(commits, fork)
        is_late = commits.at_ms > min(fork.seen_ms + _CLOCKS_DIFFER_MS, _LARGEST)
        found |= is_untold & is_late & (commits.offsets > fork.parent_next)
    return found


def _surely_before(commits: _Commits, forks: Sequence[Fork]) -> Truths:
    """Return which commits certainly belong to the parent of the first of some forks.

    A consumer that has read no record of a later log, only skipped offsets, also commits the parent's epoch.
    """
    first = forks[0].child_first
    for later in forks[1:]:
        if later.offset <= first:  # the log behind that fork lacks that record
            first = max(first, later.child_first)
    found: Truths = _in_earlier_epoch(commits, forks[0]) & (commits.offsets > first)
    return found


def _in_earlier_epoch(commits: _Commits, fork: Fork) -> Truths:
    """Return which commits are in an epoch that ended before the child began."""
    most = fork.parent_epoch if fork.epochs_tell else fork.parent_epoch - 1
    found: Truths = (commits.epochs >= 0) & (commits.epochs <= most)
    return found


def settle_ambiguous(found: Sequence[tuple[ArchivedPosition, Reason | None]]) -> list[Reason | None]:
    """Return why each position of one group is not set, in their order; None: it is set. Ambiguous ones may get ANOTHER_LIFE."""
    known: dict[TopicPartition, int] = {}  # by partition: the last row of the restored life; the earliest of several
    for position, reason in found:
        if reason is None or reason is Reason.REMOVED:
            place, row = _partition_of(position), _last_row(position)
            known[place] = min(row, known.get(place, row))
    return [Reason.ANOTHER_LIFE if _is_older(position, reason, known) else reason for position, reason in found]


def _is_older(position: ArchivedPosition, reason: Reason | None, known: dict[TopicPartition, int]) -> bool:
    if reason is not Reason.AMBIGUOUS or position.source is PositionSource.SNAPSHOT:
        return False
    return _last_row(position) < known.get(_partition_of(position), -1)


def _partition_of(position: ArchivedPosition) -> TopicPartition:
    return position.topic, position.partition


def _last_row(position: ArchivedPosition) -> int:
    """Return the offset of a position's last row in `__consumer_offsets`; -1 for a snapshot, which has no row there."""
    return max(position.at_offset, position.removed_at)
