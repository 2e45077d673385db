"""Log files of one replica, made here batch by batch: what is valid, what is damage, and which transactions are decided."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import google_crc32c
import pytest

from archiver.errors import ArchiverError, UsageError
from archiver.imports.logs import log_reader
from archiver.imports.logs.log_directory import read_log_directory
from archiver.imports.logs.log_scan import ScannedLog, scan_log
from tests.support.log_directories import LogDirectory, batch, flipped, in_transaction, marker, old_message, old_wrapper


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(tmp_path)


def scan(directory: LogDirectory) -> ScannedLog:
    (folder,) = read_log_directory(directory.path).folders
    return scan_log(folder)


def ranges(log: ScannedLog) -> Sequence[tuple[int, int]]:
    return [(one.first, one.next) for one in log.pieces]


def test_files_follow_each_other(directory: LogDirectory) -> None:
    directory.write(5, batch(5, 3), batch(8))
    directory.write(9, batch(9, leader_epoch=4))
    log = scan(directory)
    assert ranges(log) == [(5, 9), (9, 10)]
    assert (log.first, log.next, log.damages, log.leader_epoch, log.is_compacted) == (5, 10, [], 4, False)


def test_ids_and_checkpoints_are_read(directory: LogDirectory) -> None:
    directory.write(0, batch(0))
    directory.note_cluster("C1")
    directory.note_replicated(17)
    directory.note_topic("abcDEF123")
    directory.note_epochs((0, 0), (3, 12))
    found = read_log_directory(directory.path)
    (folder,) = found.folders
    assert (found.cluster_id, folder.topic, folder.partition, folder.topic_id) == ("C1", "orders", 0, "abcDEF123")
    assert (folder.replicated_to, folder.epochs) == (17, ((0, 0), (3, 12)))


def test_folders_that_are_no_log_in_use_are_named(directory: LogDirectory) -> None:
    directory.write(0, batch(0))
    for state in ("delete", "future", "stray"):
        (directory.path / f"old-0.{'0' * 32}-{state}").mkdir()
    (directory.path / "other").mkdir()
    found = read_log_directory(directory.path)
    assert [one.topic for one in found.folders] == ["orders"]
    assert len(found.skipped) == 3
    assert [one.topic for one in read_log_directory(directory.path, deleted=True).folders] == ["old"]
    with pytest.raises(UsageError, match="has no folder of a partition"):
        read_log_directory(directory.path / "other")


@pytest.mark.parametrize("name", ["orders-00", f"orders-{2**31}", "or ders-0", "orders"])
def test_a_folder_that_is_no_partition_is_left_out(directory: LogDirectory, name: str) -> None:
    directory.write(0, batch(0))
    (directory.path / name).mkdir()
    assert [one.path.name for one in read_log_directory(directory.path).folders] == ["orders-0"]


def test_numbers_beyond_offsets_are_ignored(directory: LogDirectory) -> None:
    directory.write(0, batch(0))
    directory.write(2**63, batch(1))
    directory.note_replicated(10**30)
    (folder,) = read_log_directory(directory.path).folders
    assert ([one.base for one in folder.files], folder.replicated_to) == ([0], None)


def test_a_bad_sector_is_an_error_with_its_place(directory: LogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As bytes in memory, it would end the process."""
    directory.write(0, batch(0))

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", fails)
    with pytest.raises(ArchiverError, match=r"0\.log: the bytes from 0 on cannot be read.*ddrescue"):
        scan(directory)


def test_a_file_that_cannot_be_opened_is_an_error(directory: LogDirectory) -> None:
    file = directory.write(0, batch(0))
    (folder,) = read_log_directory(directory.path).folders
    file.unlink()
    with pytest.raises(ArchiverError, match="cannot be read: No such file"):
        scan_log(folder)


