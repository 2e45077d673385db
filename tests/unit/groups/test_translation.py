"""Where a position comes to stand on the target: each rule, and random logs by an oracle that has only lists of offsets."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from archiver.groups.log.lives import AMBIGUOUS, NOT_ARCHIVED
from archiver.groups.log.position_rows import NO_ROW
from archiver.groups.positions.archived_position import ArchivedPosition, PositionSource, State
from archiver.groups.target.application_decisions import UNSET, WantedPosition
from archiver.groups.target.translation import (
    Fork,
    Kind,
    Reason,
    Remark,
    RestoredPartition,
    TranslatedPosition,
    translate,
)
from tests.support.offset_maps import map_of

SEEN_MS = 1_790_000_000_000
LATE_MS = SEEN_MS + 600_001
TARGET = WantedPosition("back", "B", 0)


def committed(offset: int, epoch: int = -1, at_ms: int = SEEN_MS, **told: Any) -> ArchivedPosition:  # noqa: ANN401 - of any member
    plain = ArchivedPosition("g", "orders", 0, 0, State.SET, offset, epoch, "m", at_ms, 5, NO_ROW, at_ms)
    return plain._replace(**told)


def restored(offsets: Sequence[int], **told: Any) -> RestoredPartition:  # noqa: ANN401 - of any member
    source_next = told.pop("source_next", None)
    target_start = told.pop("target_start", 0)
    offset_map = map_of(offsets, target_start=target_start, source_next=source_next)
    plain = RestoredPartition(
        root=0,
        held_life=0,
        target=TARGET,
        offset_map=offset_map,
        log_start=0,
        archive_end=offset_map.facts.source_next,
    )
    return replace(plain, **told)


def translated(position: ArchivedPosition, partition: RestoredPartition) -> TranslatedPosition:
    (found,) = translate([position], partition)
    return found


def where(found: TranslatedPosition) -> tuple[int, list[tuple[Kind, int | None]]]:
    assert found.reason is None
    return found.offset, [(one.kind, one.number) for one in found.remarks]


# --- without a branch


@pytest.mark.parametrize(
    ("offset", "there", "remark"),
    [
        (0, 100, Remark(Kind.FIRST)),
        (9, 100, Remark(Kind.FIRST)),
        (10, 100, Remark(Kind.EXACT)),
        (12, 102, Remark(Kind.EXACT)),
        (13, 103, Remark(Kind.NEXT)),
        (20, 103, Remark(Kind.EXACT)),
        (22, 105, Remark(Kind.BEHIND)),  # in the window's last hole
        (29, 105, Remark(Kind.BEHIND)),
        (30, 105, Remark(Kind.TIP)),
        (37, 105, Remark(Kind.BEYOND, 7)),
    ],
)
def test_the_first_restored_record_at_or_after_it(offset: int, there: int, remark: Remark) -> None:
    partition = restored([10, 11, 12, 20, 21], target_start=100, source_next=25, archive_end=30)
    assert where(translated(committed(offset), partition)) == (there, [remark])
    assert translated(committed(offset), partition).target == TARGET._replace(offset=there, metadata="m")


def test_at_the_tip_is_where_the_restore_ended_and_not_where_the_log_ends_now() -> None:
    """There is nothing of the log's end in what is given: only of its start."""
    partition = restored(range(5))
    assert where(translated(committed(5), partition)) == (5, [(Kind.TIP, None)])
    assert where(translated(committed(8), partition)) == (5, [(Kind.BEYOND, 3)])


def test_at_least_the_log_start_of_now() -> None:
    partition = restored(range(10), log_start=4)
    assert where(translated(committed(1), partition)) == (4, [(Kind.EXACT, None), (Kind.RAISED, 3)])
    assert where(translated(committed(4), partition)) == (4, [(Kind.EXACT, None)])
    assert where(translated(committed(10), replace(partition, log_start=12))) == (
        12,
        [(Kind.TIP, None), (Kind.RAISED, 2)],
    )


