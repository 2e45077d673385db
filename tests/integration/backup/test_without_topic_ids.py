"""Brokers that give topics no ids: whether a name still stands for the topic that was archived, its records must tell."""

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from archiver.backup.run import run_backup
from archiver.config.load import load_config
from archiver.errors import TargetError
from archiver.restore.request import Existing
from archiver.spark.verify import run_verify
from archiver.upkeep.verify import Level
from tests.conftest import kafka_jars
from tests.support.brokers import Broker, StartBroker
from tests.support.chaos.broken import Change, make_overlay
from tests.support.cluster import cut_log
from tests.support.examples import EAGER_CLEANER
from tests.support.foreign_reader import keys_in, read_partitions, read_segments, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values, producer_of, recreate_topic
from tests.support.processes import standing_still
from tests.support.records import Rec
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually, running, service_config, until_archived
from tests.support.target_topics import archived, configs_of, log_of, records_of, restored, write
from tests.support.zookeeper import KAFKA_28, WITHOUT_TOPIC_IDS, ZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

KEPT = {"retention.ms": "-1"}
NO_IDS = Change("kafka/client.py", "topic_id=topic.topic_id,", 'topic_id="",')
WITH_TOPIC_IDS = {"inter.broker.protocol.version": "2.8"}


@pytest.fixture(scope="module")
def shared() -> Iterator[ZooKeeperBroker]:
    """For tests that leave it as it is, but for their own topics."""
    jars = kafka_jars(KAFKA_28)
    with (
        tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder,
        ZooKeeperBroker(jars, Path(folder), properties=WITHOUT_TOPIC_IDS) as broker,
    ):
        yield broker


@pytest.fixture(scope="module")
def upgraded() -> Iterator[ZooKeeperBroker]:
    """For tests that change its protocol."""
    jars = kafka_jars(KAFKA_28)
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder:
        broker = ZooKeeperBroker(jars, Path(folder))
        yield broker
        broker.stop()


def speak(broker: ZooKeeperBroker, protocol: Mapping[str, str]) -> None:
    """From now on it speaks this one."""
    if not broker.running or protocol.items() - broker.properties.items():
        broker.stop()
        broker.properties.update(protocol)
        broker.start()


def produce(bootstrap: str, topic: str, count: int, text: str, partition: int = 0) -> None:
    values = [f"{text} {number}".encode() for number in range(count)]
    produce_values(bootstrap, topic, values, partition, batch_num_messages=10, linger_ms=200)


def lose_below(bootstrap: str, topic: str, offset: int, partition: int = 0) -> None:
    """As retention does it."""
    where = TopicPartition(topic, partition, offset)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([where])[where].result(20)


def back_up(site: ArchiveSite, exit_code: int = 0) -> str:
    """Up to what is committed at the start, as archive.yaml says, in this process; what the command would complain of."""
    found, _ = run_backup(load_config(site.folder / "archive.yaml"), lambda _: None)
    said = "\n".join(map(str, found.errors))
    assert max((error.exit_code for error in found.errors), default=0) == exit_code, said
    return said


def consumed(oracle: JavaOracle, bootstrap: str, topic: str) -> dict[int, list[Rec]]:
    return {number: records for number, records in oracle.consume(bootstrap, topic).records.items() if records}


def known_lives(site: ArchiveSite, topic: str) -> list[tuple[str, int | None]]:
    """Of each life its topic id and its parent, as the newest control fact has them."""
    key = keys_in(site.bucket, f"control/topics/{topic}/")[-1]
    content = s3_client(site.bucket).get_object(Bucket=site.bucket.name, Key=key)["Body"].read()
    return [(life["topic_id"], life["parent"]) for life in json.loads(content)["lives"]]


def test_a_topic_without_id_is_not_purged(
    shared: ZooKeeperBroker, broker_41: Broker, topic: str, site: ArchiveSite
) -> None:
    """Deletion goes by ids: what has none may be another topic by then."""
    archived(broker_41, topic, site, records_of(20))
    create_topic(shared.bootstrap, f"{topic}.back", 1, KEPT)
    write(shared, f"{topic}.back", records_of(7, mark=b"theirs"))
    own = configs_of(shared, f"{topic}.back")
    for unread in (False, True):
        with pytest.raises(TargetError, match=rf"{topic}.back has no topic id, and is not purged; delete it"):
            restored(site, shared, topic, existing=Existing.PURGE, purges_unread=unread)
    assert log_of(shared, f"{topic}.back") == (0, 7)
    assert configs_of(shared, f"{topic}.back") == own


