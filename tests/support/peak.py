"""Runs one task in a process of its own, and prints its peak memory: `python -m tests.support.peak WHAT ARGUMENTS...`.

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

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.archived_end import position_of
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.reading.plain_records import frame_to_values, json_pieces
from archiver.archive.segments.block_budget import DecodingBudget
from archiver.archive.segments.segment import open_segment
from archiver.archive.segments.segment_writer import SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.backup.compacted.work.coordination import _places_in
from archiver.backup.partition.fetched_batches import Fetch
from archiver.backup.partition.partition_writer import PartitionWriter
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.backup.reports.ledger import NO_LEDGER
from archiver.codec.arrow_scan import COLUMN_TYPES, Scanner
from archiver.codec.batch_encoder import BatchEncoder
from archiver.codec.compression import BatchCodec, BlockCodec
from archiver.codec.selection import ALL_RECORDS
from archiver.codec.tally import Tally
from archiver.kafka.records.fetch import Fetched
from archiver.process.running.memory import tune_memory
from archiver.process.running.silence import SilenceCounter
from archiver.store.port import Body, ObjectKind
from tests.support.bombs import BOMBS
from tests.support.memory_store import MemoryStore

LAYOUT: Final = Layout("p")


class _Forgetful(MemoryStore):
    """Of what is put only the metadata stays: a store is elsewhere."""

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:  # noqa: ARG002
        return super().put_if_absent(key, b"", metadata, kind=kind)


def _writer(number: int, folder: Path, store: MemoryStore, decoding: DecodingBudget, codec: str) -> PartitionWriter:
    source = PartitionSource(topic="t", partition=number, life=0, topic_id="AAAAAAAAAAAAAAAAAAAAAQ", cluster_id="c")
    sink = SegmentSink(
        archive=Archive(store, LAYOUT),
        limits=SegmentLimits(uncompressed_bytes=64 << 20, codec=BlockCodec(codec)),
        age_s=1e9,
        spool=Spool(folder),
        clock=lambda: 0.0,
        silence_counter=SilenceCounter(10.0, lambda: 0.0),
        ledger=NO_LEDGER,
        decoding=decoding,
    )
    return PartitionWriter(source, position_of(Archive(store, LAYOUT), "t", 0, number), sink, silences=0)


def backup(bomb: str, megabytes: str, threads: str, room_bytes: str, codec: str) -> None:
    """Archive a batch in each of so many threads, each for its partition."""
    content, store, decoding = BOMBS[bomb](int(megabytes)), _Forgetful(), DecodingBudget(int(room_bytes))
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


def read(bomb: str, megabytes: str, use: str) -> None:
    """Read what was archived of a batch, and use it as a command does."""
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as name:
        _archive(_writer(0, Path(name), store, DecodingBudget(1 << 30), "zstandard"), BOMBS[bomb](int(megabytes)))
    _count_anew()
    for key, found in sorted(store.objects.items()):
        USES[use](memoryview(found.body), found.metadata, key)


def _cat(content: memoryview, metadata: Mapping[str, str], key: str) -> None:
    with Path(os.devnull).open("w") as output:
        for frame in open_segment(content, metadata, key).frames("t", 0):
            for record in frame_to_values(frame, 0):
                output.writelines(json_pieces(record))


def _verify(content: memoryview, metadata: Mapping[str, str], key: str) -> None:
    body, tally = open_segment(content, metadata, key), Tally()
    for frame in body.frames("t", 0):
        tally.add(frame)
    assert body.facts is not None
    assert tally.digest == body.facts.digest


def _restore(content: memoryview, metadata: Mapping[str, str], key: str) -> None:
    encoder = BatchEncoder(
        codec=BatchCodec.LZ4, batch_bytes=4_000_000, most_bytes=1_000_000, producer_id=1, producer_epoch=0
    )
    for frame in open_segment(content, metadata, key).frames("t", 0):
        row = 0
        while row < len(frame):
            row = encoder.append(frame, row)
            encoder.flush()


def _query(content: memoryview, metadata: Mapping[str, str], key: str) -> None:
    header = open_segment(content, metadata, key).header
    for _ in Scanner(topic="t", partition=0, columns=tuple(COLUMN_TYPES)).scan(content, header, key, ALL_RECORDS):
        pass


def events(bomb: str, megabytes: str, count: str) -> None:
    """Read so many batches of the coordination topic."""
    content = memoryview(BOMBS[bomb](int(megabytes)) * int(count))
    answer = Fetched(
        topic="t",
        partition=0,
        records=content,
        aborted=(),
        high_watermark=1,
        last_stable_offset=1,
        log_start_offset=0,
        by_topic_id=True,
        error=None,
    )
    _places_in(answer, 0, ["a"])  # imports and kernels count for nothing
    _count_anew()
    assert _places_in(answer, 0, ["a"])[0] == frozenset()


USES: Final[Mapping[str, Callable[[memoryview, Mapping[str, str], str], None]]] = {
    "cat": _cat,
    "verify": _verify,
    "restore": _restore,
    "query": _query,
}
TASKS: Final[Mapping[str, Callable[..., None]]] = {"backup": backup, "read": read, "events": events}


_before: list[int] = []  # what the process had when counting began: making a bomb leaves some, too


def _count_anew() -> None:
    Path("/proc/self/clear_refs").write_text("5")
    _before.append(_status("VmRSS"))


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
    tune_memory()
    TASKS[sys.argv[1]](*sys.argv[2:])
    print(_status("VmHWM") - _before.pop())


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


if __name__ == "__main__":
    main()
