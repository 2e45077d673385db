"""Records for a restore into another number of partitions: writes them, deals them by key by brute force, reads the target."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.support.brokers import Broker
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.murmur2 import murmur2
from tests.support.raw_produce import produce_records
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import KEEP_ALL

Rows = dict[int, list[Rec]]


def fill(broker: Broker, topic: str, sizes: Sequence[int], seed: int) -> Rows:
    """Keys of all lengths, each in one partition alone or not, some null, some empty; values tell all records apart."""
    rng = random.Random(seed)
    keys = [rng.randbytes(rng.randrange(12)) for _ in range(40)]
    create_topic(broker.bootstrap, topic, len(sizes), KEEP_ALL)
    written: Rows = {}
    for partition, size in enumerate(sizes):
        rows = [
            Rec(
                at,
                NOW_MS + rng.randrange(1000),
                0,
                rng.choice([None, b"", *keys]),
                rng.choice([None, b"%d of %d " % (at, partition) + rng.randbytes(rng.randrange(60))]),
                ((b"at", b"%d/%d" % (partition, at)),),
            )
            for at in range(size)
        ]
        produce_records(broker.bootstrap, topic, rows, size=50, partition=partition)
        written[partition] = rows
    return written


def brute_force(rows: Mapping[int, Sequence[Rec]], partitions: int) -> dict[tuple[int, int], list[Rec]]:
    """What each source partition must have in each target partition, in this order."""
    found: dict[tuple[int, int], list[Rec]] = defaultdict(list)
    for source, records in rows.items():
        nulls = source
        for record in records:
            if record.key is None:
                target, nulls = nulls % partitions, nulls + 1
            else:
                target = (murmur2(record.key) & 0x7FFFFFFF) % partitions
            found[source, target].append(replace(record, offset=0, timestamp_type=0))
    return found


def on_target(oracle: JavaOracle, broker: Broker, topic: str, skipped: int = 0) -> dict[tuple[int, int], list[Rec]]:
    """What stands there, by source and target partition; sources by the header that `fill` has given them."""
    found: dict[tuple[int, int], list[Rec]] = defaultdict(list)
    for target, records in oracle.consume(broker.bootstrap, topic).records.items():
        for record in records[skipped:]:
            source = int((record.headers[0][1] or b"").partition(b"/")[0])
            found[source, target].append(replace(record, offset=0))
    return found
