"""A cluster of three brokers that were killed, and whose disks have damage: its import is what Java's consumer read before."""

import json
import os
import random
import re
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from archiver.demo.sandbox import JAVA_OPTIONS, fetch_kafka
from archiver.kafka.groups.group_positions import positions_of
from tests.integration.groups.test_group_positions import commit
from tests.support import cluster as clusters
from tests.support.brokers import CACHE, KAFKA_41, Broker
from tests.support.cluster import BrokerCluster, broker_cluster, log_folder
from tests.support.foreign_reader import read_partitions, read_segments
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import producer_of, with_client
from tests.support.log_directories import batch
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT: Final = {"segment.bytes": "1048576", "file.delete.delay.ms": "600000"}
KEYS: Final = 50


@dataclass(frozen=True)
class Disks:
    """What is left of the cluster, and what Java read of it before."""

    folders: Mapping[int, Path]  # log directories by node
    theirs: Mapping[str, list[Rec]]  # by topic
    group_at: int
    uncleaned: Mapping[str, bytes]  # files of the compacted topic on node 2 before the cleaner came


def send(producer: Producer, topic: str, count: int, *, key: int | None = None) -> None:
    """Every tenth value holds whole batches, of offsets that the log has, too."""
    for number in range(count):
        whole = b"".join(batch(offset, value=b"inside") for offset in range(number, number + 20))
        value = whole if number % 10 == 9 else random.randbytes(600)
        name = b"%d" % (number % key) if key else None
        producer.produce(topic, value, name, partition=0, timestamp=NOW_MS + number, headers=[("h", b"1")])
        producer.poll(0)
    assert producer.flush(30) == 0


@pytest.fixture
def disks(tmp_path: Path, topic: str, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disks]:
    monkeypatch.setattr(clusters, "JAVA_OPTIONS", ("-Xmx256m", *JAVA_OPTIONS[1:]))
    noted_often = {"replica.high.watermark.checkpoint.interval.ms": "300"}
    of_node = dict.fromkeys((1, 2, 3), noted_often)
    with broker_cluster(tmp_path / "cluster", 3, of_node=of_node) as cluster:
        names = [f"{topic}.{kind}" for kind in ("codecs", "tx", "compacted")]
        cluster.create_topic(names[0], [[1, 2, 3]], SEGMENT | {"preallocate": "true"})
        cluster.create_topic(names[1], [[3, 1, 2]], SEGMENT)
        cluster.create_topic(names[2], [[2, 3, 1]], SEGMENT)
        for codec in CODECS:
            send(producer_of(cluster.bootstrap, compression_type=codec, linger_ms=5), names[0], 800)
        open_one = transactions(cluster, names[1], topic)
        send(producer_of(cluster.bootstrap, linger_ms=5), names[2], 3_000, key=KEYS)
        uncleaned = clean(cluster, names[2])
        commit_of(cluster, topic, names[0])
        theirs = {name: java_oracle.consume(cluster.bootstrap, name).records[0] for name in names}
        open_one.begin_transaction()
        send(open_one, names[1], 10)
        eventually(lambda: all(is_noted(node.data_dir, names) for node in cluster.nodes.values()), "checkpoints lag")
        for node in cluster.nodes.values():
            os.kill(node.pid, signal.SIGKILL)
        yield Disks({number: node.data_dir / "log" for number, node in cluster.nodes.items()}, theirs, 1_234, uncleaned)


def transactions(cluster: BrokerCluster, topic: str, name: str) -> Producer:
    producer = producer_of(cluster.bootstrap, transactional_id=name)
    producer.init_transactions(60)
    for number in range(12):
        producer.begin_transaction()
        send(producer, topic, 30)
        if number % 3:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    return producer


def clean(cluster: BrokerCluster, topic: str) -> Mapping[str, bytes]:
    """Let the cleaner compact a topic. Returns the files that it replaced on node 2."""
    folder = log_folder(cluster.nodes[2], topic, 0)
    before = {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))[:-1]}
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for name, value in {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}.items():
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)
    names = [log_folder(node, topic, 0) / f"{0:020}.log" for node in cluster.nodes.values()]
    eventually(lambda: all(name.stat().st_size < len(before[name.name]) for name in names), "it was not compacted")
    return before


def commit_of(cluster: BrokerCluster, group: str, topic: str) -> None:
    for offset in (1, 700, 1_234):
        commit(cluster.nodes[1], group, ClientPartition(topic, 0, offset))


def is_noted(data: Path, topics: list[str]) -> bool:
    """Return whether a broker's checkpoint is at the end of these logs, and of that of the groups."""
    noted = (data / "log" / "replication-offset-checkpoint").read_text().splitlines()[2:]
    offsets = {line.rsplit(" ", 2)[0]: int(line.rsplit(" ", 1)[1]) for line in noted}
    return all(offsets.get(name) == end_of(data / "log" / f"{name}-0") for name in [*topics, "__consumer_offsets"])


