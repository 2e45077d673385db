"""Seeded JSON records of about 100 and 800 bytes, every one different, made by numpy and produced by a few processes."""

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

Matrix = npt.NDArray[np.uint8]

PARTITIONS = 4
CHUNK_RECORDS = 20_000
_VOCABULARY = 4096
_LONGEST_WORD = 11
_MOST_QUEUED = 200_000  # records between us and the broker
_FIRST_SECOND = 1_767_225_600  # 2026-01-01T00:00:00Z
_DELIVERY_PATIENCE_S = 120
_POWERS = 10 ** np.arange(18, -1, -1, dtype=np.int64)
_HEX = np.frombuffer("".join(f"{number:02x}" for number in range(256)).encode(), np.uint8).reshape(256, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What went into the topic; `payload_bytes` are key and value bytes."""

    records: int
    payload_bytes: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Job:
    bootstrap: str
    topic: str
    size: int
    seed: int
    partitions: Sequence[int]
    records_each: int


def make_records(size: int, seed: int, partition: int, first: int, count: int) -> tuple[list[bytes], list[bytes]]:
    """Keys and values of `count` records from number `first` on; the same arguments give the same records."""
    source = np.random.default_rng([seed, size, partition, first])
    numbers = (partition + 1) * 10**9 + np.arange(first, first + count, dtype=np.int64)
    keys = _join([b"c", _digits(source.integers(10**4, 10**8, count))], count)
    return keys, _join(_small(source, numbers) if size < 400 else _large(source, numbers), count)


def _small(source: np.random.Generator, numbers: npt.NDArray[np.int64]) -> list[bytes | Matrix]:
    count = len(numbers)
    return [
        b'{"id":', _digits(numbers),
        b',"at":', _digits(_FIRST_SECOND * 1000 + source.integers(0, 10**10, count)),
        b',"kind":"', _words(source, count),
        b'","shop":', _digits(source.integers(1, 5000, count)),
        b',"till":', _digits(source.integers(1, 100, count)),
        b',"amount":', _digits(source.integers(1, 10**6, count)), b".", _digits(source.integers(10, 100, count)),
        b"}",
    ]  # fmt: skip


def _large(source: np.random.Generator, numbers: npt.NDArray[np.int64]) -> list[bytes | Matrix]:
    count = len(numbers)
    parts: list[bytes | Matrix] = [
        b'{"id":', _digits(numbers),
        b',"at":', _digits(_FIRST_SECOND * 1000 + source.integers(0, 10**10, count)),
        b',"trace":"', _hex(source, count, 16),
        b'","customer":{"id":', _digits(source.integers(10**4, 10**8, count)),
        b',"name":"', _words(source, count), b" ", _words(source, count),
        b'","city":"', _words(source, count), b'"},"lines":[',
    ]  # fmt: skip
    for line in range(5):
        parts += [
            b"," if line else b"",
            b'{"sku":', _digits(source.integers(10**5, 10**6, count)),
            b',"category":"', _words(source, count), b'","quantity":', _digits(source.integers(1, 20, count)),
            b',"currency":"EUR","unit_price":', _digits(source.integers(1, 1000, count)), b".95",
            b',"discounted":false}',
        ]  # fmt: skip
    parts.append(b'],"note":"')
    for word in range(14):
        parts += [b" " if word else b"", _words(source, count)]
    return [*parts, b'"}']


def _digits(numbers: npt.NDArray[np.int64]) -> Matrix:
    powers = _POWERS[-len(str(int(numbers.max()))) :]
    matrix = (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)
    matrix[numbers[:, None] < powers] = 0  # no leading zeros
    return matrix


def _hex(source: np.random.Generator, count: int, length: int) -> Matrix:
    return _HEX[source.integers(0, 256, (count, length))].reshape(count, 2 * length)


def _vocabulary() -> Matrix:
    source = np.random.default_rng(7)
    letters = source.integers(ord("a"), ord("z") + 1, (_VOCABULARY, _LONGEST_WORD), dtype=np.uint8)
    letters[np.arange(_LONGEST_WORD) >= source.integers(3, _LONGEST_WORD + 1, _VOCABULARY)[:, None]] = 0
    return letters


_WORDS = _vocabulary()


def _words(source: np.random.Generator, count: int) -> Matrix:
    """As in language, few words are frequent and most are rare."""
    return _WORDS[(_VOCABULARY * source.random(count) ** 3).astype(np.int64)]


def _join(parts: Sequence[bytes | Matrix], count: int) -> list[bytes]:
    """Lay the parts side by side and take out the padding: JSON has no zero bytes."""
    columns = [
        np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part))) if isinstance(part, bytes) else part
        for part in parts
    ]
    matrix = np.concatenate(columns, axis=1)
    kept = matrix != 0
    text = matrix[kept].tobytes()
    ends = np.cumsum(kept.sum(axis=1)).tolist()
    return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def create_topic(bootstrap: str, topic: str, **more: str) -> None:
    """Nothing in it expires while the benchmark runs. `more` are configs, with `_` for the dots."""
    configs = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    configs |= {name.replace("_", "."): value for name, value in more.items()}
    wanted = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1, config=configs)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a name keeps it alive until the answer is there
    admin.create_topics([wanted])[topic].result(30)


def fill_topic(bootstrap: str, topic: str, *, size: int, records: int, seed: int, processes: int = 2) -> Produced:
    """Create the topic and produce `records` in all, spread evenly, lz4."""
    if records % PARTITIONS:
        raise ValueError(f"{records} records do not spread evenly over {PARTITIONS} partitions")
    create_topic(bootstrap, topic)
    started_s = time.monotonic()
    jobs = [
        _Job(bootstrap, topic, size, seed, range(start, PARTITIONS, processes), records // PARTITIONS)
        for start in range(processes)
    ]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(_produce, jobs))
    return Produced(
        records=sum(part.records for part in done),
        payload_bytes=sum(part.payload_bytes for part in done),
        seconds=time.monotonic() - started_s,
    )


def _produce(job: _Job) -> Produced:
    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "compression.type": "lz4",
            "enable.idempotence": True,
            "linger.ms": 50,
            "queue.buffering.max.messages": 2 * _MOST_QUEUED,
        }
    )
    payload_bytes = 0
    for first in range(0, job.records_each, CHUNK_RECORDS):
        count = min(CHUNK_RECORDS, job.records_each - first)
        for partition in job.partitions:
            keys, values = make_records(job.size, job.seed, partition, first, count)
            messages = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
            if producer.produce_batch(job.topic, messages, partition=partition) != count:
                raise RuntimeError("the producer's queue is full")
            payload_bytes += sum(map(len, keys)) + sum(map(len, values))
            while len(producer) > _MOST_QUEUED:
                producer.poll(0.05)
    if producer.flush(_DELIVERY_PATIENCE_S):
        raise RuntimeError("not all records were delivered")
    return Produced(records=job.records_each * len(job.partitions), payload_bytes=payload_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--bootstrap", help="fill a topic there; without it, only show a record and how fast they are made"
    )
    parser.add_argument("--topic", default="benchmark")
    parser.add_argument("--size", type=int, choices=(100, 800), default=100)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.bootstrap:
        produced = fill_topic(given.bootstrap, given.topic, size=given.size, records=given.records, seed=given.seed)
        print(produced)
        return
    started_s = time.monotonic()
    keys, values = make_records(given.size, given.seed, 0, 0, CHUNK_RECORDS)
    seconds = time.monotonic() - started_s
    mean = (sum(map(len, keys)) + sum(map(len, values))) / len(keys)
    json.loads(values[0])
    print(
        f"{keys[0]!r} {values[0]!r}\nmean of key and value: {mean:.1f} B; {CHUNK_RECORDS / seconds:,.0f} records/s made"
    )


if __name__ == "__main__":
    main()
