"""Files of the spool are written over, and what was in them never shows."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from archiver.archive.segments.segment_writer import FinishedSegment, OpenSegment, SegmentLimits
from archiver.archive.segments.spool import Spool, open_spool
from archiver.codec.compression import BlockCodec
from archiver.errors import TemporaryError, UsageError
from tests.support.frames import frame_of
from tests.support.records import Rec
from tests.support.segments import SOURCE, content_of, read

UNCOMPRESSED = SegmentLimits(uncompressed_bytes=0, codec=BlockCodec.NULL)
MANY = 100_000_000


def finished(spool: Spool, records: list[Rec]) -> FinishedSegment:
    segment = OpenSegment(SOURCE, 0, UNCOMPRESSED, spool)
    assert segment.append(frame_of(records), 0) == len(records)
    return segment.finish()


def some(count: int, letter: bytes) -> list[Rec]:
    return [Rec(offset, 0, 0, None, letter * 1000) for offset in range(count)]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, keeps_bytes=MANY, keeps_from_bytes=0)


@pytest.mark.parametrize("counts", [(2000, 3), (3, 2000), (2000, 2000)])
def test_what_a_file_held_before_never_shows(spool: Spool, tmp_path: Path, counts: tuple[int, int]) -> None:
    before, after = (some(count, letter) for count, letter in zip(counts, (b"a", b"b"), strict=True))
    one = finished(spool, before)
    inode = one.blocks.stat().st_ino
    one.recycle()
    other = finished(spool, after)
    assert other.blocks.stat().st_ino == inode
    assert read(content_of(other), other.facts) == after
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_a_put_may_still_read_is_not_written_over(spool: Spool) -> None:
    """A put whose answer never came may go on reading for as long as the store hangs."""
    one = finished(spool, some(2000, b"a"))
    whole = content_of(one)
    with one.open_body() as body:
        one.discard()
        finished(spool, some(2000, b"b"))
        assert body.read() == whole


def test_only_so_much_is_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path, keeps_bytes=2_500_000, keeps_from_bytes=0)
    for segment in [finished(spool, some(1000, b"a")) for _ in range(4)]:
        segment.recycle()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) in range(2_000_000, 2_500_000)


def test_kept_files_that_someone_swept_are_not_missed(spool: Spool, tmp_path: Path) -> None:
    one = finished(spool, some(3, b"a"))
    one.recycle()
    for path in tmp_path.iterdir():
        path.unlink()
    other = finished(spool, some(3, b"b"))
    assert read(content_of(other), other.facts) == some(3, b"b")
    other.blocks.unlink()
    other.recycle()  # nor is this an error


def test_what_is_kept_is_part_of_what_a_spool_may_take(tmp_path: Path) -> None:
    with open_spool(tmp_path, 80_000_000) as spool:
        assert spool.most_bytes == 70_000_000
        for count in (10, 2000):  # a small one is not worth it
            finished(spool, some(count, b"a")).recycle()
        (kept,) = tmp_path.glob("*/kept-*")
        assert kept.stat().st_size > 2_000_000
    assert not list(tmp_path.iterdir())


# A process of another container, which shares the directory and no PIDs with us: ours has none of that number.
NEIGHBOUR = """
import os, sys
from pathlib import Path
os.getpid = lambda: 2**22 + 1
from archiver.archive.segments.spool import open_spool
with open_spool(Path(sys.argv[1]), 80_000_000) as spool:
    for line in sys.stdin:
        print(spool.new_file(line.strip()), flush=True)
"""


@contextmanager
def neighbour(directory: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", NEIGHBOUR, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ask_for_a_file(process: subprocess.Popen[str], name: str) -> Path:
    assert process.stdin is not None
    assert process.stdout is not None
    print(name, file=process.stdin, flush=True)
    return Path(process.stdout.readline().strip())


def test_files_of_a_live_process_are_kept_and_those_of_a_dead_one_swept(tmp_path: Path) -> None:
    with neighbour(tmp_path) as process:
        held = ask_for_a_file(process, "one")
        assert held.is_file()
        with open_spool(tmp_path, 80_000_000) as spool:
            assert held.is_file()
            assert ask_for_a_file(process, "two").is_file()
            process.kill()
            process.wait()
            with open_spool(tmp_path, 80_000_000):
                assert not held.parent.exists()
            assert spool.new_file("three").is_file()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_someone_swept_is_made_again(tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    with open_spool(directory, 80_000_000) as spool:
        for _ in range(2):
            segment = OpenSegment(SOURCE, 0, UNCOMPRESSED, spool)
            segment.append(frame_of(some(3, b"a")), 0)
            shutil.rmtree(directory)
            with pytest.raises(TemporaryError, match="Kafka still has the records"):
                segment.finish()
            one = finished(spool, some(3, b"b"))
            assert read(content_of(one), one.facts) == some(3, b"b")
            with open_spool(directory, 80_000_000):  # whoever sweeps now knows the new folder for ours
                assert one.blocks.is_file()
    assert not list(directory.iterdir())


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(UsageError, match=r"backup\.spool\.dir /proc/archiver"), open_spool(Path("/proc/archiver"), 1):
        pass
