"""Where archive and log part: real brokers whose logs are cut by hand, and grow again with other records."""

import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.topics import Branch, LifeRange
from archiver.archive.reading.catalog import find_topic
from archiver.archive.reading.plain_records import read_records
from archiver.backup.opening.cut_back import find_branch
from archiver.codec.batch import decode_batches
from archiver.config.model import ArchiverConfig
from archiver.errors import KafkaError
from archiver.kafka.brokers.calls import OffsetForLeaderEpochCall
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.epochs import ends_of_epochs
from archiver.kafka.records.fetch import FetchTarget, fetch
from archiver.process.running.workers import Workers
from archiver.store.port import ObjectKind
from tests.support.brokers import KAFKA_41, Broker, StartBroker
from tests.support.cluster import cut_log, log_folder
from tests.support.frames import records_of
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import batches_in, create_topic, with_client
from tests.support.memory_store import CountingStore
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, errors_of
from tests.support.segments import facts_of
from tests.support.zookeeper import StartZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

LAYOUT = Layout("p")
ROOT = [LifeRange(0, 0, None)]
PER_BATCH = 10
Log = dict[int, tuple[int, bytes]]  # base offset of a batch -> its leader epoch, its bytes


@dataclass(frozen=True, slots=True)
class Ground:
    """A topic on a broker, and an archive of it that has facts and no bodies."""

    broker: Broker
    topic: str
    store: CountingStore

    def send(self, partition: int, count: int, text: bytes) -> None:
        """Small batches, so that there are many places to cut."""
        records = [Rec(at, NOW_MS, 0, b"k", b"%s %d" % (text, at)) for at in range(PER_BATCH)]
        produce_raw(self.broker.bootstrap, self.topic, [encode(batch_of(records))] * (count // PER_BATCH), partition)

    def log(self, partition: int, from_offset: int = 0, epoch: int = -1) -> Log:
        target = FetchTarget(
            topic=self.topic, topic_id="", partition=partition, offset=from_offset, last_fetched_epoch=epoch
        )

        async def body(client: KafkaClient) -> Log:
            (found,) = await fetch(
                client, 1, [target], max_bytes=10**7, partition_bytes=10**7, max_wait_ms=0, min_bytes=0
            )
            assert found.error is None, found
            return {base: (struct.unpack_from(">i", raw, 12)[0], raw) for base, _, raw in batches_in(found.records)}

        return with_client(self.broker.bootstrap, body)

    def archive(self, partition: int, base: int, next_offset: int, life: int = 0, epoch: int | None = None) -> None:
        """Put the facts of one segment as a backup would have stated them."""
        found = self.log(partition)[next_offset - 1 - (next_offset - 1) % PER_BATCH][0] if epoch is None else epoch
        facts = replace(facts_of(base, next_offset), leader_epoch=found)
        key = SegmentKey(topic=self.topic, life=life, partition=partition, base=base)
        assert self.store.put_if_absent(LAYOUT.segment_key(key), b"", facts.to_metadata(), kind=ObjectKind.SEGMENT)

    def branch(self, partition: int, lineage: list[LifeRange] = ROOT, log_start: int = 0) -> Branch:
        async def body(client: KafkaClient) -> Branch:
            return await find_branch(
                client,
                Archive(self.store, LAYOUT),
                pool=Workers(1, "branch"),
                topic=self.topic,
                partition=partition,
                lineage=lineage,
                log_start=log_start,
            )

        return with_client(self.broker.bootstrap, body)


def restart(broker: KafkaBroker, topic: str, ends: Mapping[int, int | None]) -> None:
    """Stop, cut each log (None: lose it), start: the broker leads on in a new epoch, once it leads at all."""
    broker.stop()
    for partition, end in ends.items():
        if end is None:
            shutil.rmtree(log_folder(broker, topic, partition))
        else:
            cut_log(broker, topic, partition, end)
    broker.start()
    with_client(broker.bootstrap, lambda client: client.offsets([(topic, partition) for partition in ends]))


# Archived: three segments, each ending in an epoch of its own. Where the log was cut -> where the two are seen to part.
CUTS = {90: 90, 70: 70, 60: 60, 40: 35, 20: 20, 0: 0, None: 0, 100: 100}
BOUNDS = ((0, 35), (35, 70), (70, 100))


def test_the_branch_is_where_the_logs_part(shared_broker: StartBroker, topic: str) -> None:
    broker = shared_broker(KAFKA_41)
    partitions = dict(enumerate(CUTS))
    create_topic(broker.bootstrap, topic, len(partitions), KEEP_ALL)
    ground = Ground(broker, topic, CountingStore())
    for count in (40, 40, 20):  # epochs begin at 0, 40 and 80
        for partition in partitions:
            ground.send(partition, count, b"old")
        restart(broker, topic, dict.fromkeys(partitions, 100))
    for partition in partitions:
        for bounds in BOUNDS:
            ground.archive(partition, *bounds)
    before = {partition: ground.log(partition) for partition in partitions}
    epochs = [before[0][base][0] for base in (30, 60, 90)]
    assert epochs == sorted(set(epochs))
    unchanged = {partition: ground.branch(partition) for partition in partitions}
    assert set(unchanged.values()) == {Branch(offset=100, leader_epoch=epochs[2])}

    restart(broker, topic, partitions)
    for partition in partitions:
        assert ground.branch(partition).offset == CUTS[partitions[partition]]  # before anything else is written
        ground.send(partition, 120, b"new")
    for partition, end in partitions.items():
        after = ground.log(partition)
        parted = min(base for base in after if before[partition].get(base) != after[base])
        assert parted == (end or 0)
        branch = ground.branch(partition)
        assert branch.offset == CUTS[end] <= parted
        going_on = ground.log(partition, branch.offset, branch.leader_epoch)  # the broker sees no divergence there
        assert {base: raw for base, raw in after.items() if base + PER_BATCH > branch.offset} == going_on
    check_the_log_start(ground)
    check_a_second_cut(broker, ground, list(CUTS).index(60))


def check_the_log_start(ground: Ground) -> None:
    """Nobody can archive again what the log has lost: the branch is not below its start."""
    admin = AdminClient({"bootstrap.servers": ground.broker.bootstrap})
    for end, start, offset in ((20, 50, 50), (None, 110, 100), (90, 50, 90)):
        partition = list(CUTS).index(end)
        (deleted,) = admin.delete_records([TopicPartition(ground.topic, partition, start)]).values()
        deleted.result(30)
        assert ground.branch(partition, log_start=start).offset == offset


def check_a_second_cut(broker: KafkaBroker, ground: Ground, partition: int) -> None:
    """The second cut lies below the first: what the child life has is no longer the log's, nor the parent's end."""
    lineage = [LifeRange(0, 0, 60), LifeRange(1, 60, None)]
    ground.archive(partition, 60, 90, life=1)
    before = ground.store.heads
    assert ground.branch(partition, lineage).offset == 90
    assert ground.store.heads == before + 1
    restart(broker, ground.topic, {partition: 50})
    ground.send(partition, 60, b"newer")
    branch = ground.branch(partition, lineage)
    assert branch.offset == 50
    assert ground.log(partition, branch.offset, branch.leader_epoch)


@pytest.mark.s3
def test_what_is_read_through_the_lives_is_the_log(shared_broker: StartBroker, topic: str, site: ArchiveSite) -> None:
    """Backup, cut, backup, and once more: two logs cut at once, one a second time and lower, one never."""
    broker = shared_broker(KAFKA_41)
    create_topic(broker.bootstrap, topic, 3, KEEP_ALL)
    ground = Ground(broker, topic, CountingStore())
    rounds: list[dict[int, int | None]] = [{}, {0: 40, 1: None}, {0: 20}]
    for number, ends in enumerate(rounds):
        restart(broker, topic, {**dict.fromkeys(range(3), 1000), **ends})
        for partition in range(3):
            ground.send(partition, 60 + 30 * number, b"round %d" % number)
        assert errors_of(site.back_up(broker.bootstrap, topic, records=35)) == {}
    store, layout = open_archive(ArchiverConfig.model_validate(site.config(broker.bootstrap, ())).storage)
    found = find_topic(Archive(store, layout), topic)
    assert (found.life, found.other_lives) == (2, ())
    archived = list(read_records(store, found, report_problem=pytest.fail))
    for partition in range(3):
        log = values_in(ground, partition)
        assert [(row["offset"], row["value"]["utf8"]) for row in archived if row["partition"] == partition] == log
    kept = read_records(store, find_topic(Archive(store, layout), topic, 0), partition=0, report_problem=pytest.fail)
    assert [row["value"]["utf8"][:7] for row in kept] == ["round 0"] * 60


# What is left of a log of 100 records (None: it is lost); then it grows again to just where its archive ends.
REGROWN = {0: 40, 1: None, 2: 90, 3: 100}


@pytest.mark.s3
def test_a_log_that_has_grown_again_to_just_where_its_archive_ends(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is to be fetched, and yet the archive goes on where each log was cut; one request tells of all."""
    broker = shared_broker(KAFKA_41)
    create_topic(broker.bootstrap, topic, len(REGROWN), KEEP_ALL)
    ground = Ground(broker, topic, CountingStore())
    for partition in REGROWN:
        ground.send(partition, 100, b"old")
    assert errors_of(site.back_up(broker.bootstrap, topic, records=35)) == {}
    restart(broker, topic, REGROWN)
    for partition, end in REGROWN.items():
        ground.send(partition, 100 - (end or 0), b"new")
    reports = site.back_up(broker.bootstrap, topic)
    assert errors_of(reports) == {}
    found = {number: (report.source.life, report.written.records) for (_, number), report in reports.items()}
    assert found == {0: (1, 60), 1: (1, 100), 2: (1, 10), 3: (0, 0)}
    archive = open_archive(ArchiverConfig.model_validate(site.config(broker.bootstrap, ())).storage)
    archived = list(read_records(archive.store, find_topic(archive, topic), report_problem=pytest.fail))
    for partition in REGROWN:
        log = values_in(ground, partition)
        assert [(row["offset"], row["value"]["utf8"]) for row in archived if row["partition"] == partition] == log
    asked = note_calls(monkeypatch)
    again = site.back_up(broker.bootstrap, topic)
    assert errors_of(again) == {}
    assert {report.written.records for report in again.values()} == {0}
    assert {number: report.source.life for (_, number), report in again.items()} == {0: 1, 1: 1, 2: 1, 3: 0}
    assert asked.count(OffsetForLeaderEpochCall) == 1


def test_an_old_broker_tells_where_epochs_end(shared_zookeeper_broker: StartZooKeeperBroker, topic: str) -> None:
    broker = shared_zookeeper_broker()
    create_topic(broker.bootstrap, topic, 2, {"retention.ms": "-1"})
    ground = Ground(broker, topic, CountingStore())
    for partition in range(2):
        ground.send(partition, 50, b"old")
    keys = [(topic, number) for number in range(2)]
    ends, refused = with_client(
        broker.bootstrap, lambda client: ends_of_epochs(client, {keys[0]: 0, keys[1]: 99, ("none", 0): 0})
    )
    assert {key: (end.leader_epoch, end.end_offset) for key, end in ends.items()} == {
        keys[0]: (0, 50),
        keys[1]: (-1, -1),
    }
    assert list(refused) == [("none", 0)]


def note_calls(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """Return the types of the requests that are sent from now on."""
    asked, real = list[type](), KafkaClient.send

    async def send(client: KafkaClient, node_id: int, call: Any, **more: Any) -> Any:  # noqa: ANN401 - as they are
        asked.append(type(call))
        return await real(client, node_id, call, **more)

    monkeypatch.setattr(KafkaClient, "send", send)
    return asked


def values_in(ground: Ground, partition: int) -> list[tuple[int, str]]:
    log = b"".join(raw for _, raw in ground.log(partition).values())
    return [(record.offset, (record.value or b"").decode()) for record in records_of(decode_batches(log, 0).frame)]


def test_a_topic_that_is_not_there_is_an_error(broker_41: Broker, topic: str) -> None:
    ground = Ground(broker_41, topic, CountingStore())
    ground.archive(0, 0, 10, epoch=0)
    with pytest.raises(KafkaError, match=topic):
        ground.branch(0)
