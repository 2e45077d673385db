"""Which partition a record goes to: Kafka's own vectors, a plain murmur2, and records without a key in turn."""

import random

import numpy as np
import pytest

from archiver.codec.frame import Column, Frame
from archiver.codec.kernels.murmur2 import Partitioner, choose_partitions
from archiver.codec.rows import plain_records_of
from tests.support.frames import frame_of
from tests.support.murmur2 import murmur2
from tests.support.records import Rec

# Of org.apache.kafka.common.utils.UtilsTest, as Java's signed numbers.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def frame(keys: list[bytes | None]) -> Frame:
    return frame_of([Rec(at, 0, 0, key, b"%d" % at) for at, key in enumerate(keys)])


@pytest.mark.parametrize("key", VECTORS)
def test_kafkas_vectors(key: bytes) -> None:
    assert murmur2(key) == VECTORS[key] % 2**32
    chosen = np.empty(1, np.int64)
    found = frame([key])
    assert choose_partitions(found.body, found.table, 2**31, 0, chosen) == 0
    assert chosen[0] == VECTORS[key] & 0x7FFFFFFF


@pytest.mark.parametrize("partitions", [1, 2, 3, 64, 9999])
def test_keys_of_all_lengths(partitions: int) -> None:
    rng = random.Random(partitions)
    keys = [rng.randbytes(length) for length in range(70) for _ in range(3)]
    found = frame([*keys])
    chosen = np.empty(len(keys), np.int64)
    choose_partitions(found.body, found.table, partitions, 0, chosen)
    assert chosen.tolist() == [(murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]


def test_records_are_dealt_in_order_and_those_without_a_key_in_turn() -> None:
    """Across frames, and an empty key is a key."""
    rng = random.Random(4)
    keys = [rng.choice([None, b"", b"a", b"b", b"c", b"longer than that"]) for _ in range(200)]
    nulls = iter(range(2, 10**6))
    expected: dict[int, list[int]] = {}
    for at, key in enumerate(keys):
        target = next(nulls) % 3 if key is None else (murmur2(key) & 0x7FFFFFFF) % 3
        expected.setdefault(target, []).append(at)
    partitioner = Partitioner(3, 5)
    whole = frame(keys)
    found: dict[int, list[int]] = {}
    for start, stop in ((0, 1), (1, 90), (90, 90), (90, 200)):
        for target, share in partitioner.deal(whole.rows(start, stop)):
            found.setdefault(target, []).extend(row.offset for row in plain_records_of(share))
            assert all(row.value == b"%d" % row.offset for row in plain_records_of(share))
    assert found == expected


@pytest.mark.parametrize(
    ("column", "value"), [(Column.KEY_START, 10**6), (Column.KEY_START, -1), (Column.KEY_LENGTH, 10**6)]
)
def test_a_key_outside_its_buffer_is_refused(column: Column, value: int) -> None:
    broken = frame([b"a", b"b"])
    broken.table[column, 1] = value
    with pytest.raises(ValueError, match="outside its buffer"):
        list(Partitioner(3, 0).deal(broken))
