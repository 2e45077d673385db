"""A process that does one thing, and tells how much memory that took at most: `python -m tests.support.peak WHAT ARGUMENTS...`.

Linux only: the kernel counts.
"""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from archiver.codec.compression import BlockCodec
from archiver.inventory import position_of
from archiver.layout import Layout
from archiver.memory import settle_memory
from archiver.observe import NO_LEDGER
from archiver.room import DecodingRoom
from archiver.segment import PartitionSource, SegmentLimits
from archiver.spool import Spool
from archiver.vigil import Vigil
from archiver.writer import Archive, Fetch, PartitionWriter
from tests.support.bombs import BOMBS
from tests.support.memory_store import MemoryStore

LAYOUT: Final = Layout("p")


def writer_of(number: int, folder: Path, decoding: DecodingRoom, codec: BlockCodec) -> PartitionWriter:
    source = PartitionSource(topic="t", partition=number, life=0, topic_id="AAAAAAAAAAAAAAAAAAAAAQ", cluster_id="c")
    store = MemoryStore()
    archive = Archive(
        store=store,
        layout=LAYOUT,
        limits=SegmentLimits(uncompressed_bytes=64 << 20, codec=codec),
        age_s=1e9,
        spool=Spool(folder),
        clock=lambda: 0.0,
        vigil=Vigil(10.0, lambda: 0.0),
        ledger=NO_LEDGER,
        decoding=decoding,
    )
    return PartitionWriter(source, position_of(store, LAYOUT, "t", 0, number), archive)


def backup(bomb: str, megabytes: str, threads: str, codec: str) -> None:
    """Take a batch in each of so many threads, for a partition each, up to its last record; nothing is put."""
    content = BOMBS[bomb](int(megabytes))
    with tempfile.TemporaryDirectory() as name:
        decoding = DecodingRoom(160 << 20)
        writers = [writer_of(number, Path(name), decoding, BlockCodec(codec)) for number in range(int(threads))]
        _count_anew()
        workers = [threading.Thread(target=_take, args=(writer, content)) for writer in writers]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert all(writer.held_records for writer in writers)


def _take(writer: PartitionWriter, content: bytes) -> None:
    rest: Fetch | None = Fetch(position=0, records=memoryview(content))
    while rest is not None:
        rest = writer.take(rest)
        if rest is not None:
            writer.flush()


TASKS: Final[Mapping[str, Callable[..., None]]] = {"backup": backup}


def _count_anew() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(*command: object) -> int:
    """Run one of the tasks; how much memory it had at most beyond that of a process of ours that does nothing."""
    texts = [str(word) for word in command]
    done = subprocess.run(
        [sys.executable, "-m", __name__, *texts], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def main() -> None:
    settle_memory()
    before = _status("VmRSS")
    TASKS[sys.argv[1]](*sys.argv[2:])
    print(_status("VmHWM") - before)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


if __name__ == "__main__":
    main()
