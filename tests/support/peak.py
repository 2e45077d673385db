"""A process that does one thing, and tells how much memory that took at most: `python -m tests.support.peak WHAT ARGUMENTS...`.

Linux only: the kernel counts.
"""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from archiver.codec.compression import BlockCodec
from archiver.facts import facts_from_metadata
from archiver.inventory import position_of
from archiver.layout import Layout
from archiver.memory import settle_memory
from archiver.observe import NO_LEDGER
from archiver.records import frame_to_values, json_pieces
from archiver.room import DecodingRoom
from archiver.segment import PartitionSource, SegmentLimits, read_segment
from archiver.spool import Spool
from archiver.store import Body
from archiver.vigil import Vigil
from archiver.writer import Archive, Fetch, PartitionWriter
from tests.support.bombs import BOMBS
from tests.support.memory_store import MemoryStore

LAYOUT: Final = Layout("p")


class _Forgetful(MemoryStore):
    """Of what is put only the metadata stays: a store is elsewhere."""

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str]) -> str | None:  # noqa: ARG002
        return super().put_if_absent(key, b"", metadata)


def _writer(number: int, folder: Path, store: MemoryStore, decoding: DecodingRoom, codec: str) -> PartitionWriter:
    source = PartitionSource(topic="t", partition=number, life=0, topic_id="AAAAAAAAAAAAAAAAAAAAAQ", cluster_id="c")
    archive = Archive(
        store=store,
        layout=LAYOUT,
        limits=SegmentLimits(uncompressed_bytes=64 << 20, codec=BlockCodec(codec)),
        age_s=1e9,
        spool=Spool(folder),
        clock=lambda: 0.0,
        vigil=Vigil(10.0, lambda: 0.0),
        ledger=NO_LEDGER,
        decoding=decoding,
    )
    return PartitionWriter(source, position_of(store, LAYOUT, "t", 0, number), archive)


def backup(bomb: str, megabytes: str, threads: str, room_bytes: str, codec: str) -> None:
    """Archive a batch in each of so many threads, each for its partition."""
    content, store, decoding = BOMBS[bomb](int(megabytes)), _Forgetful(), DecodingRoom(int(room_bytes))
    with tempfile.TemporaryDirectory() as name:
        writers = [_writer(number, Path(name), store, decoding, codec) for number in range(int(threads))]
        _count_anew()
        workers = [threading.Thread(target=_archive, args=(writer, content)) for writer in writers]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert all(writer.durable_position > 0 for writer in writers)


def _archive(writer: PartitionWriter, content: bytes) -> None:
    rest: Fetch | None = Fetch(position=0, records=memoryview(content))
    while rest is not None:
        rest = writer.take(rest)
        if rest is None or writer.is_due:
            writer.flush()


def cat(bomb: str, megabytes: str) -> None:
    """Print what was archived of a batch."""
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as name:
        _archive(_writer(0, Path(name), store, DecodingRoom(1 << 30), "zstandard"), BOMBS[bomb](int(megabytes)))
    _count_anew()
    output = open(os.devnull, "w")  # noqa: SIM115, PTH123 - until the process ends
    for key, found in sorted(store.objects.items()):
        facts = facts_from_metadata(found.metadata, key)
        for frame in read_segment(found.body, facts, topic="t", partition=0, key=key):
            for record in frame_to_values(frame, 0):
                output.writelines(json_pieces(record))


TASKS: Final[Mapping[str, Callable[..., None]]] = {"backup": backup, "cat": cat}


def _count_anew() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(*command: object) -> int:
    """Run one of the tasks; how much memory it had at most beyond that of a process of ours that does nothing."""
    texts = [str(word) for word in command]
    done = subprocess.run(
        [sys.executable, "-m", __name__, *texts],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
        timeout=600,
    )
    return int(done.stdout)


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
