"""Measures where the CPU of a backup goes: calls the same functions with the same bytes, one after the other, in one thread.

The hot path is not instrumented; its stages are called here as it calls them. CPU of this thread only, but for the
fetch, which is all of the process.
"""

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import google_crc32c
import numpy as np

from archiver.archive.format.handle import open_archive
from archiver.archive.segments.segment_writer import SegmentBody
from archiver.codec import batch as batch_codec
from archiver.codec.avro import BLOCK_BYTES, BlockEncoder, encode_header
from archiver.codec.compression import Arena, BatchCodec, BlockCodec, compress_block
from archiver.codec.frame import Frame
from archiver.codec.kernels import batches as batch_kernels
from archiver.codec.kernels.digest import SURVEY_SIZE, add_rows
from archiver.config.model import StorageConfig
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.records.fetch import FetchTarget, fetch
from archiver.store.port import ObjectKind

# As archiver/backup/service/until_end.py asks.
_PARTITION_BYTES = 4 * 1024 * 1024
_ANSWER_BYTES = 16 * 1024 * 1024
_MOST_BYTES = 256 * 1024 * 1024
_CODEC_BITS = 0x07
_ZSTANDARD = BlockCodec.ZSTANDARD
_SEGMENT_BYTES = 16 * 1024 * 1024  # compressed, about what a segment of 64 MiB becomes
_MOST_FETCHED_BYTES = 512 * 1024 * 1024  # enough for a stable figure, and held in memory


STAGES = (
    "fetch",
    "check CRC",
    "decompress",
    "index and buffers",
    "encode Avro",
    "add_rows and digest",
    "compress",
    "SHA-256",
    "spool",
    "put",
)


