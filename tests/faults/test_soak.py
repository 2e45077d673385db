"""Nothing grows: many segments and many rebalances, and the process is as large as it was."""

import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.support.brokers import KAFKA_41, Bucket, StartBroker
from tests.support.foreign_reader import read_partitions
from tests.support.kafka_topics import create_topic
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, archive_site
from tests.support.service import Instance, eventually, running, service_config

pytestmark = [pytest.mark.installed, pytest.mark.kafka, pytest.mark.s3]

GROUP = "soak"
PARTITIONS = 4
PER_SEGMENT = 10
BATCH = [Rec(at, NOW_MS, 0, b"k%d" % at, b"value %d" % at) for at in range(PER_SEGMENT)]


@pytest.fixture
def site(bucket: Bucket, tmp_path: Path) -> Iterator[ArchiveSite]:
    with archive_site(bucket, tmp_path) as site:
        yield site


@dataclass(slots=True)
class Sizes:
    """What a process takes, over time."""

    pid: int
    spool: Path
    rows: dict[str, list[float]] = field(default_factory=dict)

    def sample(self) -> None:
        process = Path("/proc", str(self.pid))
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        files = [path for path in self.spool.rglob("*") if path.is_file()]
        for name, value in (
            ("memory MB", int(status["VmRSS"].split()[0]) / 1024),
            ("threads", int(status["Threads"])),
            ("file handles", len(list((process / "fd").iterdir()))),
            ("spool files", len(files)),
        ):
            self.rows.setdefault(name, []).append(value)

    def growth(self) -> dict[str, tuple[float, float]]:
        """Medians of the second tenth and of the last."""
        tenth = max(1, len(next(iter(self.rows.values()))) // 10)
        return {
            name: (statistics.median(row[tenth : 2 * tenth]), statistics.median(row[-tenth:]))
            for name, row in self.rows.items()
        }


@contextmanager
def traffic(bootstrap: str, topic: str, batches: int) -> Iterator[threading.Thread]:
    """As many segments as batches: each batch fills one."""
    content = encode(batch_of(BATCH))

    def send() -> None:
        for turn in range(batches // PARTITIONS // 5):
            del turn
            for partition in range(PARTITIONS):
                produce_raw(bootstrap, topic, [content] * 5, partition)

    thread = threading.Thread(target=send)
    thread.start()
    yield thread
    thread.join()


def rival_comes_and_goes(bootstrap: str, topic: str) -> None:
    """Another member of the group takes partitions, and leaves."""
    rival = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 6000,
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    rival.subscribe([topic])

    def has_partitions() -> bool:
        rival.poll(0.1)
        return len(rival.assignment()) > 0

    try:
        eventually(has_partitions, "the rival got no partition")
    finally:
        rival.close()


def soak(site: ArchiveSite, bootstrap: str, topic: str, *, rolls: int, rebalances: int) -> Sizes:
    create_topic(bootstrap, topic, PARTITIONS, KEEP_ALL)
    config = service_config(site, bootstrap, topic, group=GROUP)
    config["backup"]["segment"] = {"records": PER_SEGMENT, "age": "5s"}
    with running(site, config) as instance:
        eventually(lambda: instance.value("archiver_partitions", topic=topic) == PARTITIONS)
        sizes = Sizes(instance.process.pid, site.folder / "spool")
        with traffic(bootstrap, topic, rolls):
            for turn in range(rebalances):
                rival_comes_and_goes(bootstrap, topic)
                eventually(
                    lambda: instance.value("archiver_partitions", topic=topic) == PARTITIONS, f"rebalance {turn}"
                )
                _wait_for_share(instance, topic, rolls * (turn + 1) // rebalances)
                sizes.sample()
        assert instance.value("archiver_rebalances_total") >= 2 * rebalances
        assert instance.total("archiver_puts_total", topic=topic) >= rolls * 0.9  # a few batches share one at an age
        assert instance.stop() == 0
    found = read_partitions(site.bucket, topic)
    expected = rolls // PARTITIONS // 5 * 5 * PER_SEGMENT
    assert {number: [row.offset for row in rows] for number, rows in found.items()} == {
        number: list(range(expected)) for number in range(PARTITIONS)
    }
    return sizes


def _wait_for_share(instance: Instance, topic: str, rolls: int) -> None:
    """Rolls and rebalances go side by side, to the end."""
    eventually(
        lambda: instance.total("archiver_records_total", topic=topic) >= (rolls - 2 * PARTITIONS * 5) * PER_SEGMENT,
        f"not {rolls} segments",
        timeout_s=120,
    )


def check(sizes: Sizes, memory_share: float, connections: int = 0) -> None:
    """`connections`: so many may still come: the store's client keeps those that it needed at once, and a slow moment needs more."""
    growth = sizes.growth()
    print(growth)
    more = {"spool files": PARTITIONS, "file handles": connections}
    for name, (early, late) in growth.items():
        allowed = memory_share if name == "memory MB" else 1.05
        assert late <= early * allowed + more.get(name, 0), f"{name} grew: {growth}"


def test_some_hundred_segments_and_a_few_rebalances(new_broker: StartBroker, topic: str, site: ArchiveSite) -> None:
    check(soak(site, new_broker(KAFKA_41).bootstrap, topic, rolls=240, rebalances=3), 1.2, connections=16)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_segments_and_a_hundred_rebalances(new_broker: StartBroker, topic: str, site: ArchiveSite) -> None:
    check(soak(site, new_broker(KAFKA_41).bootstrap, topic, rolls=10_000, rebalances=100), memory_share=1.05)