def test_of_two_offsets_the_lower_one_is_taken_and_the_other_one_told() -> None:
    partition = restored(range(10))
    found = translated(committed(3, other_offset=7, state=State.AMBIGUOUS), partition)
    assert found.is_set
    assert where(found) == (3, [(Kind.EXACT, None), (Kind.EARLIER, 7)])
    assert where(translated(committed(7, other_offset=3, state=State.AMBIGUOUS), partition)) == (
        3,
        [(Kind.EXACT, None), (Kind.EARLIER, 7)],
    )
    for lone in (
        committed(-1, other_offset=7, state=State.AMBIGUOUS),
        committed(3, state=State.AMBIGUOUS),
    ):  # of one of the two nothing is known
        assert translated(lone, partition).reason is Reason.AMBIGUOUS


def test_no_group_is_set_behind_foreign_records_without_restored_ones() -> None:
    partition = restored([], source_next=0, archive_end=7, target_start=3)
    assert translated(committed(6), partition).reason is Reason.NOTHING_RESTORED
    assert where(translated(committed(7), partition)) == (3, [(Kind.TIP, None)])  # it had read all of the source


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"state": State.UNKNOWN, "known_from_ms": 77}, Reason.UNKNOWN),
        ({"state": State.UNKNOWN, "offset": -1}, Reason.UNKNOWN),
        ({"state": State.AMBIGUOUS, "life": AMBIGUOUS}, Reason.AMBIGUOUS),
        ({"state": State.REMOVED}, Reason.REMOVED),
        ({"life": 1}, Reason.ANOTHER_LIFE),
        ({"life": 1, "state": State.UNKNOWN}, Reason.ANOTHER_LIFE),
        ({"life": NOT_ARCHIVED}, Reason.ANOTHER_LIFE),
        ({"offset": -1}, Reason.UNKNOWN),
        ({"state": State.TOPIC_DELETED, "removed_ms": 9}, None),
    ],
)
def test_what_is_not_set(told: dict[str, Any], reason: Reason | None) -> None:
    position = committed(3)._replace(**told)
    found = translated(position, restored(range(5)))
    assert (found.reason, found.position) == (reason, position)
    assert found.offset == (3 if reason is None else UNSET)


