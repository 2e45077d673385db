"""What a broker takes from anyone who may produce must not take more memory than was given: measured by the kernel, of real processes."""

from typing import Final

import pytest

from archiver.codec.batch import MOST_DECOMPRESSED_BYTES
from tests.support.bombs import BOMBS
from tests.support.peak import peak_bytes

MEGABYTE: Final = 1_000_000
ROOM_BYTES: Final = 160 << 20  # what the default of backup.memory has to decode in
# Of glibc's arenas, and of what is fetched and written.
SLACK_BYTES: Final = 24 << 20
CAT_BYTES: Final = 64 << 20
EVENTS_BYTES: Final = 50 << 20


@pytest.mark.parametrize(
    ("bomb", "megabytes", "threads"),
    [("empty headers", 2, 24), ("keys that differ", 1, 24), ("tiny records", 2, 24), ("a value", 150, 2)],
)
def test_a_backup_keeps_to_its_room(bomb: str, megabytes: int, threads: int) -> None:
    """Of 4 million empty headers, 267 bytes as they were sent, each of 24 threads took 170 MB."""
    peak = peak_bytes("backup", bomb, megabytes, threads, ROOM_BYTES, "zstandard")
    assert peak <= max(ROOM_BYTES, megabytes * MEGABYTE) + SLACK_BYTES


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("codec", ["zstandard", "snappy"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_the_largest_that_is_taken_is_worked_on_alone(bomb: str, codec: str) -> None:
    peak = peak_bytes("backup", bomb, 250, 2, ROOM_BYTES, codec)
    assert peak <= MOST_DECOMPRESSED_BYTES + SLACK_BYTES


@pytest.mark.parametrize(("bomb", "megabytes"), [("empty headers", 2), ("a value", 20)])
def test_what_is_printed_takes_little_beside_the_record(bomb: str, megabytes: int) -> None:
    """A million empty headers took 195 MB."""
    assert peak_bytes("read", bomb, megabytes, "cat") <= CAT_BYTES


@pytest.mark.parametrize(("megabytes", "count"), [(14, 1), (14, 60), (1, 1)])
def test_batches_of_the_coordination_topic_take_little(megabytes: int, count: int) -> None:
    """Of 7 million empty headers, 519 bytes as they were sent, one took 1.6 GB, and sixty of them 100 s."""
    assert peak_bytes("events", "empty headers", megabytes, count) <= EVENTS_BYTES