def test_a_cut_batch_at_the_end_is_left_out(directory: LogDirectory) -> None:
    directory.write(0, batch(0), batch(1)[:-1])
    log = scan(directory)
    assert (ranges(log), log.damages, log.cut_bytes) == ([(0, 1)], [], len(batch(1)) - 1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("committed", [10, 15])
def test_compressed_messages_at_the_checkpoint_keep_their_first_offset(
    directory: LogDirectory, magic: int, committed: int
) -> None:
    """The header of such a message has only its last offset."""
    directory.write(0, *(old_wrapper(first, 10, magic=magic) for first in (0, 10, 20)))
    directory.note_replicated(committed)
    assert ranges(scan(directory)) == [(0, 10), (10, 30)]


def test_an_allocated_tail_of_zeros_is_no_damage(directory: LogDirectory) -> None:
    directory.write(0, batch(0), bytes(100))
    directory.write(1, batch(1), bytes(10_000))
    log = scan(directory)
    assert (ranges(log), log.damages, log.cut_bytes) == ([(0, 1), (1, 2)], [], 0)


@pytest.mark.parametrize("batches", [[batch(0), batch(2)], []], ids=["some", "none"])
def test_zeros_in_place_of_the_end_of_a_compacted_file_are_damage(
    directory: LogDirectory, batches: Sequence[bytes]
) -> None:
    directory.write(0, *batches, bytes(5_000))
    directory.write(20, batch(20))
    directory.note_replicated(21, file="cleaner-offset-checkpoint")
    ((_, start, end, first, until),) = scan(directory).damages
    size = sum(map(len, batches))
    assert (start, end, first, until) == (size, size + 5_000, 3 if batches else 0, 20)


def test_zeros_before_data_are_damage(directory: LogDirectory) -> None:
    directory.write(0, batch(0), bytes(100), batch(3))
    log = scan(directory)
    assert ranges(log) == [(0, 1), (3, 4)]
    ((_, start, end, first, until),) = log.damages
    assert (start, end, first, until) == (len(batch(0)), len(batch(0)) + 100, 1, 3)


def test_a_broken_batch_is_a_hole_up_to_the_next(directory: LogDirectory) -> None:
    directory.write(0, batch(0), flipped(batch(1, 4)), batch(5))
    log = scan(directory)
    assert (ranges(log), [one[3:] for one in log.damages]) == ([(0, 1), (5, 6)], [(1, 5)])


def test_a_broken_end_of_a_file_reaches_to_the_next_file(directory: LogDirectory) -> None:
    directory.write(0, batch(0), flipped(batch(1, 4)))
    directory.write(7, batch(7))
    log = scan(directory)
    assert (ranges(log), [one[3:] for one in log.damages]) == ([(0, 1), (7, 8)], [(1, 7)])


def test_a_batch_inside_a_broken_batch_is_not_taken_for_one(directory: LogDirectory) -> None:
    inside = batch(2) + batch(3)
    directory.write(0, batch(0), flipped(batch(1, value=inside + b"rest")), batch(5))
    log = scan(directory)
    assert (ranges(log), [one[3:] for one in log.damages]) == ([(0, 1), (5, 6)], [(1, 5)])


@pytest.mark.parametrize("second", [1, 2], ids=["falls", "repeats"])
def test_offsets_that_do_not_rise_are_damage(directory: LogDirectory, second: int) -> None:
    directory.write(0, batch(0, 3), batch(second), batch(3))
    log = scan(directory)
    assert ranges(log) == [(0, 3), (3, 4)]
    assert len(log.damages) == 1


def test_a_finished_swap_replaces_its_files(directory: LogDirectory) -> None:
    directory.write(0, batch(0), batch(1))
    directory.write(2, batch(2), batch(3))
    directory.write(4, batch(4))
    directory.write(0, batch(1), batch(3), state=".swap")
    log = scan(directory)
    assert (ranges(log), log.is_compacted) == ([(1, 4), (4, 5)], True)


def test_an_unfinished_swap_is_left_out(directory: LogDirectory) -> None:
    directory.write(0, batch(0), batch(1))
    directory.write(0, batch(0), state=".cleaned")
    directory.write(1, batch(1), state=".swap")
    assert ranges(scan(directory)) == [(0, 2)]


def test_aborted_transactions_reach_over_files(directory: LogDirectory) -> None:
    directory.write(0, in_transaction(0, 7), in_transaction(1, 8), batch(2))
    directory.write(3, in_transaction(3, 7), marker(4, 7, commit=False), marker(5, 8, commit=True))
    directory.write(6, in_transaction(6, 7), marker(7, 7, commit=True), marker(8, 9, commit=False))
    log = scan(directory)
    assert log.aborted.T.tolist() == [[7, 0, 4]]
    assert log.undecided == []


def test_a_transaction_without_a_marker_is_undecided(directory: LogDirectory) -> None:
    directory.write(0, in_transaction(0, 7), batch(1), in_transaction(2, 7), batch(3))
    assert scan(directory).undecided == [(7, 0, 2)]


def test_damage_leaves_open_transactions_undecided(directory: LogDirectory) -> None:
    """The marker of the first may be among the damaged bytes."""
    directory.write(0, in_transaction(0, 7), flipped(batch(1)), in_transaction(2, 7), marker(3, 7, commit=False))
    log = scan(directory)
    assert log.undecided == [(7, 0, 0)]
    assert log.aborted.T.tolist() == [[7, 2, 3]]


@pytest.mark.parametrize("piece_bytes", [1, 3 * len(batch(0)) + 5])
def test_the_size_of_a_piece_changes_nothing(
    directory: LogDirectory, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(log_reader, "PIECE_BYTES", piece_bytes)
    directory.write(
        0, *(batch(offset) for offset in range(10)), flipped(batch(10, 4)), moved(batch(14), 900), batch(15)
    )
    log = scan(directory)
    assert (ranges(log), [one[3:] for one in log.damages]) == ([(0, 10), (15, 16)], [(10, 15)])


def moved(content: bytes, offset: int) -> bytes:
    """Return a batch with another first offset, which no checksum covers."""
    return offset.to_bytes(8, "big") + content[8:]


@pytest.mark.parametrize("wrong", [2**40, 12, 11, 0])
def test_a_false_first_offset_spoils_one_batch(directory: LogDirectory, wrong: int) -> None:
    directory.write(0, batch(0, 10), moved(batch(10, 4), wrong), batch(14), batch(15))
    log = scan(directory)
    assert (ranges(log), [one[3:] for one in log.damages]) == ([(0, 10), (14, 16)], [(10, 14)])


def test_a_broken_batch_tells_where_the_next_begins(directory: LogDirectory) -> None:
    """So valid batches between two broken ones are kept."""
    directory.write(0, batch(0), flipped(batch(1, 4)), batch(5), flipped(batch(6)), batch(7))
    directory.write(8, batch(8))
    log = scan(directory)
    assert ranges(log) == [(0, 1), (5, 6), (7, 8), (8, 9)]
    assert [one[3:] for one in log.damages] == [(1, 5), (6, 7)]


def without_length(content: bytes) -> bytes:
    return content[:8] + b"\xff" * 4 + content[12:]


def test_a_broken_length_ends_at_a_chain_to_the_end_of_the_file(directory: LogDirectory) -> None:
    directory.write(0, batch(0), without_length(batch(1, 4, value=batch(2) + batch(3))), batch(5), batch(6))
    log = scan(directory)
    assert (ranges(log), [one[3:] for one in log.damages]) == ([(0, 1), (5, 7)], [(1, 5)])


@pytest.mark.parametrize("damage", [flipped, without_length])
def test_a_batch_inside_the_last_batch_is_not_taken_for_one(
    directory: LogDirectory, damage: Callable[[bytes], bytes]
) -> None:
    """Behind its value comes only the number of headers: a zero."""
    outer = batch(1, value=batch(2))
    directory.write(0, batch(0), damage(outer[:-1]) + outer[-1:])
    log = scan(directory)
    assert (ranges(log), log.cut_bytes) == ([(0, 1)], len(outer))


def test_batches_inside_a_cut_batch_are_not_taken_for_some(directory: LogDirectory) -> None:
    inside = batch(2) + batch(3) + batch(4)
    outer = batch(1, value=inside * 2)
    directory.write(0, batch(0), outer[: outer.index(inside) + len(inside)])
    assert ranges(scan(directory)) == [(0, 1)]


@pytest.mark.parametrize("tail", [b"", bytes(5000)], ids=["cut", "allocated"])
def test_a_cut_batch_at_the_end_does_not_hide_batches_behind_damage(directory: LogDirectory, tail: bytes) -> None:
    cut = batch(7, value=b"v" * 100)[:-50] + tail
    directory.write(0, batch(0), flipped(batch(1, 4)), batch(5), batch(6), cut)
    log = scan(directory)
    assert (ranges(log), [one[3:] for one in log.damages]) == ([(0, 1), (5, 7)], [(1, 5)])
    assert log.cut_bytes == len(cut)


def with_length(content: bytes, length: int) -> bytes:
    return content[:8] + length.to_bytes(4, "big") + content[12:]


def with_magic(content: bytes, magic: int) -> bytes:
    return content[:16] + bytes([magic]) + content[17:]


CUT = batch(20, value=b"v" * 100)[:-50]


@pytest.mark.parametrize("make", [batch, old_message])
@pytest.mark.parametrize(
    ("damage", "tail"),
    [
        (lambda one: with_length(one, 2**30), b""),
        (lambda one: with_length(one, 2**20), bytes(2**20)),
        (lambda one: with_length(one, 2**30), CUT),
        (lambda one: with_length(one, 2**31 + len(one) - 12), CUT),
        (lambda one: moved(one, 2**62), CUT),
    ],
    ids=["behind the file", "in an allocated tail", "before a cut batch", "negative", "offset"],
)
def test_a_false_header_in_the_last_file_spoils_one_batch(
    directory: LogDirectory, make: Callable[[int], bytes], damage: Callable[[bytes], bytes], tail: bytes
) -> None:
    batches = [make(offset) for offset in range(20)]
    directory.write(0, *batches[:3], damage(batches[3]), *batches[4:], tail)
    log = scan(directory)
    assert (ranges(log), [one[3:] for one in log.damages]) == ([(0, 3), (4, 20)], [(3, 4)])
    assert log.cut_bytes == len(tail.rstrip(b"\0"))


@pytest.mark.parametrize("magic", [0, 1, 3, 18, 130])
@pytest.mark.parametrize("tail", [b"", CUT], ids=["whole", "cut"])
def test_a_false_magic_byte_spoils_one_batch(directory: LogDirectory, magic: int, tail: bytes) -> None:
    batches = [batch(offset) for offset in range(20)]
    directory.write(0, *batches[:3], with_magic(batches[3], magic), *batches[4:], tail)
    log = scan(directory)
    assert (ranges(log), [one[3:] for one in log.damages]) == ([(0, 3), (4, 20)], [(3, 4)])


def test_two_false_lengths_spoil_two_batches(directory: LogDirectory) -> None:
    false = [with_length(batch(offset), 2**30) for offset in (3, 10)]
    batches = [batch(offset) for offset in range(20)]
    directory.write(0, *batches[:3], false[0], *batches[4:10], false[1], *batches[11:])
    directory.write(20, batch(20))
    log = scan(directory)
    assert ranges(log) == [(0, 3), (4, 10), (11, 20), (20, 21)]
    assert [one[3:] for one in log.damages] == [(3, 4), (10, 11)]


def broken_batches(count: int) -> bytes:
    """Return batches with wrong checksums, each of which claims to end with the batch that has them as its value."""
    headers = [batch(offset) for offset in range(2, count)]
    left, found = sum(map(len, headers)) + 1, []  # behind a value is the number of headers
    for one in headers:
        found.append(one[:8] + (left - 12).to_bytes(4, "big") + one[12:])
        left -= len(one)
    return b"".join(found)


@pytest.fixture
def checksummed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what checksums were computed of."""
    work: list[int] = []
    real = google_crc32c.value

    def counted(part: bytes) -> int:
        work.append(len(part))
        return int(real(part))

    monkeypatch.setattr(google_crc32c, "value", counted)
    return work


def test_the_search_behind_damage_computes_few_checksums(directory: LogDirectory, checksummed: list[int]) -> None:
    """Values may hold thousands of batches, in chains, and alone."""
    inside = b"".join(batch(offset) for offset in range(2, 3_000))
    alone = b"".join(batch(offset) + b"?" for offset in range(2, 3_000))
    behind = [batch(offset) for offset in range(5_000, 5_100)]
    file = directory.write(0, batch(0), without_length(batch(1, value=inside + alone)), *behind)
    log = scan(directory)
    assert ranges(log) == [(0, 1), (5_000, 5_100)]
    assert sum(checksummed) < 6 * file.stat().st_size


@pytest.mark.parametrize(("count", "expected"), [(5, [(0, 1), (5_000, 5_100)]), (3_000, [(0, 1)])])
def test_the_search_behind_damage_gives_up(
    directory: LogDirectory, checksummed: list[int], count: int, expected: object
) -> None:
    """Nobody but an attacker writes so many batches with wrong checksums."""
    behind = [batch(offset) for offset in range(5_000, 5_100)]
    file = directory.write(0, batch(0), without_length(batch(1, value=broken_batches(count))), *behind)
    log = scan(directory)
    assert ranges(log) == expected
    assert (log.cut_bytes > 0) == (count > 5)
    assert sum(checksummed) < 8 * file.stat().st_size