def assert_whole(site: ArchiveSite) -> None:
    found = run_verify(load_config(site.folder / "archive.yaml"), Level.LISTING)
    assert found.is_whole, (found.problems, found.errors)


@pytest.mark.parametrize(
    "others", [150, pytest.param(100, marks=pytest.mark.long), pytest.param(30, marks=pytest.mark.long), 0]
)
def test_a_topic_created_again_is_another_life(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, others: int
) -> None:
    """Longer than the old one, as long, shorter, empty: all that it has is archived, and the old one stays as it was."""
    bootstrap = shared.bootstrap
    site.write_config(bootstrap, topic)
    create_topic(bootstrap, topic, 1, KEPT)
    produce(bootstrap, topic, 100, "old")
    old = consumed(java_oracle, bootstrap, topic)
    back_up(site)
    recreate_topic(bootstrap, topic, 1, KEPT)
    produce(bootstrap, topic, others, "other")
    back_up(site)
    back_up(site)  # by its own records it is known again
    assert read_partitions(site.bucket, topic) == old
    assert read_partitions(site.bucket, f"{topic}@1") == consumed(java_oracle, bootstrap, topic)
    produce(bootstrap, topic, 20, "more")
    back_up(site)
    assert read_partitions(site.bucket, topic) == old
    assert read_partitions(site.bucket, f"{topic}@1") == consumed(java_oracle, bootstrap, topic)
    assert known_lives(site, topic) == [("", None), ("", None)]
    assert_whole(site)


