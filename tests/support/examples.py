"""Examples of what may lie in a partition, each made from a seed and written to a real broker.

One partition is one example. What only raw batches can hold comes by the reference encoder, transactions by Kafka's Java.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from archiver.kafka.brokers.client import KafkaClient
from tests.support.java_oracle import Consumed, JavaOracle
from tests.support.kafka_topics import create_topic, with_client
from tests.support.raw_produce import produce_raw
from tests.support.records import FAR_FUTURE_MS, NOW_MS, Rec, generate
from tests.support.reference_batch import CODECS, batch_of, encode
from tests.support.round_trip import KEEP_ALL

MEBIBYTE = 1024 * 1024
_POLL_S = 0.05  # brokers and oracle want the processor, too


class Kind(Enum):
    """What all partitions of one topic are like."""

    PLAIN = "plain"
    APPEND_TIME = "append-time"
    TRANSACTIONS = "transactions"
    COMPACTED = "compacted"
    BIG = "big"


# A cleaner that finds something to do in every segment but the newest; tombstones stay for good.
EAGER_CLEANER = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "86400000",
    "segment.ms": "1000",
}
CONFIGS = {
    Kind.PLAIN: KEEP_ALL,
    Kind.APPEND_TIME: KEEP_ALL | {"message.timestamp.type": "LogAppendTime"},
    Kind.TRANSACTIONS: KEEP_ALL,
    Kind.COMPACTED: KEEP_ALL | EAGER_CLEANER,
    Kind.BIG: KEEP_ALL,
}
# What a whole set of examples must have had, beside the classes of records.
SHAPES = frozenset(
    {
        *(f"codec {codec}" for codec in CODECS),
        *(f"transaction {end}" for end in ("committed", "aborted", "interleaved")),
        *(f"timestamp type {number}" for number in (0, 1)),
        "compacted away",
        "record of 1 MB",
        "record of 10 MB",
    }
)


@dataclass(frozen=True, slots=True)
class ExampleWriter:
    """Writes examples to one broker and counts what shapes they had."""

    bootstrap: str
    oracle: JavaOracle
    shapes: Counter[str] = field(default_factory=Counter)

    def write(self, topic: str, kind: Kind, seeds: Sequence[int], count: int) -> None:
        """Create a topic with one partition per seed, `count` records in each."""
        create_topic(self.bootstrap, topic, partitions=len(seeds), configs=CONFIGS[kind])
        for partition, seed in enumerate(seeds):
            rng = random.Random(seed)
            match kind:
                case Kind.PLAIN | Kind.APPEND_TIME:
                    self._send(topic, partition, generate(seed, count), rng)
                case Kind.TRANSACTIONS:
                    self._write_transactions(topic, partition, generate(seed, count, raw=False), rng)
                case Kind.COMPACTED:
                    self._write_compacted(topic, partition, generate(seed, count, big_bytes=2000), rng)
                case Kind.BIG:
                    self._write_big(topic, partition, rng)

    def note(self, kind: Kind, consumed: Consumed) -> None:
        """Count what only the broker knows."""
        for partition, records in consumed.records.items():
            self.shapes.update(f"timestamp type {record.timestamp_type}" for record in records)
            if kind is Kind.COMPACTED:
                begin, end = consumed.ranges[partition]
                self.shapes["compacted away"] += end - begin - len(records)
            sizes = [len(record.value or b"") for record in records]
            for name, least in (("1 MB", MEBIBYTE), ("10 MB", 10 * MEBIBYTE)):
                self.shapes[f"record of {name}"] += sum(least <= size < 10 * least for size in sizes)

    def _send(self, topic: str, partition: int, records: Sequence[Rec], rng: random.Random) -> None:
        """Raw batches of all sizes and codecs."""
        batches: list[bytes] = []
        start = 0
        while start < len(records):
            size = rng.choice((1, 2, 17, 100, 400))
            part = [replace(record, offset=at) for at, record in enumerate(records[start : start + size])]
            codec = rng.choice(CODECS)
            self.shapes[f"codec {codec}"] += 1
            batches.append(encode(batch_of(part, codec=codec)))
            start += size
        produce_raw(self.bootstrap, topic, batches, partition)

    def _write_transactions(self, topic: str, partition: int, records: Sequence[Rec], rng: random.Random) -> None:
        """Two transactions at a time, and records outside of any, in one another's way; all are ended."""
        ids = [f"{topic}-{partition}-{number}" for number in range(2)]
        codecs = rng.sample(CODECS, len(ids))
        open_ids: set[str] = set()
        start = 0
        while start < len(records):
            size = rng.choice((1, 5, 60, 150))
            part = records[start : start + size]
            start += size
            writer = rng.randrange(3)
            if writer == len(ids):
                self._send(topic, partition, part, rng)
                continue
            name = ids[writer]
            self.oracle.produce(
                self.bootstrap, topic, {partition: part}, transactional_id=name, compression_type=codecs[writer]
            )
            open_ids.add(name)
            self.shapes["transaction interleaved"] += len(open_ids) > 1
            # Only one of several ends early: so every example with two writers has had two open at once.
            if len(open_ids) > 1 and rng.random() < 0.4:
                self._end(name, rng)
                open_ids.discard(name)
        for name in sorted(open_ids):
            self._end(name, rng)

    def _end(self, name: str, rng: random.Random) -> None:
        committed, aborted = (bool(self.shapes[f"transaction {end}"]) for end in ("committed", "aborted"))
        # Of a dozen that end by chance all may end alike; so the second one ends as the first one did not.
        commit = rng.random() < 0.5 if committed == aborted else aborted
        self.oracle.end_transaction(name, commit=commit)
        self.shapes["transaction committed" if commit else "transaction aborted"] += 1

    def _write_compacted(self, topic: str, partition: int, records: Sequence[Rec], rng: random.Random) -> None:
        """Few keys, so that most records are overwritten; then later ones than any: a segment closes by timestamp."""
        keyed = [replace(record, key=b"key-%d" % rng.randrange(len(records) // 4)) for record in records]
        # A segment whose first batch has no timestamp would close by the clock.
        self._send(topic, partition, [Rec(0, 1, 0, b"opening", b"")], rng)
        self._send(topic, partition, keyed, rng)
        for later_ms in (10_000_000, 20_000_000):
            closing = Rec(0, FAR_FUTURE_MS + later_ms, 0, b"closing-%d" % later_ms, b"")
            self._send(topic, partition, [closing], rng)

    def _write_big(self, topic: str, partition: int, rng: random.Random) -> None:
        small = generate(rng.randrange(2**32), 20, big_bytes=10)
        big = [Rec(0, NOW_MS, 0, b"big", rng.randbytes(size)) for size in (MEBIBYTE, 10 * MEBIBYTE)]
        headers = ((b"big", rng.randbytes(3 * MEBIBYTE)),)
        self._send(topic, partition, [*small, big[0], *small], rng)
        self._send(topic, partition, big[1:], rng)
        self._send(topic, partition, [Rec(0, NOW_MS, 0, None, None, headers), *small], rng)


def until_stable(bootstrap: str, topic: str) -> None:
    """Brokers write a transaction's marker after they answered its end: wait until none is missing."""

    async def body(client: KafkaClient) -> None:
        partitions = (await client.describe_topics([topic]))[topic].partitions
        while True:
            found = await client.offsets([(topic, partition) for partition in partitions])
            if all(row.last_stable == row.high_watermark for row in found.values()):
                return
            await asyncio.sleep(_POLL_S)

    with_client(bootstrap, body)


def until_compacted(oracle: JavaOracle, bootstrap: str, topic: str) -> Consumed:
    """Wait until no key is left twice: then the cleaner has nothing more to do."""
    for _ in range(100):
        now = oracle.consume(bootstrap, topic)
        if all(len({record.key for record in records}) == len(records) for records in now.records.values()):
            return now
        time.sleep(5 * _POLL_S)
    raise AssertionError(f"{topic}: the cleaner did nothing")