def positions_in(content: bytes | bytearray) -> list[tuple[int, int, int]]:
    """Return the first offset, the place and the size of each batch."""
    found, at = [], 0
    while at + 61 <= len(content) and (size := struct.unpack_from(">i", content, at + 8)[0]):
        found.append((struct.unpack_from(">q", content, at)[0], at, size + 12))
        at += size + 12
    return found


def end_of(folder: Path) -> int:
    for path in sorted(folder.glob("*.log"), reverse=True):
        content = path.read_bytes()
        if batches := positions_in(content):
            first, at, _ = batches[-1]
            return int(first + struct.unpack_from(">i", content, at + 23)[0] + 1)
    return 0


def flip(file: Path, share: float) -> int:
    """Flip a bit in a batch in the midst of a file. Returns the batch's first offset."""
    content = bytearray(file.read_bytes())
    batches = positions_in(content)
    first, at, size = batches[int(len(batches) * share)]
    content[at + size // 2] ^= 4
    file.write_bytes(content)
    return first


def dumped_offsets(files: list[Path]) -> set[int]:
    """Return the offsets of all records in log files, as Kafka's own tool tells them. It fails at zeros at the end."""
    jars = fetch_kafka(KAFKA_41, CACHE)
    names = ",".join(map(str, files))
    command = [
        "java",
        *JAVA_OPTIONS,
        "-cp",
        f"{jars}/*",
        "kafka.tools.DumpLogSegments",
        "--print-data-log",
        "--files",
        names,
    ]
    told = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, errors="replace").stdout
    return {int(one) for one in re.findall(r"^\| offset: (\d+) ", told, re.MULTILINE)}


def import_logs(site: ArchiveSite, folders: list[Path], *options: str, code: int) -> dict[str, Any]:
    site.write_config("127.0.0.1:1")
    done = site.run_within("import", "kafka-log", *map(str, folders), "--format", "json", "--quiet", *options)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return {one["topic"]: one for one in found["planned"]} | {"told": done.stderr}


def test_the_disks_of_a_killed_cluster(disks: Disks, site: ArchiveSite, topic: str, broker_41: Broker) -> None:
    codecs, tx, compacted = (f"{topic}.{kind}" for kind in ("codecs", "tx", "compacted"))
    # Node 1 has a broken batch, node 2 lost a part of its last file, and node 3 has another broken batch.
    logs = {number: sorted((folder / f"{codecs}-0").glob("*.log")) for number, folder in disks.folders.items()}
    offsets = dumped_offsets(logs[1])
    broken = [flip(logs[1][0], 0.5), flip(logs[3][1], 0.5)]
    content = logs[2][-1].read_bytes()
    logs[2][-1].write_bytes(content[: positions_in(content)[-1][1] - 5])
    # The cleaner of node 2 was killed behind its last step but one: both its files and those that they replace are there.
    folder = disks.folders[2] / f"{compacted}-0"
    for deleted in [*folder.glob("*.deleted"), *folder.glob("*.index"), *folder.glob("*.timeindex")]:
        deleted.unlink()
    for name, content in disks.uncleaned.items():
        if (folder / name).exists():
            (folder / name).rename(folder / f"{name}.swap")
        (folder / name).write_bytes(content)

    folders = list(disks.folders.values())
    found = import_logs(site, folders, "--topics", f"{re.escape(topic)}.(codecs|tx)|__consumer_offsets", code=3)
    ((first, until, source),) = found[codecs]["filled"]
    assert first in broken
    assert (until > first, source != found[codecs]["folder"], found[codecs]["holes"]) == (True, True, [])
    import_logs(site, folders[1:2], "--topics", re.escape(compacted), code=0)

    for name in (codecs, tx, compacted):
        assert read_partitions(site.bucket, name)[0] == disks.theirs[name], name
    assert {one.offset for one in disks.theirs[codecs]} == offsets
    assert len(disks.theirs[compacted]) < 3_000
    holes = [one for segment in read_segments(site.bucket, tx) for one in segment.holes.split(";") if one]
    assert len(holes) == 1
    assert holes[0].endswith(":undecided")
    groups_are_right(site, disks, topic, codecs, broker_41)


def groups_are_right(site: ArchiveSite, disks: Disks, group: str, codecs: str, target: Broker) -> None:
    shown = json.loads(site.run_within("groups", "show", "--format", "json").stdout)
    assert [(one["group"], one["topic"], one["offset"], one["state"]) for one in shown["positions"]] == [
        (group, codecs, disks.group_at, "set")
    ]
    site.write_target(target.bootstrap)
    files = ("--target", "target.yaml", "--topics", re.escape(codecs), "--groups", re.escape(group))
    done = site.run_within("restore", *files, "--quiet", "--format", "json")
    assert done.returncode == 0, done.stderr
    positions = with_client(target.bootstrap, lambda client: positions_of(client, group))
    assert {place: one.offset for place, one in positions.items()} == {(codecs, 0): disks.group_at}
