"""The continuous backup as a process, on one real broker: what comes, what goes, what stands still, and how it stops."""

import http.client
import json
import random
import shutil
import signal
import socket
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Broker, StartBroker
from tests.support.chaos.broken import Change, make_overlay
from tests.support.cluster import broker_cluster, corrupt_log
from tests.support.faulty_s3 import Fault, FaultyS3
from tests.support.foreign_reader import keys_as_they_came, keys_in, read_partitions, read_segments
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import add_partitions, create_topic, delete_topic, produce_values, producer_of
from tests.support.processes import standing_still
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.service import Instance, eventually, running, service_config, until_archived

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

STOP_S = 15.0  # promised: a signal ends the process within


def config_of(site: ArchiveSite, broker: Broker, topic: str, **backup: object) -> dict[str, Any]:
    """Of all topics whose names begin with this one's; a group of its own."""
    return service_config(site, broker.bootstrap, f"{topic}.*", **{"group": topic, **backup})


def values(count: int, text: bytes = b"value") -> list[bytes]:
    return [b"%s %d" % (text, number) for number in range(count)]


def status(instance: Instance, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", instance.port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


# --- topics and partitions


def test_what_comes_is_archived_and_what_goes_is_kept(
    broker: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    first, late, gone = f"{topic}-first", f"{topic}-late", f"{topic}-gone"
    create_topic(broker.bootstrap, first, 2, KEEP_ALL | {"retention.ms": "86400000"})
    create_topic(broker.bootstrap, gone, 2, KEEP_ALL)
    for name in (first, gone):
        produce_values(broker.bootstrap, name, values(300), 1)
    with running(site, config_of(site, broker, topic)) as instance:
        eventually(instance.is_ready)
        joined = f"archiving 4 partitions of 2 topics into {site.bucket.url}, as a member of group {topic}; the next line comes in"
        eventually(lambda: f"INFO archiver.progress: {joined} " in instance.log)
        kept = until_archived(site, java_oracle, broker.bootstrap, gone)
        create_topic(broker.bootstrap, late, 1, KEEP_ALL)
        produce_values(broker.bootstrap, late, values(200))
        add_partitions(broker.bootstrap, first, 3)
        produce_values(broker.bootstrap, first, values(100), 2)
        delete_topic(broker.bootstrap, gone)
        for name in (late, first):
            until_archived(site, java_oracle, broker.bootstrap, name)

        eventually(lambda: instance.value("archiver_partitions", topic=gone) != 2)
        eventually(lambda: f"topic {gone} is gone" in instance.log)
        produce_values(broker.bootstrap, first, values(100))
        until_archived(site, java_oracle, broker.bootstrap, first)
        assert instance.total("archiver_failures_total") == 0
        assert instance.total("archiver_partitions_failing") == 0
        assert "ERROR" not in instance.log
        eventually(lambda: instance.value("archiver_partitions", topic=first) == 3)
        eventually(lambda: instance.value("archiver_lag_offsets", topic=first) == 0)
        assert instance.value("archiver_records_total", topic=first) == 500
        assert instance.stop() == 0
    assert read_partitions(site.bucket, gone) == kept


# --- where a topic begins


@pytest.mark.installed
@pytest.mark.parametrize(
    ("start", "failpoint"),
    [
        ("latest", "segment.closed"),
        ("time", "start.noted:2"),  # of what is there, then of a partition
        pytest.param("latest", "start.noted", marks=pytest.mark.long),
        pytest.param("time", "segment.closed", marks=pytest.mark.long),
    ],
)
def test_a_start_is_kept_over_a_kill_before_the_first_put(
    broker_41: Broker, site: ArchiveSite, topic: str, start: str, failpoint: str
) -> None:
    """Records that came after the first look are archived, though nothing of the topic was when it was killed."""
    old, late = f"{topic}-old", f"{topic}-late"
    # With two partitions the second note may be the other one's, and this one's start is looked up again, by time.
    create_topic(broker_41.bootstrap, old, 1 if failpoint == "start.noted:2" else 2, KEEP_ALL)
    produce_values(broker_41.bootstrap, old, values(50, b"before"))
    time.sleep(0.05)
    at = datetime.now(UTC).isoformat()
    config = config_of(site, broker_41, topic, start="latest" if start == "latest" else at)
    with running(site, config, ARCHIVER_FAILPOINT=failpoint) as instance:
        if failpoint == "segment.closed":  # a segment needs records
            eventually(lambda: instance.value("archiver_partitions", topic=old) == 2)
            produce_with_a_slow_clock(broker_41, old, values(30, b"after"))
        assert instance.process.wait(100) == -signal.SIGKILL
    if failpoint != "segment.closed":
        produce_with_a_slow_clock(broker_41, old, values(30, b"after"))
    produce_values(broker_41.bootstrap, old, values(20, b"later"))
    create_topic(broker_41.bootstrap, late, 1, KEEP_ALL)  # while none runs: the first instance decides what is old
    produce_values(broker_41.bootstrap, late, values(40))
    with running(site, config, "two") as instance:
        eventually(lambda: instance.value("archiver_records_total", topic=old) == 50)
        assert instance.value("archiver_holes_total", topic=old, cause="before-start") == 1
        assert instance.value("archiver_hole_offsets_total", topic=old, cause="before-start") == 50
        add_partitions(broker_41.bootstrap, old, 3)
        produce_values(broker_41.bootstrap, old, values(10), 2)
        eventually(lambda: instance.value("archiver_records_total", topic=late) == 40)
        eventually(lambda: instance.value("archiver_records_total", topic=old) == 60)
        assert instance.stop() == 0
    found = read_partitions(site.bucket, old)
    assert [record.value for record in found[0]] == values(30, b"after") + values(20, b"later")
    assert [record.offset for record in found[0]] == list(range(50, 100))
    assert [record.offset for record in found[2]] == list(range(10))
    first = read_segments(site.bucket, old)[0]
    assert (first.base, first.holes) == (0, "0-49:before-start")
    assert len(read_partitions(site.bucket, late)[0]) == 40


def produce_with_a_slow_clock(broker: Broker, topic: str, records: list[bytes]) -> None:
    """Timestamps long past: whoever asks by time where a topic begins is told another offset behind these."""
    producer = producer_of(broker.bootstrap)
    for value in records:
        producer.produce(topic, value, partition=0, timestamp=1000)
    assert producer.flush(30) == 0


@pytest.mark.installed
def test_a_partition_without_a_leader_begins_late_and_alone(
    tmp_path: Path, site: ArchiveSite, topic: str, soon_lasting: str
) -> None:
    """The others do not wait for it. What it gets after the first look is archived, however late it is opened."""
    with broker_cluster(tmp_path, 2) as cluster:
        bootstrap, absent = cluster.bootstrap, cluster.nodes[2]
        cluster.create_topic(topic, [[1], [1], [2]])
        for partition in range(3):
            produce_values(bootstrap, topic, values(20), partition)
        absent.stop()
        config = service_config(site, bootstrap, topic, group=topic, start="latest", **{"session-timeout": "45s"})
        with running(site, config, PYTHONPATH=soon_lasting) as instance:

            def skipped() -> float:
                return instance.value("archiver_hole_offsets_total", topic=topic, cause="before-start")

            eventually(lambda: skipped() == 2 * 20)
            for partition in range(2):
                produce_values(bootstrap, topic, values(10), partition)
            eventually(lambda: instance.value("archiver_records_total", topic=topic) == 2 * 10)
            eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == 1)
            with standing_still(instance.process.pid):  # else it may look before there are more
                absent.start()
                produce_values(bootstrap, topic, values(15), 2)
            eventually(lambda: skipped() == 3 * 20)
            eventually(lambda: instance.value("archiver_records_total", topic=topic) == 2 * 10 + 15)
            assert instance.stop() == 0
    assert offsets_in(site, topic) == {0: [*range(20, 30)], 1: [*range(20, 30)], 2: [*range(20, 35)]}


def offsets_in(site: ArchiveSite, topic: str) -> dict[int, list[int]]:
    return {nr: [record.offset for record in records] for nr, records in read_partitions(site.bucket, topic).items()}


# --- one partition and the others


def test_a_topic_that_cannot_be_opened_holds_up_no_other(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    """More requests hang than there are threads."""
    stuck, healthy = f"{topic}-stuck", f"{topic}-healthy"
    for name, partitions in ((stuck, 8), (healthy, 1)):
        create_topic(broker_41.bootstrap, name, partitions, KEEP_ALL)
        for partition in range(partitions):
            produce_values(broker_41.bootstrap, name, values(10), partition)
    with FaultyS3(site.bucket.s3.endpoint) as store:
        config = config_of(site, broker_41, topic)
        config["storage"]["endpoint"] = store.endpoint
        with running(site, config) as instance:
            with store.failing(Fault.HANG, "GET", naming=f"control/topics/{stuck}"):
                eventually(lambda: instance.value("archiver_records_total", topic=healthy) == 10, timeout_s=25)
                eventually(lambda: instance.value("archiver_partitions_failing", topic=stuck) == 8)
                produce_values(broker_41.bootstrap, healthy, values(10))
                eventually(lambda: instance.value("archiver_records_total", topic=healthy) == 20, timeout_s=20)
                assert instance.value("archiver_rpo_seconds", topic=stuck) > 10
            eventually(lambda: instance.value("archiver_records_total", topic=stuck) == 80)
            eventually(lambda: instance.value("archiver_partitions_failing", topic=stuck) == 0)
            assert instance.stop() == 0


def test_first_puts_that_hang_leave_memory_to_other_topics(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    """They hold what may be fetched at once, and none has failed yet. That threads are left: test_put_turns.py."""
    partitions, megabytes = 8, 12
    stuck, healthy = f"{topic}-stuck", f"{topic}-healthy"
    create_topic(broker_41.bootstrap, stuck, partitions, KEEP_ALL)
    create_topic(broker_41.bootstrap, healthy, 1, KEEP_ALL)
    with FaultyS3(site.bucket.s3.endpoint) as store:
        config = config_of(site, broker_41, topic, segment={"bytes": "1MiB", "age": "1s"})
        config["storage"]["endpoint"] = store.endpoint
        with running(site, config) as instance:
            eventually(lambda: instance.total("archiver_partitions") == partitions + 1)
            with store.failing(Fault.HANG, "PUT", naming=f"topics/{stuck}"):
                for partition in range(partitions):
                    stuck_values = values(10) + [random.randbytes(1_000_000) for _ in range(megabytes)]
                    produce_values(broker_41.bootstrap, stuck, stuck_values, partition)
                eventually(lambda: store.requests.get("PUT", 0) > 0)
                for turn in range(1, 4):
                    produce_values(broker_41.bootstrap, healthy, values(10))
                    until_durable(instance, healthy, 10 * turn, timeout_s=8)
                assert instance.total("archiver_failures_total") == 0
            expected = partitions * (10 + megabytes)
            until_durable(instance, stuck, expected, timeout_s=60)
            assert instance.stop() == 0


def until_durable(instance: Instance, topic: str, records: int, timeout_s: float) -> None:
    eventually(lambda: instance.value("archiver_records_total", topic=topic) == records, timeout_s=timeout_s)


def test_a_corrupt_batch_stops_its_partition_alone_and_heals(
    new_broker: StartBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, soon_lasting: str
) -> None:
    broker = new_broker()
    create_topic(broker.bootstrap, topic, 2, KEEP_ALL)
    for _ in range(3):
        produce_values(broker.bootstrap, topic, values(10))
    log = corrupt_log(broker, topic, 0, at_offset=10)
    with running(site, config_of(site, broker, topic), PYTHONPATH=soon_lasting) as instance:
        eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == 1)
        produce_values(broker.bootstrap, topic, values(100), 1)
        eventually(lambda: len(read_partitions(site.bucket, topic).get(1, [])) == 100)
        assert [record.offset for record in read_partitions(site.bucket, topic)[0]] == list(range(10))
        assert instance.value("archiver_partitions", topic=topic) == 2
        eventually(lambda: instance.total("archiver_failures_total", topic=topic) >= 2)
        eventually(lambda: instance.value("archiver_rpo_seconds", topic=topic) > 4)
        log.restore()
        eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == 0)
        until_archived(site, java_oracle, broker.bootstrap, topic)
        eventually(lambda: instance.value("archiver_rpo_seconds", topic=topic) == 0)
        assert instance.stop() == 0


def test_a_large_batch_is_not_starved(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    """One batch of 9 MB, last of seven partitions. Each answer is full before its turn comes, and so is the memory."""
    create_topic(broker_41.bootstrap, topic, 7, KEEP_ALL)
    noise = random.randbytes(900_000)
    for partition in range(6):
        produce_values(broker_41.bootstrap, topic, [noise] * 14, partition)
    produce_values(broker_41.bootstrap, topic, [random.randbytes(9_000_000)], 6)
    config = config_of(site, broker_41, topic, segment={"records": 1}, memory="16MiB", rate="16MiB")
    with running(site, config) as instance:
        eventually(lambda: len(keys_in(site.bucket, f"topics/{topic}/")) == 6 * 14 + 1)
        assert instance.stop() == 0
    places = [key.split("/")[2] for key in keys_as_they_came(site.bucket, f"topics/{topic}/")]
    # A put of 9 MB takes its time: behind some of them it may be, behind all of them it was starved.
    assert places.index("partition=6") < 6 * 14, "the others came first"


def test_a_hanging_transaction_is_named(
    broker_41: Broker, site: ArchiveSite, topic: str, tmp_path: Path, java_oracle: JavaOracle
) -> None:
    create_topic(broker_41.bootstrap, topic, 2, KEEP_ALL)
    quick = (
        Change("backup/partition/open_transactions.py", "HELD_BACK_S: Final = 60.0", "HELD_BACK_S: Final = 2.0"),
        Change("backup/partition/open_transactions.py", "_EVERY_S = 10.0", "_EVERY_S = 0.5"),
    )
    overlay = make_overlay(tmp_path / "overlay", quick)
    producer = producer_of(broker_41.bootstrap, transactional_id=topic, transaction_timeout_ms=600_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(30)
    produce_values(broker_41.bootstrap, topic, values(20), 1)
    produce_values(broker_41.bootstrap, topic, values(20), 0)
    begun_s = time.time()
    with running(site, config_of(site, broker_41, topic), PYTHONPATH=str(overlay)) as instance:

        def ages() -> dict[tuple[str, str], float]:
            return {
                (dict(labels)["partition"], dict(labels)["producer_id"]): value
                for labels, value in instance.metric("archiver_open_transaction_age_seconds").items()
                if dict(labels)["topic"] == topic
            }

        eventually(lambda: len(ages()) == 1)
        (((partition, producer_id), age_s),) = ages().items()
        assert partition == "1"
        assert 2.0 < age_s < time.time() - begun_s  # since it was first seen to hold back
        assert f"producer id {producer_id} ({topic}), begun at offset 0" in instance.log
        assert instance.log.count("a transaction holds the end back at offset 0") == 1
        assert 1 not in read_partitions(site.bucket, topic)
        producer.commit_transaction(30)
        eventually(lambda: ages() == {})
        until_archived(site, java_oracle, broker_41.bootstrap, topic)


@pytest.mark.installed
def test_what_is_held_of_a_lost_partition_takes_its_part_of_the_spool(
    broker_41: Broker, site: ArchiveSite, topic: str
) -> None:
    """It is still being put while the same partition has come back, and is fetched again."""
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    produce_values(broker_41.bootstrap, topic, [random.randbytes(1_000_000) for _ in range(60)])
    spool = site.folder / "spool"

    def used() -> int:
        return sum(file.stat().st_size for file in spool.glob("*/*.blocks"))

    with FaultyS3(site.bucket.s3.endpoint) as store:
        limit = {"dir": str(spool), "bytes": "16MiB"}
        config = config_of(site, broker_41, topic, spool=limit, rate="8MiB", segment={"age": "1h"})
        config["storage"]["endpoint"] = store.endpoint
        segments = f"{site.bucket.name}/topics/"
        with running(site, config) as instance, store.failing(Fault.HANG, "PUT", naming=segments):
            eventually(lambda: used() > 14_000_000)
            with standing_still(instance.process.pid):
                eventually(lambda: not members_of(broker_41, topic))
            eventually(lambda: instance.total("archiver_rebalances_total") >= 3)  # gained, lost, gained
            begin_s = time.monotonic()
            while time.monotonic() - begin_s < 6.0:  # by its rate it would be there within two
                assert used() < 24_000_000
                time.sleep(0.1)


def members_of(broker: Broker, group: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(20)
    return [member.member_id for member in found.members]


# --- coming, giving back, and ending


def said(instance: Instance, text: str) -> datetime | None:
    """When it said so on its log."""
    line = next((line for line in instance.log.splitlines() if text in line), None)
    return None if line is None else datetime.fromisoformat(line.split()[0])


@pytest.mark.installed
def test_a_start_after_a_kill_says_what_it_waits_for(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    """The dead instance is in the group until its session times out."""
    create_topic(broker_41.bootstrap, topic, 2, KEEP_ALL)
    config = config_of(site, broker_41, topic, **{"session-timeout": "25s"})
    with running(site, config) as one:
        eventually(lambda: one.value("archiver_partitions", topic=topic) == 2)
        assert said(one, "no partition for this instance yet") is None
        one.kill()
    with running(site, config, "two") as two:
        waiting = f"group {topic} has no partition for this instance yet: other instances have all, or one that ended"
        begun = "archiving 2 partitions of 1 topic into"
        eventually(lambda: said(two, begun) is not None, timeout_s=90)
        told, got = said(two, waiting), said(two, begun)
        assert told is not None
        assert got is not None
        assert told < got
        assert two.log.count(waiting) == two.log.count("for up to 25 s (backup.session-timeout)") == 1


@pytest.mark.installed
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        ("hangs", "the store has not answered"),
        ("spool", "was deleted under us"),
    ],
)
def test_what_is_held_at_a_stop_and_not_put_is_told(
    broker_41: Broker, site: ArchiveSite, topic: str, harm: str, why: str
) -> None:
    """Nothing was wrong before: only the stop closes the segment."""
    create_topic(broker_41.bootstrap, topic, 2, KEEP_ALL)
    with FaultyS3(site.bucket.s3.endpoint) as store:
        config = config_of(site, broker_41, topic, segment={"age": "1h"})
        config["storage"]["endpoint"] = store.endpoint
        with running(site, config, arguments=["--format", "json"]) as instance:
            eventually(lambda: instance.value("archiver_partitions", topic=topic) == 2)
            produce_values(broker_41.bootstrap, topic, values(50), 1, linger_ms=200)
            eventually(lambda: any(site.folder.glob("spool/*/1-0-*.blocks")))
            with ExitStack() as stack:
                if harm == "spool":
                    shutil.rmtree(site.folder / "spool")
                else:
                    stack.enter_context(store.failing(Fault.HANG, "PUT", naming="topics/"))
                assert instance.stop(STOP_S) == 4
    assert keys_in(site.bucket, "topics/") == []
    told = f"{topic}-1: 50 records from offset 0 on, held at the end, are not known to be in the archive"
    (line,) = [line for line in instance.log.splitlines() if line.startswith(f"archiver: {told}")]
    assert why in line
    result = json.loads(instance.log[instance.log.index("\n{\n") : instance.log.index("\n}\n") + 2])
    assert (result["records"], result["dropped_records"]) == (0, 50)
    assert [problem.startswith(told) for problem in result["problems"]] == [True]


@pytest.mark.installed
def test_a_stopped_bounded_backup_tells_in_time_what_is_dropped(
    broker_41: Broker, site: ArchiveSite, topic: str
) -> None:
    """By its rate it is not half through yet, and holds what it has; the store hangs."""
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    produce_values(broker_41.bootstrap, topic, [random.randbytes(250_000) for _ in range(64)])
    with FaultyS3(site.bucket.s3.endpoint) as store:
        config = site.config(broker_41.bootstrap, [topic])
        config["storage"]["endpoint"] = store.endpoint
        config["backup"]["rate"] = "2MiB"
        (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
        process = site.command("backup", "--until-end", "--format", "json")
        eventually(lambda: any(file.stat().st_size for file in site.folder.glob("spool/*/0-0-*.blocks")))
        with store.failing(Fault.HANG, "PUT", naming="topics/"):
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=STOP_S)
    assert process.returncode == 4
    (row,) = json.loads(out)["partitions"]
    assert 0 < row["dropped_records"] < 64
    assert (row["records"], row["position"]) == (0, 0)
    assert f"{topic}-0: {row['dropped_records']} records from offset 0 on, held at the end, are not known" in err
    assert "interrupted" in err
    assert keys_in(site.bucket, "topics/") == []


# --- the endpoint of a run that ends


def test_a_run_up_to_the_end_of_now_has_the_endpoint_while_it_lasts(
    broker_41: Broker, site: ArchiveSite, topic: str
) -> None:
    create_topic(broker_41.bootstrap, topic, partitions=2)
    produce_values(broker_41.bootstrap, topic, [random.randbytes(100_000) for _ in range(20)])
    produce_values(broker_41.bootstrap, topic, values(5), 1)
    config = service_config(site, broker_41.bootstrap, topic, rate="300kB")
    config["backup"]["segment"] = {"records": 5}
    with running(site, config, arguments=("--until-end",)) as instance:
        eventually(lambda: instance.total("archiver_records_total", topic=topic) >= 10)
        assert instance.value("archiver_partitions", topic=topic) == 1  # the other one is at its end
        assert instance.value("archiver_lag_offsets", topic=topic) > 0
        assert [status(instance, page)[0] for page in ("/healthz", "/readyz")] == [200, 200]
        assert instance.process.wait(30) == 0
    assert instance.metrics_text() == ""
    assert "25 records archived" in instance.log


def test_a_run_goes_on_when_its_address_is_taken_and_not_when_it_is_no_address_of_here(
    broker_41: Broker, site: ArchiveSite, topic: str
) -> None:
    create_topic(broker_41.bootstrap, topic)
    produce_values(broker_41.bootstrap, topic, values(10))
    path = site.write_config(broker_41.bootstrap, topic)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        path.write_text(f"{path.read_text()}metrics: {{listen: '{address}'}}\n")
        done = site.run("backup", "--until-end")
    assert (done.returncode, "10 records archived" in done.stdout) == (0, True)
    assert f"metrics.listen: cannot listen on {address}: " in done.stderr
    assert "this run goes on without an endpoint" in done.stderr
    path = site.write_config(broker_41.bootstrap, topic)
    path.write_text(f"{path.read_text()}metrics: {{listen: '203.0.113.7:9404'}}\n")
    done = site.run("backup", "--until-end")
    assert (done.returncode, done.stderr.count("cannot listen on 203.0.113.7:9404")) == (2, 1)
