"""`python -m benchmarks.imports`: an import of a log directory against a backup of the same topic; old message sets against kafka-python.

In one run, by turns. `--kafka-python FOLDER` names where `pip install --target FOLDER kafka-python python-snappy` put it. CPU is of the
process that decodes; it tells more than time where others use the machine, too.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from archiver.codec.batch import Scratch, decode_batches, first_step
from archiver.codec.warm import compile_kernels
from benchmarks.generate import PARTITIONS, Produced, fill_topic, make_records
from benchmarks.measure import Usage
from benchmarks.run import Bench, servers
from tests.support import message_sets as ms
from tests.support.foreign_reader import open_client

_SIZE = 100
_PER_SET = 200  # messages, as producers with the default batch size send them
_KINDS = {
    "v1": (1, 0),
    "v0": (0, 0),
    "v1 gzip": (1, ms.GZIP),
    "v1 snappy": (1, ms.SNAPPY),
    "v1 lz4": (1, ms.LZ4),
    "v0 gzip": (0, ms.GZIP),
    "v0 snappy": (0, ms.SNAPPY),
    "v0 lz4": (0, ms.LZ4),
}  # name: magic, codec
_NOT_READ = "lz4"  # by kafka-python without one more library


def make_sets(kind: str, count: int) -> bytes:
    """A file of message sets with the records of the other benchmarks."""
    magic, codec = _KINDS[kind]
    keys, values = make_records(_SIZE, 1, 0, 0, count)
    content = []
    for start in range(0, count, _PER_SET):
        numbers = range(start, min(start + _PER_SET, count))
        base = start if magic and codec else 0
        some = [ms.message(number - base, values[number], keys[number], magic=magic) for number in numbers]
        inner = b"".join(some)
        content.append(ms.wrapper(numbers[-1], inner, magic=magic, attributes=codec, xerial=True) if codec else inner)
    return b"".join(content)


def decode(content: bytes) -> int:
    """As a backup and an import decode: step by step, in memory that is used again."""
    rest, position, records, scratch = memoryview(content), 0, 0, Scratch()
    while rest:
        decoded = decode_batches(first_step(rest), position, scratch=scratch)
        records += sum(len(frame) for frame in decoded.frames())
        position, rest = decoded.next_offset, rest[decoded.source_bytes :]
    return records


def read_foreign(content: bytes) -> int:
    """As kafka-python's consumer reads, with its checks of checksums."""
    from kafka.record.memory_records import MemoryRecords  # type: ignore[import-not-found]  # noqa: PLC0415

    reader, records = MemoryRecords(content), 0
    while (batch := reader.next_batch()) is not None:
        if not batch.validate_crc():
            raise RuntimeError("kafka-python finds a wrong checksum")
        records += sum(1 for _ in batch)
    return records


def cpu_rate(read: Callable[[bytes], int], content: bytes, expected: int) -> float:
    started_s = time.process_time()
    found = read(content)
    if found != expected:
        raise RuntimeError(f"{found} records were read of {expected}")
    return found / (time.process_time() - started_s)


def compare_decoders(count: int, repetitions: int, *, with_foreign: bool) -> None:
    few = count // 20
    for kind in _KINDS:
        content, part = make_sets(kind, count), make_sets(kind, few)
        ours, theirs = [], []
        for _ in range(repetitions):
            ours.append(cpu_rate(decode, content, count))
            if with_foreign and _NOT_READ not in kind:
                theirs.append(cpu_rate(read_foreign, part, few))
        rate = statistics.median(ours)
        against = f", {rate / statistics.median(theirs):.0f} x kafka-python" if theirs else ""
        print(f"{kind}: {rate / 1e6:.2f} million records per CPU second{against}", flush=True)


class ImportBench:
    """Imports beside the backups of the other benchmarks."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._bench = bench
        self._folder = folder
        self._client = open_client(bench.minio)
        self._count = 0

    def run(self, logs: Path, topic: str, produced: Produced, *more: str) -> Usage:
        self._count += 1
        bucket = f"import-{self._count}"
        self._client.create_bucket(Bucket=bucket)
        path = self._folder / "import.yaml"
        storage = {"url": f"s3://{bucket}/archive", "endpoint": self._bench.minio.endpoint}
        backup = {"codec": "zstandard", "codec.level": self._bench.level}
        kafka = {"bootstrap.servers": self._bench.bootstrap}
        path.write_text(yaml.safe_dump({"kafka": kafka, "storage": storage, "backup": backup}), encoding="utf-8")
        archiver = str(Path(sys.executable).with_name("archiver"))
        command = [archiver, "import", "kafka-log", str(logs), "--topics", topic, "--format", "json", "-c", str(path)]
        usage, found = self._bench.measured([*command, *more])
        records = sum(one["records"] for one in found["imported"])
        if records != produced.records:
            raise RuntimeError(f"{records} records were imported of {produced.records}")
        return usage


def spell(name: str, records: int, usages: Sequence[Any]) -> str:
    seconds = statistics.median(one.seconds for one in usages)
    cpu_s = statistics.median(one.cpu_seconds for one in usages)
    peak = max(one.peak_memory_bytes for one in usages)
    return (
        f"{name}: {records / seconds:,.0f} records/s, {cpu_s / records * 1e6:.2f} CPU us/record, {peak / 2**20:.0f} MiB"
    )


def compare_commands(count: int, repetitions: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name, servers(1) as bench:
        folder = Path(name)
        importer = ImportBench(bench, folder)
        produced = fill_topic(bench.bootstrap, "json", size=_SIZE, records=count, seed=1)
        backups, imports = [], []
        for _ in range(repetitions):
            backups.append(Usage(exit_code=0, started_at_s=0, peak_task_bytes=0, **_taken(bench, produced)))
            imports.append(importer.run(bench.log_dir, "json", produced))
        print(spell("backup", count, backups), flush=True)
        print(spell("import of v2", count, imports), flush=True)
        for measure in ("seconds", "cpu_seconds"):
            ratio = statistics.median(
                getattr(one, measure) / getattr(other, measure) for one, other in zip(backups, imports, strict=True)
            )
            print(f"import against backup, by {measure.replace('_', ' ')}: {ratio:.2f} x the records", flush=True)
        for kind in ("v1", "v1 snappy", "v0 gzip"):
            logs = folder / kind.replace(" ", "-")
            for partition in range(PARTITIONS):
                (logs / f"old-{partition}").mkdir(parents=True)
                (logs / f"old-{partition}" / f"{0:020}.log").write_bytes(make_sets(kind, count // PARTITIONS))
            some = [importer.run(logs, "old", produced, "--cluster-id", "bench") for _ in range(repetitions)]
            print(spell(f"import of {kind}", count, some), flush=True)


def _taken(bench: Bench, produced: Produced) -> dict[str, Any]:
    row = bench.our_backup("json", produced)
    bench.empty("json")
    return {name: row[name] for name in ("seconds", "cpu_seconds", "peak_memory_bytes")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--kafka-python", help="the folder with kafka-python; without it there is nothing to compare with"
    )
    parser.add_argument("--decoders-only", action="store_true")
    given = parser.parse_args()
    if given.kafka_python:
        sys.path.append(given.kafka_python)
    compile_kernels()
    compare_decoders(given.records // 4, given.repetitions, with_foreign=bool(given.kafka_python))
    if not given.decoders_only:
        compare_commands(given.records, given.repetitions)
    print(json.dumps({"records": given.records, "repetitions": given.repetitions}))


if __name__ == "__main__":
    main()