@pytest.mark.parametrize("count", [200_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_time_grows_with_the_number_of_positions_and_no_faster(count: int) -> None:
    """Ten times as many took a hundred times as long if each were compared with all others. A busy machine makes all slower."""

    def seconds_of(count: int) -> float:
        positions = [committed(offset) for offset in range(count)]
        partition = restored([*range(0, count * 9 // 10, 3)], forks=(fork(),), held_life=1)
        begun_s = time.process_time()
        assert len(translate(positions, partition)) == len(positions)
        return time.process_time() - begun_s

    few_s = min(seconds_of(count // 10) for _ in range(3))
    assert seconds_of(count) < 40 * few_s


# --- above a branch


def fork(**told: Any) -> Fork:  # noqa: ANN401 - of any member
    plain = Fork(life=1, offset=95, seen_ms=SEEN_MS, child_epoch=4, child_first=95, parent_epoch=3, parent_next=100)
    return replace(plain, **told)


BRANCH = (Kind.BRANCH, 95)
EXACT = (Kind.EXACT, None)


@pytest.mark.parametrize(
    ("position", "told", "expected"),
    [
        (committed(95, 3), {}, (95, [EXACT])),
        (committed(97, 3), {}, (95, [EXACT, BRANCH])),
        (committed(97, 4), {}, (97, [EXACT])),
        (committed(97, 9), {}, (97, [EXACT])),
        (committed(103, 3, LATE_MS), {}, (95, [EXACT, BRANCH])),  # its epoch tells, whatever the time
        (committed(103, -1, LATE_MS), {}, (103, [EXACT])),
        (committed(103, -1, LATE_MS - 1), {}, (95, [EXACT, BRANCH])),
        (committed(103, -1, LATE_MS, source=PositionSource.SNAPSHOT), {}, (95, [EXACT, BRANCH])),
        (committed(103, -1, -1), {}, (95, [EXACT, BRANCH])),
        (committed(100, -1, LATE_MS), {}, (95, [EXACT, BRANCH])),
        (committed(103, -1, LATE_MS), {"seen_ms": None}, (95, [EXACT, BRANCH])),
        (committed(103, -1, LATE_MS), {"parent_next": None}, (95, [EXACT, BRANCH])),
        (committed(103, -1, 2**63 - 1), {"seen_ms": 2**63 - 1}, (95, [EXACT, BRANCH])),
        # The child's epoch is not known, or it is the parent's: then only offset and time can tell.
        (committed(103, 7), {"child_epoch": -1}, (95, [EXACT, BRANCH])),
        (committed(103, 7, LATE_MS), {"child_epoch": -1}, (103, [EXACT])),
        (committed(103, 4), {"parent_epoch": 4}, (95, [EXACT, BRANCH])),
        (committed(103, 4, LATE_MS), {"parent_epoch": 4}, (103, [EXACT])),
        (committed(103, 3, LATE_MS), {"parent_epoch": 4}, (95, [EXACT, BRANCH])),
    ],
)
def test_above_a_branch_when_the_child_was_restored(
    position: ArchivedPosition, told: dict[str, Any], expected: object
) -> None:
    partition = restored(range(110), forks=(fork(**told),), held_life=1)
    assert where(translated(position, partition)) == expected


def test_several_branches_one_after_the_other() -> None:
    forks = (
        fork(offset=50, child_first=50, parent_next=60, child_epoch=2, parent_epoch=1),
        fork(life=2, offset=40, child_first=40, parent_next=70, child_epoch=4, parent_epoch=3),
        fork(life=5, offset=80, child_first=80, parent_next=90, child_epoch=6, parent_epoch=5),
    )
    newest = restored(range(100), forks=forks, held_life=5)
    assert [translated(committed(55, epoch), newest).offset for epoch in (1, 2, 3, 4, 6)] == [40, 40, 40, 55, 55]
    assert [translated(committed(85, epoch), newest).offset for epoch in (1, 3, 4, 5, 6)] == [40, 40, 80, 80, 85]
    middle = restored(range(70), forks=forks, held_life=1)
    assert [translated(committed(55, epoch), middle).offset for epoch in (1, 2, 3, 4, 6)] == [50, 55, 55, 40, 40]


# --- random logs


@dataclass(frozen=True, slots=True)
class Log:
    """What one life's log held: its records' offsets with their epochs, of which what lies below `archived` was archived."""

    records: dict[int, int]
    end: int
    archived: int
    branch: int  # 0 in the first life


def random_lives(rng: random.Random) -> list[Log]:
    """Each life after the first has the records of the one before below its branch, and others above."""
    lives: list[Log] = []
    epoch = 0
    for number in range(rng.choice((1, 2, 2, 3))):
        before = lives[-1] if number else None
        branch = 0 if before is None else rng.randint(0, before.archived)
        records = {} if before is None else {o: e for o, e in before.records.items() if o < branch}
        at, end = branch, branch + rng.randint(0, 30)
        epoch += 1  # an election: the epochs of a life are its own
        while at < end:
            epoch += rng.random() < 0.1
            run = min(end - at, rng.randint(1, 6))
            if rng.random() < 0.7:  # else a hole: markers, aborted records, or compacted ones
                records |= dict.fromkeys(range(at, at + run), epoch)
            at += run
        lives.append(Log(records, end, branch + rng.randint(0, end - branch), branch))
    return lives


def epoch_below(log: Log, offset: int) -> int:
    """What a consumer commits with an offset: the epoch of the last record that it read."""
    return max([epoch for one, epoch in log.records.items() if one < offset], default=-1)


def forks_of(rng: random.Random, lives: Sequence[Log]) -> tuple[Fork, ...]:
    def epochs(log: Log) -> list[int]:
        return [e for o, e in sorted(log.records.items()) if log.branch <= o < log.archived]

    return tuple(
        Fork(
            life=number,
            offset=child.branch,
            seen_ms=rng.choice((None, SEEN_MS * number)),
            # The first object has some of the child's records, and tells the epoch of the last of them.
            child_epoch=epochs(child)[rng.randint(0, len(epochs(child)) - 1) if rng.random() < 0.2 else 0]
            if epochs(child)
            else -1,
            child_first=min((o for o in child.records if child.branch <= o < child.archived), default=2**63 - 1),
            parent_epoch=max(epochs(parent), default=-1),
            parent_next=parent.archived,
        )
        for number, (parent, child) in enumerate(pairwise(lives), start=1)
    )


def next_restored(offset: int, chosen: Sequence[int], start: int) -> int:
    """By counting alone: which record of the target a reader of the source at an offset reads next."""
    return start + len([one for one in chosen if one < offset])


def run_case(rng: random.Random) -> set[str]:
    """One world, and some commits. Returns which kinds of commit there were."""
    lives = random_lives(rng)
    held = rng.choice((len(lives) - 1, rng.randrange(len(lives))))
    log = lives[held]
    archived = sorted(offset for offset in log.records if offset < log.archived)
    low, high = sorted(rng.sample(range(log.archived + 2), 2)) if rng.random() < 0.5 else (0, log.archived)
    keeps = rng.choice((1.0, 1.0, 0.5, 0.0))
    chosen = [one for one in archived if low <= one < high and rng.random() <= keeps]
    start, log_start = rng.choice((0, 7)), rng.choice((0, 0, rng.randint(0, 12)))
    partition = restored(
        chosen,
        target_start=start,
        source_next=max([*(one + 1 for one in chosen), min(high, log.archived)]),
        archive_end=log.archived,
        forks=forks_of(rng, lives),
        held_life=held,
        log_start=log_start,
    )
    seen = {f"lives {len(lives)}", f"life {held - len(lives) + 1}"}
    for _ in range(8):
        seen |= check_commit(rng, lives, held, chosen, partition, start)
    return seen


def check_commit(
    rng: random.Random,
    lives: Sequence[Log],
    held: int,
    chosen: Sequence[int],
    partition: RestoredPartition,
    start: int,
) -> set[str]:
    life = rng.randrange(len(lives))
    log = lives[life]
    offset = rng.choice(
        (0, log.end, log.archived, log.branch, rng.randint(0, log.end), log.archived + rng.randint(0, 9))
    )
    offset = min(offset, log.end)
    epoch = rng.choice((epoch_below(log, offset),) * 3 + (-1,))
    # Long after a branch was seen nobody commits to the log before it.
    at_ms = SEEN_MS * life + rng.choice((0, 700_000)) if life else 0
    found = translated(committed(offset, epoch, at_ms), partition)
    if found.reason is Reason.NOTHING_RESTORED:
        assert (chosen, start) == ([], 7)
        return {"nothing restored"}
    between = [lives[one].branch for one in range(min(life, held) + 1, max(life, held) + 1)]
    truth = min([offset, *between])
    wanted = max(next_restored(truth, chosen, start), partition.log_start)
    branches = [fork.offset for fork in partition.forks if fork.offset < offset]
    safe = {max(next_restored(one, chosen, start), partition.log_start) for one in branches}
    assert found.offset <= wanted, "a record is missed"
    assert found.offset == wanted or found.offset in safe
    is_told = any(one.kind is Kind.BRANCH for one in found.remarks)
    assert is_told or found.offset == wanted
    if has_evidence(committed(offset, epoch), life, held, partition.forks):
        assert found.offset == wanted, (offset, epoch, life, held)
    return kinds_of(found, offset, log, is_exact=found.offset == wanted)


def has_evidence(commit: ArchivedPosition, life: int, held: int, forks: Sequence[Fork]) -> bool:
    """Whether epochs must decide: those that the archive has, and that its objects tell."""
    epoch, offset = commit.leader_epoch, commit.offset
    for number, fork in enumerate(forks, start=1):
        is_child = fork.child_epoch >= 0 and epoch >= fork.child_epoch
        firsts = [one.child_first for one in forks[number - 1 :]]
        is_parent = 0 <= epoch <= fork.parent_epoch < fork.child_epoch and offset > max(firsts)
        is_told = is_child if number <= min(life, held) else is_parent if number > max(life, held) else True
        if not is_told and any(one.offset < offset for one in forks):
            return False
    return True


def kinds_of(found: TranslatedPosition, offset: int, log: Log, *, is_exact: bool) -> set[str]:
    kinds = {str(one.kind) for one in found.remarks} | {"right" if is_exact else "branch"}
    return kinds | ({"in a hole"} if offset not in log.records and offset < log.end else set())


EXPECTED = {
    *map(str, {*Kind} - {Kind.WITH_TOPIC, Kind.REMOVED, Kind.EARLIER}),
    *("right", "branch", "in a hole", "nothing restored"),
    *("lives 1", "lives 2", "lives 3", "life 0", "life -1", "life -2"),
}


def test_the_next_record_is_the_next_restored_one(seed: int) -> None:
    seen = set[str]()
    for number in range(200):
        seen |= run_case(random.Random(f"{seed}-{number}"))
    assert seen == EXPECTED


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_next_record_is_the_next_restored_one_in_many_logs(seed: int) -> None:
    for number in range(20_000):
        run_case(random.Random(f"long-{seed}-{number}"))
