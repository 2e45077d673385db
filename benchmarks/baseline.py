"""The baseline: what a careful engineer writes in an afternoon with confluent-kafka and fastavro. Ratios are against this.

One process. Backup: consume(10_000) and fastavro.writer, no validation, local files, no upload. Restore:
fastavro.reader over those files and an idempotent Producer.produce. Each prints one line of JSON: what it counted.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import fastavro
from confluent_kafka import Consumer, Message, Producer, TopicPartition

SCHEMA = Path(__file__).resolve().parents[1] / "schemas" / "AvroKafkaRecord-v2.0.avsc"
CONSUMED_AT_ONCE = 10_000
FILE_RECORDS = 1_000_000
BLOCK_BYTES = 512 * 1024  # as ours: larger blocks compress better, and fastavro is not slower with them
_PATIENCE_S = 30.0
_DELIVERY_PATIENCE_S = 300
_MOST_QUEUED = 500_000

Record = dict[str, Any]


class _Source:
    """The topic's records up to its ends at the start."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "benchmark-baseline", "enable.auto.commit": False}
        )
        partitions = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        bounds = {
            number: self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            for number in partitions
        }
        self.wanted = sum(high - low for low, high in bounds.values())
        self.payload_bytes = 0
        self._consumer.assign([TopicPartition(topic, number, low) for number, (low, _) in bounds.items()])

    def records(self) -> Iterator[Record]:
        left = self.wanted
        while left:
            messages = self._consumer.consume(min(CONSUMED_AT_ONCE, left), timeout=_PATIENCE_S)
            if not messages:
                raise TimeoutError(f"{left} of {self.wanted} records did not come")
            left -= len(messages)
            for message in messages:
                yield self._record(message)
        self._consumer.close()

    def _record(self, message: Message) -> Record:
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        key, value, headers = message.key(), message.value(), cast("list[tuple[str, bytes]] | None", message.headers())
        timestamp_type, timestamp = message.timestamp()
        self.payload_bytes += len(key or b"") + len(value or b"")
        return {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": timestamp,
            "key": key,
            "value": value,
            "headers": dict(headers) if headers and len(headers) == 1 else None,
            "orderedHeaders": [{"key": name, "value": text, "rawKey": None} for name, text in headers]
            if headers and len(headers) > 1
            else None,
            "timestampType": timestamp_type - 1,
        }


def back_up(bootstrap: str, topic: str, folder: Path, codec: str, level: int) -> dict[str, Any]:
    """Write the topic to files of at most FILE_RECORDS records."""
    schema = fastavro.parse_schema(json.loads(SCHEMA.read_text(encoding="utf-8")))
    source = _Source(bootstrap, topic)
    records = source.records()
    for number, first in enumerate(records):
        with (folder / f"{number:06}.avro").open("wb") as file:
            fastavro.writer(
                file,
                schema,
                chain([first], islice(records, FILE_RECORDS - 1)),
                codec=codec,
                codec_compression_level=level,
                sync_interval=BLOCK_BYTES,
                validator=False,
                disable_tuple_notation=True,
            )
    stored = sum(path.stat().st_size for path in folder.iterdir())
    return {"records": source.wanted, "payload_bytes": source.payload_bytes, "stored_bytes": stored}


def restore(bootstrap: str, topic: str, folder: Path) -> dict[str, Any]:
    """Produce every record of the files to an existing, empty topic; lz4 as ours, with large batches."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 2 * _MOST_QUEUED,
        }
    )
    records = payload_bytes = 0
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            for record in cast("Iterator[Record]", fastavro.reader(file)):
                _produce(producer, topic, record)
                records += 1
                payload_bytes += len(record["key"] or b"") + len(record["value"] or b"")
                if records % CONSUMED_AT_ONCE == 0:
                    producer.poll(0)
    if producer.flush(_DELIVERY_PATIENCE_S):
        raise TimeoutError("not all records were delivered")
    return {"records": records, "payload_bytes": payload_bytes}


def _produce(producer: Producer, topic: str, record: Record) -> None:
    ordered, single = record["orderedHeaders"], record["headers"]
    headers = [(header["key"], header["value"]) for header in ordered] if ordered else list((single or {}).items())
    while True:
        try:
            producer.produce(
                topic,
                partition=record["partition"],
                key=record["key"],
                value=record["value"],
                timestamp=record["timestamp"],
                headers=headers,
            )
        except BufferError:
            producer.poll(0.05)
        else:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operation", choices=("backup", "restore"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--codec", default="zstandard")
    parser.add_argument("--level", type=int, default=1)
    given = parser.parse_args()
    started_s = time.monotonic()
    if given.operation == "backup":
        given.folder.mkdir(parents=True, exist_ok=True)
        found = back_up(given.bootstrap, given.topic, given.folder, given.codec, given.level)
    else:
        found = restore(given.bootstrap, given.topic, given.folder)
    json.dump({**found, "seconds": time.monotonic() - started_s}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