class Stopwatch:
    """CPU seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, stage: str, clock: Callable[[], float] = time.thread_time) -> Iterator[None]:
        started_s = clock()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + clock() - started_s


async def _fetch_all(bootstrap: str, topic: str, watch: Stopwatch) -> list[tuple[int, memoryview]]:
    """(position, bytes) of every fetch of the topic up to its end."""
    fetched: list[tuple[int, memoryview]] = []
    async with KafkaClient(KafkaSettings(bootstrap_servers=bootstrap)) as client:
        described = (await client.describe_topics([topic]))[topic]
        ends = await client.offsets([(topic, number) for number in described.partitions])
        at = dict.fromkeys(described.partitions, 0)
        with watch.on("fetch", time.process_time):
            while waiting := [number for number in at if at[number] < ends[topic, number].last_stable]:
                targets = [
                    FetchTarget(topic=topic, topic_id=described.topic_id, partition=number, offset=at[number])
                    for number in waiting
                ]
                answers = await fetch(
                    client,
                    described.leaders[waiting[0]],
                    targets,
                    max_bytes=_ANSWER_BYTES,
                    partition_bytes=_PARTITION_BYTES,
                    max_wait_ms=500,
                    min_bytes=1,
                )
                for answer in answers:
                    if len(answer.records):
                        position = at[answer.partition]
                        batches, _ = batch_codec.whole_batches(answer.records, position)
                        at[answer.partition] = batch_codec.position_after(batches, position)
                        fetched.append((position, answer.records))
                if sum(len(records) for _, records in fetched) > _MOST_FETCHED_BYTES:
                    break
    return fetched


def _decode(fetched: list[tuple[int, memoryview]], watch: Stopwatch) -> Iterator[Frame]:
    """All of decode_batches is timed; two of its parts are repeated apart, and what is left is the index, and the memory
    that all of it is laid into."""
    for position, records in fetched:
        batches, source = batch_codec.whole_batches(records, position)
        starts, sizes = batches[batch_kernels.START].tolist(), batches[batch_kernels.SIZE].tolist()
        with watch.on("check CRC"):
            for start, size in zip(starts, sizes, strict=True):
                google_crc32c.value(source[start + batch_kernels.CRC_END : start + size])
        arena = Arena(len(source), _MOST_BYTES)
        codecs = (batches[batch_kernels.ATTRIBUTES] & _CODEC_BITS).tolist()
        with watch.on("decompress"):
            for start, size, codec in zip(starts, sizes, codecs, strict=True):
                arena.add(BatchCodec(codec), source[start + batch_kernels.HEADER_SIZE : start + size])
        at, end, rest = position, batch_codec.position_after(batches, position), records
        while at < end:
            with watch.on("decode"):
                decoded = batch_codec.decode_batches(rest, at)
            yield from decoded.frames()
            at, rest = decoded.next_offset, rest[decoded.source_bytes :]


def _split_decode(seconds: dict[str, float]) -> dict[str, float]:
    whole = seconds.pop("decode")
    seconds["index and buffers"] = max(whole - seconds["check CRC"] - seconds["decompress"], 0.0)
    return {stage: seconds[stage] for stage in STAGES}


class _Segment:
    """The stages of an open segment, without its bookkeeping."""

    def __init__(self, topic: str, level: int, folder: Path, watch: Stopwatch) -> None:
        self._level = level
        self._watch = watch
        self._file = folder / "stages.blocks"
        self._found = np.zeros(SURVEY_SIZE, np.int64)
        self._sha256 = hashlib.sha256()
        self._blocks = BlockEncoder(topic=topic, partition=0, codec=BlockCodec.NULL, level=0, sync=bytes(16))
        self.objects: list[bytes] = []
        self.uncompressed_bytes = 0

    def append(self, frame: Frame) -> None:
        row = 0
        while row < len(frame):
            with self._watch.on("encode Avro"):
                after = self._blocks.append(frame, row, len(frame))
            with self._watch.on("add_rows and digest"):
                add_rows(frame.body, frame.header_body, frame.table, row, after, self._found)
            row = after
            if self._blocks.is_full:
                self.flush()

    def flush(self) -> None:
        block = np.frombuffer(b"".join(self._blocks.flush()), np.uint8)  # codec null: the records as they are
        self.uncompressed_bytes += len(block)
        with self._watch.on("compress"):
            packed = compress_block(_ZSTANDARD, block, self._level)
        with self._watch.on("SHA-256"):
            self._sha256.update(packed)
        with self._watch.on("spool"), self._file.open("ab", buffering=0) as file:
            file.write(packed)
        if self._file.stat().st_size >= _SEGMENT_BYTES:
            self.close()

    def close(self) -> None:
        with self._watch.on("spool"):
            self.objects.append(self._file.read_bytes())
        self._file.unlink()


def measure_stages(bootstrap: str, topic: str, storage: StorageConfig, level: int) -> dict[str, object]:
    """CPU microseconds per record and share of each stage."""
    watch = Stopwatch()
    fetched = asyncio.run(_fetch_all(bootstrap, topic, watch))
    records = 0
    archive = open_archive(storage)
    with tempfile.TemporaryDirectory(prefix="stages-") as folder:
        segment = _Segment(topic, level, Path(folder), watch)
        for frame in _decode(fetched, watch):
            segment.append(frame)
            records += len(frame)
        segment.flush()
        segment.close()
        for number, blocks in enumerate(segment.objects):
            path = Path(folder) / "object"
            path.write_bytes(blocks)
            header = encode_header(_ZSTANDARD, bytes(16), {})
            with watch.on("put"), SegmentBody(header, path) as body:
                archive.store.put_if_absent(f"{archive.layout.prefix}/{number:06}", body, {}, kind=ObjectKind.FACT)
    seconds = _split_decode(watch.seconds)
    total = sum(seconds.values())
    return {
        "records": records,
        "block_bytes": BLOCK_BYTES,
        "microseconds": {stage: 1e6 * seconds / records for stage, seconds in seconds.items()},
        "share": {stage: seconds / total for stage, seconds in seconds.items()},
        "fetched_bytes": sum(len(part) for _, part in fetched),
        "avro_bytes": segment.uncompressed_bytes,
        "stored_bytes": sum(map(len, segment.objects)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--url", required=True, help="s3://bucket/prefix to put objects to; credentials by the AWS chain"
    )
    parser.add_argument("--endpoint")
    parser.add_argument("--level", type=int, default=1)
    given = parser.parse_args()
    storage = StorageConfig(url=given.url, endpoint=given.endpoint)
    json.dump(measure_stages(given.bootstrap, given.topic, storage, given.level), sys.stdout)
    print()


if __name__ == "__main__":
    main()
