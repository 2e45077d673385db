"""Replicas of one partition: which is chosen, and what others may fill of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from archiver.imports.logs.log_directory import read_log_directory
from archiver.imports.logs.log_scan import ScannedLog, scan_log
from archiver.imports.logs.partition_import import Slice, steps
from archiver.imports.logs.replicas import choose_replica
from tests.support.log_directories import LogDirectory, batch, flipped, in_transaction, marker, old_message

EPOCHS = ((0, 0), (3, 4), (5, 20))


@pytest.fixture
def replicas(tmp_path: Path) -> Sequence[LogDirectory]:
    """The first is longer, and has a broken batch of the offsets 4 to 7."""
    first, second = LogDirectory(tmp_path / "1"), LogDirectory(tmp_path / "2")
    first.write(0, batch(0, 4), flipped(batch(4, 4)), batch(8), batch(9))
    second.write(0, batch(0, 4), batch(4, 2), batch(6, 2), batch(8))
    for one in (first, second):
        one.note_epochs(*EPOCHS)
    return first, second


def choose(replicas: Sequence[LogDirectory]) -> ScannedLog:
    return choose_replica([scan_log(folder) for one in replicas for folder in read_log_directory(one.path).folders])


def test_another_replica_fills_what_is_unreadable(replicas: Sequence[LogDirectory]) -> None:
    log = choose(replicas)
    assert (log.next, log.damages) == (10, [])
    assert [(one.from_offset, one.until_offset, one.folder.path) for one in log.fills] == [
        (4, 8, replicas[1].path / "orders-0")
    ]
    assert [(one.first, one.next, one.file.path.parents[1].name) for one in log.pieces] == [
        (0, 4, "1"),
        (4, 8, "2"),
        (8, 10, "1"),
    ]
    content = b"".join(one.file.path.read_bytes()[one.start : one.end] for one in log.pieces)
    assert content == b"".join([batch(0, 4), batch(4, 2), batch(6, 2), batch(8), batch(9)])


def test_another_replica_fills_a_missing_file(replicas: Sequence[LogDirectory]) -> None:
    first, second = replicas
    first.write(0, batch(0, 4))
    first.write(8, batch(8), batch(9))
    second.write(0, batch(0, 4), batch(4, 2))
    second.write(6, batch(6, 2), batch(8))
    log = choose(replicas)
    assert [(one.first, one.next) for one in log.pieces] == [(0, 4), (4, 6), (6, 8), (8, 10)]


@pytest.mark.parametrize(("batch_number", "has_epochs"), [(0, True), (0, False), (2, True)])
@pytest.mark.parametrize("epoch", [2**30, 2**31])
def test_a_false_epoch_chooses_no_replica(tmp_path: Path, batch_number: int, epoch: int, *, has_epochs: bool) -> None:
    """No checksum covers it."""
    shorter, longer = LogDirectory(tmp_path / "1"), LogDirectory(tmp_path / "2")
    batches = [batch(offset, leader_epoch=5) for offset in range(4)]
    false = batches[batch_number]
    batches[batch_number] = false[:12] + epoch.to_bytes(4, "big") + false[16:]
    shorter.write(0, *batches[:3])
    longer.write(0, *(batch(offset, leader_epoch=5) for offset in range(4)))
    for one in (shorter, longer) if has_epochs else ():
        one.note_epochs((0, 0), (5, 0))
    assert choose([shorter, longer]).next == 4
    assert choose([longer, shorter]).next == 4


def lacks_epochs(first: LogDirectory, _: LogDirectory) -> None:
    (first.path / "orders-0" / "leader-epoch-checkpoint").unlink()


def other_epochs(_: LogDirectory, second: LogDirectory) -> None:
    second.note_epochs((0, 0), (2, 4))


def other_start(_: LogDirectory, second: LogDirectory) -> None:
    second.note_epochs((0, 0), (3, 6))


def other_batch_before(_: LogDirectory, second: LogDirectory) -> None:
    second.write(0, batch(0, 4, value=b"w"), batch(4, 4), batch(8))


def other_batch_behind(_: LogDirectory, second: LogDirectory) -> None:
    second.write(0, batch(0, 4), batch(4, 4), batch(8, value=b"w"))


def ends_before(_: LogDirectory, second: LogDirectory) -> None:
    second.write(0, batch(0, 4), batch(4, 4))


def is_damaged_there(_: LogDirectory, second: LogDirectory) -> None:
    second.write(0, batch(0, 4), batch(4, 2), flipped(batch(6, 2)), batch(8))


def misses_a_file(_: LogDirectory, second: LogDirectory) -> None:
    second.write(0, batch(0, 4), batch(4, 2))
    second.write(8, batch(8))


def old_formats(first: LogDirectory, second: LogDirectory) -> None:
    messages = [old_message(offset) for offset in range(4)]
    first.write(0, *messages, flipped(batch(4, 4)), batch(8), batch(9))
    second.write(0, *messages, batch(4, 4), batch(8))


@pytest.mark.parametrize(
    "change",
    [
        lacks_epochs,
        other_epochs,
        other_start,
        other_batch_before,
        other_batch_behind,
        ends_before,
        is_damaged_there,
        misses_a_file,
        old_formats,
    ],
)
def test_a_replica_that_may_be_another_log_fills_nothing(
    replicas: Sequence[LogDirectory], change: Callable[[LogDirectory, LogDirectory], None]
) -> None:
    change(*replicas)
    log = choose(replicas)
    assert (log.fills, [one[3:] for one in log.damages], log.next) == ([], [(4, 8)], 10)


def test_a_third_replica_fills_what_the_second_cannot(replicas: Sequence[LogDirectory]) -> None:
    first, second = replicas
    is_damaged_there(first, second)
    third = LogDirectory(first.path.parent / "3")
    third.write(4, batch(4, 4), batch(8))
    third.note_epochs(*EPOCHS)
    assert choose([first, second, third]).fills == []  # it has no neighbour before
    third.write(0, batch(0, 4))
    assert [one.folder.path for one in choose([first, second, third]).fills] == [third.path / "orders-0"]


def test_markers_in_a_fill_decide_transactions(replicas: Sequence[LogDirectory]) -> None:
    first, second = replicas
    ends = marker(2, 7, commit=False)
    first.write(0, in_transaction(0, 7), batch(1), flipped(ends), batch(3), batch(4))
    second.write(0, in_transaction(0, 7), batch(1), ends, batch(3))
    log = choose(replicas)
    assert (log.aborted.T.tolist(), log.undecided) == ([[7, 0, 2]], [])


def test_a_fill_ends_with_the_committed_records(replicas: Sequence[LogDirectory]) -> None:
    replicas[0].note_replicated(6)
    taken = [one for one in steps(choose(replicas), until=6) if isinstance(one, Slice)]
    assert [one.next for one in taken] == [4, 6]