def test_a_topic_that_goes_on_is_the_same(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """One partition has no record, one ends with an aborted transaction, one has lost what was archived."""
    bootstrap = shared.bootstrap
    site.write_config(bootstrap, topic)
    create_topic(bootstrap, topic, 4, KEPT)
    for partition in (1, 3):
        produce(bootstrap, topic, 100, "first", partition)
    producer = producer_of(bootstrap, transactional_id=topic)
    producer.init_transactions()
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        for value in range(20):
            producer.produce(topic, f"{number} {value}", partition=2)
        ends()
    back_up(site)
    for partition in (1, 2, 3):
        produce(bootstrap, topic, 50, "second", partition)
    lose_below(bootstrap, topic, 120, 3)
    back_up(site)
    kept = consumed(java_oracle, bootstrap, topic)
    archived = read_partitions(site.bucket, topic)
    assert {number: archived[number] for number in (1, 2)} == {number: kept[number] for number in (1, 2)}
    assert archived[3][100:] == kept[3]
    assert read_segments(site.bucket, topic)[-1].holes == "100-119:expired"
    assert known_lives(site, topic) == [("", None)]
    assert_whole(site)


@pytest.mark.parametrize("unproven", ["go-on", "new-life"])
def test_what_nothing_decides_is_refused_by_name(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, unproven: str
) -> None:
    """The log begins behind all that is archived: it may have been created again. The other topic is archived."""
    bootstrap, other = shared.bootstrap, f"{topic}-other"
    site.write_config(bootstrap, f"{topic}.*")
    for name in (topic, other):
        create_topic(bootstrap, name, 1, KEPT)
        produce(bootstrap, name, 100, "first")
    back_up(site)
    for name in (topic, other):
        produce(bootstrap, name, 50, "second")
    lose_below(bootstrap, topic, 120)
    before = read_partitions(site.bucket, topic)
    said = back_up(site, exit_code=1)
    assert f"topic {topic} has no topic id that is known" in said
    assert f"{topic}-0 is archived up to offset 100" in said
    assert "topics.unproven" in said
    assert read_partitions(site.bucket, topic) == before
    assert read_partitions(site.bucket, other) == consumed(java_oracle, bootstrap, other)
    path = site.write_config(bootstrap, f"{topic}.*")
    path.write_text(path.read_text().replace("topics:\n", f"topics:\n  unproven: {unproven}\n"))
    back_up(site)
    directory = topic if unproven == "go-on" else f"{topic}@1"
    (kept,) = consumed(java_oracle, bootstrap, topic).values()
    assert read_partitions(site.bucket, directory)[0][-30:] == kept
    hole = "100-119:expired" if unproven == "go-on" else "0-119:expired"
    assert read_segments(site.bucket, directory)[-1].holes == hole
    assert_whole(site)


def test_a_log_that_begins_where_the_archive_ends_is_the_same(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """All has expired that was archived, and nothing is missing: such a topic, idle or not, is not refused."""
    bootstrap = shared.bootstrap
    site.write_config(bootstrap, topic)
    create_topic(bootstrap, topic, 1, KEPT)
    produce(bootstrap, topic, 100, "first")
    archived = consumed(java_oracle, bootstrap, topic)[0]
    back_up(site)
    lose_below(bootstrap, topic, 100)
    back_up(site)
    produce(bootstrap, topic, 20, "more")
    back_up(site)
    assert read_partitions(site.bucket, topic)[0] == archived + consumed(java_oracle, bootstrap, topic)[0]
    assert known_lives(site, topic) == [("", None)]
    assert_whole(site)


def test_a_compacted_topic_is_known_by_what_is_left_of_it(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """All of the newest archived object was written over; what an earlier one has is still there."""
    bootstrap = shared.bootstrap
    create_topic(bootstrap, topic, 1, EAGER_CLEANER | {"segment.bytes": "100000"})
    site.write_config(bootstrap, topic)
    for keys in ("stable", "hot"):
        produce_keyed(bootstrap, topic, keys, 800)
        back_up(site)
    archived = read_partitions(site.bucket, topic)[0]
    for keys, count in (("hot", 800), ("end", 1), ("end", 1)):
        time.sleep(1.1)  # the cleaner leaves the segment that is written to, for a second at least
        produce_keyed(bootstrap, topic, keys, count)

    def left() -> list[Rec]:
        return java_oracle.consume(bootstrap, topic).records[0]

    eventually(lambda: all(one.offset < 800 or one.offset >= 1600 for one in left()), timeout_s=60, every_s=1)
    back_up(site)
    assert read_partitions(site.bucket, topic)[0][: len(archived)] == archived
    assert read_partitions(site.bucket, topic)[0][-1] == left()[-1]
    assert known_lives(site, topic) == [("", None)]


def produce_keyed(bootstrap: str, topic: str, keys: str, count: int) -> None:
    producer = producer_of(bootstrap, batch_num_messages=20)
    for number in range(count):
        producer.produce(topic, b"some text" * 30, key=f"{keys} {number}".encode(), partition=0)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("is_other", [pytest.param(False, marks=pytest.mark.long), True])
def test_topic_ids_come_with_an_upgrade(
    upgraded: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, is_other: bool
) -> None:
    """That a topic has an id now does not tell that it is the one that had none."""
    speak(upgraded, WITHOUT_TOPIC_IDS)
    bootstrap = upgraded.bootstrap
    site.write_config(bootstrap, topic)
    create_topic(bootstrap, topic, 1, KEPT)
    produce(bootstrap, topic, 100, "old")
    old = consumed(java_oracle, bootstrap, topic)
    back_up(site)
    if is_other:
        recreate_topic(bootstrap, topic, 1, KEPT)
    speak(upgraded, WITH_TOPIC_IDS)
    produce(bootstrap, topic, 150, "new")
    back_up(site)
    now = consumed(java_oracle, bootstrap, topic)
    lives = known_lives(site, topic)
    if is_other:
        assert read_partitions(site.bucket, topic) == old
        assert read_partitions(site.bucket, f"{topic}@1") == now
        assert [(bool(topic_id), parent) for topic_id, parent in lives] == [(False, None), (True, None)]
    else:
        assert read_partitions(site.bucket, topic) == now
        assert [(bool(topic_id), parent) for topic_id, parent in lives] == [(True, None)]
    assert_whole(site)


def test_a_life_is_begun_once_over_a_kill(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    bootstrap = shared.bootstrap
    site.write_config(bootstrap, topic)
    create_topic(bootstrap, topic, 2, KEPT)
    for partition in range(2):
        produce(bootstrap, topic, 100, "old", partition)
    back_up(site)
    recreate_topic(bootstrap, topic, 2, KEPT)
    produce(bootstrap, topic, 150, "other")
    for failpoint in ("topic.recorded", "segment.put"):
        killed = site.command("backup", "--until-end", ARCHIVER_FAILPOINT=failpoint)
        killed.communicate(timeout=60)
        assert killed.returncode == -signal.SIGKILL
    back_up(site)
    assert read_partitions(site.bucket, f"{topic}@1") == consumed(java_oracle, bootstrap, topic)
    assert len(known_lives(site, topic)) == 2
    assert_whole(site)


# --- while a backup runs


@pytest.mark.parametrize(
    ("old", "others"),
    [
        ("archived", 30),
        ("held", 90),
        *(pytest.param(*case, marks=pytest.mark.long) for case in [*product(["archived", "held"], [30, 50, 90])][1:-1]),
    ],
)
def test_a_topic_created_again_under_a_running_backup(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, old: str, others: int
) -> None:
    """It sees it neither go nor come, and fetches go on in the new log: behind its end, at it, or in its midst.

    Where they go on at its end, the next record tells. What is held of the old one is dropped.
    """
    bootstrap = shared.bootstrap
    create_topic(bootstrap, topic, 1, KEPT)
    config = service_config(site, bootstrap, topic, group=topic, segment={"age": "4s" if old == "held" else "1s"})
    with running(site, config) as instance:
        eventually(lambda: instance.value("archiver_partitions", topic=topic) == 1)
        produce(bootstrap, topic, 50, "old")
        eventually(lambda: instance.value("archiver_fetched_bytes_total", topic=topic) > 0)
        kept = {} if old == "held" else until_archived(site, java_oracle, bootstrap, topic)
        with standing_still(instance.process.pid):
            time.sleep(1)  # a fetch that the broker still holds would tell that the topic goes
            recreate_topic(bootstrap, topic, 1, KEPT)
            produce(bootstrap, topic, others, "other")
        produce(bootstrap, topic, 1, "and one more")
        directory = topic if old == "held" else f"{topic}@1"
        until_archived(site, java_oracle, bootstrap, topic, directory)
        assert instance.total("archiver_branches_total") == 0
        assert instance.total("archiver_holes_total") == 0
        assert instance.stop() == 0
    if old == "archived":
        assert read_partitions(site.bucket, topic) == kept
    assert_whole_of(site, bootstrap, topic)


def test_a_topic_created_again_whose_log_begins_behind_the_old_one(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """Nothing tells that it is another one, and nothing that it is not: none of it is joined to the old one.

    Of one all was archived, of one nothing, and of one a part: what is held of the old ones is dropped.
    """
    bootstrap = shared.bootstrap
    archived, held, both = topics = [f"{topic}-{name}" for name in ("archived", "held", "both")]
    site.write_config(bootstrap, f"{topic}-.*")
    for name in topics:
        create_topic(bootstrap, name, 1, KEPT)
    produce(bootstrap, archived, 100, "old")
    produce(bootstrap, both, 50, "old")
    back_up(site)
    old = {name: read_partitions(site.bucket, name) for name in topics}
    config = service_config(site, bootstrap, f"{topic}-.*", group=topic, segment={"age": "1min"})
    with running(site, config) as instance:
        eventually(lambda: all(instance.value("archiver_partitions", topic=name) == 1 for name in topics))
        for name in (held, both):
            produce(bootstrap, name, 50, "old")
        fetched = "archiver_fetched_bytes_total"
        eventually(lambda: all(instance.value(fetched, topic=name) > 0 for name in (held, both)))
        with standing_still(instance.process.pid):
            time.sleep(1)  # as above
            for name in topics:
                recreate_topic(bootstrap, name, 1, KEPT)
                produce(bootstrap, name, 300, "other")
                lose_below(bootstrap, name, 150)
        dropped = [f"{held}-0: 50 records from offset 0 on", f"{both}-0: 50 records from offset 50 on"]
        eventually(lambda: all(one in instance.log for one in dropped))
        refused = [f"topic {name} has no topic id that is known" for name in (archived, both)]
        eventually(lambda: all(one in instance.log for one in refused))
        before = instance.value(fetched, topic=held)
        produce(bootstrap, held, 1, "and one more")
        eventually(lambda: instance.value(fetched, topic=held) > before)
        assert instance.stop() == 0
    for name in (archived, both):
        assert read_partitions(site.bucket, name) == old[name]
        assert known_lives(site, name) == [("", None)]
    assert read_partitions(site.bucket, held) == consumed(java_oracle, bootstrap, held)
    assert_whole_of(site, bootstrap, f"{topic}-.*")


def test_a_backup_that_is_behind_goes_on_when_records_expire(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """What it saw near the end of the log proves that this is the same: the hole is told, and nothing held is dropped."""
    bootstrap = shared.bootstrap
    site.write_config(bootstrap, topic, records=100)
    create_topic(bootstrap, topic, 1, KEPT)
    produce(bootstrap, topic, 50, "first")
    back_up(site)
    produce(bootstrap, topic, 400, "second")
    expected = read_partitions(site.bucket, topic)[0] + consumed(java_oracle, bootstrap, topic)[0][100:]
    back_up_around("position.read", site, lambda: lose_below(bootstrap, topic, 100))
    assert read_partitions(site.bucket, topic)[0] == expected
    produce(bootstrap, topic, 300, "third")
    expected += consumed(java_oracle, bootstrap, topic)[0][350:]
    back_up_around("segment.closed", site, lambda: lose_below(bootstrap, topic, 600))
    kept = read_partitions(site.bucket, topic)[0]
    assert [one for one in kept if not 550 <= one.offset < 600] == [
        one for one in expected if not 550 <= one.offset < 600
    ]
    assert [one.holes for one in read_segments(site.bucket, topic) if one.base == 50] == ["50-99:expired"]
    assert known_lives(site, topic) == [("", None)]
    assert_whole(site)


def back_up_around(place: str, site: ArchiveSite, meanwhile: Callable[[], None]) -> None:
    """Run the command up to what is committed at the start, and do something while it stands still at a place."""
    process = site.command("backup", "--until-end", ARCHIVER_FAILPOINT=f"{place}:1:stop")
    stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert stopped is not None
    assert stopped.si_status == signal.SIGSTOP
    meanwhile()
    process.send_signal(signal.SIGCONT)
    said = "".join(process.communicate(timeout=60))
    assert process.returncode == 0, said


def assert_whole_of(site: ArchiveSite, bootstrap: str, topic: str) -> None:
    site.write_config(bootstrap, topic)
    assert_whole(site)


def test_a_log_that_was_cut_back_is_the_same_topic(
    new_broker: StartBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, tmp_path: Path
) -> None:
    """It is longer than it was when it is looked at again, and agrees with the archive only below the cut.

    The epoch tells where that is, and a broker with ZooKeeper alone keeps its epoch: so it is one that has ids and is not asked.
    """
    broker = new_broker()
    overlay = make_overlay(tmp_path / "overlay", [NO_IDS])
    create_topic(broker.bootstrap, topic, 2, KEPT)
    for partition in range(2):
        produce(broker.bootstrap, topic, 100, "old", partition)
    config = service_config(site, broker.bootstrap, topic, group=topic)
    with running(site, config, PYTHONPATH=str(overlay)) as instance:
        old = until_archived(site, java_oracle, broker.bootstrap, topic)
        with standing_still(instance.process.pid):
            broker.stop()
            cut_log(broker, topic, 0, 60)
            broker.start()
            produce(broker.bootstrap, topic, 90, "new")
            produce(broker.bootstrap, topic, 20, "more", 1)
        now = consumed(java_oracle, broker.bootstrap, topic)
        eventually(lambda: read_partitions(site.bucket, f"{topic}@1") == {0: now[0][60:]}, timeout_s=60)
        eventually(lambda: read_partitions(site.bucket, topic) == {0: old[0], 1: now[1]})
        assert instance.stop() == 0
    assert known_lives(site, topic) == [("", None), ("", 0)]
    assert_whole_of(site, broker.bootstrap, topic)


def test_a_log_that_was_cut_back_and_keeps_its_epoch_is_archived_anew(
    shared: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """Nothing tells it from a topic that was created again, and nothing of it is lost."""
    bootstrap = shared.bootstrap
    site.write_config(bootstrap, topic)
    create_topic(bootstrap, topic, 2, KEPT)
    for partition in range(2):
        produce(bootstrap, topic, 100, "old", partition)
    old = consumed(java_oracle, bootstrap, topic)
    back_up(site)
    shared.stop()
    cut_log(shared, topic, 0, 60)
    shared.start()
    produce(bootstrap, topic, 90, "new")
    back_up(site)
    assert read_partitions(site.bucket, topic) == old
    assert read_partitions(site.bucket, f"{topic}@1") == consumed(java_oracle, bootstrap, topic)
    assert known_lives(site, topic) == [("", None), ("", None)]
    assert_whole(site)


def test_a_topic_id_that_is_missing_for_a_while_begins_no_life(
    upgraded: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """The brokers' protocol is set back and raised again under a running backup, and between those of another topic that run to the end."""
    speak(upgraded, WITH_TOPIC_IDS)
    bootstrap, other = upgraded.bootstrap, f"{topic}-other"
    for name in (topic, other):
        create_topic(bootstrap, name, 1, KEPT)
        produce(bootstrap, name, 50, "first")
    site.write_config(bootstrap, other)
    back_up(site)
    with running(site, service_config(site, bootstrap, topic, group=topic)) as instance:
        until_archived(site, java_oracle, bootstrap, topic)
        for properties in (WITHOUT_TOPIC_IDS, WITH_TOPIC_IDS):
            speak(upgraded, properties)
            for name in (topic, other):
                produce(bootstrap, name, 50, "more")
            back_up(site)
            until_archived(site, java_oracle, bootstrap, topic)
        assert instance.total("archiver_branches_total") == 0
        assert instance.stop() == 0
    for name in (topic, other):
        assert read_partitions(site.bucket, name) == consumed(java_oracle, bootstrap, name)
        assert len(known_lives(site, name)) == 1
    assert_whole_of(site, bootstrap, f"{topic}.*")
