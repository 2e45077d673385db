"""What a running backup says, and counts, while something that it needs is away: the broker, the store, a topic, room in the spool, its cluster."""

import shutil
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.brokers import KAFKA_41, Broker, StartBroker
from tests.support.chaos.broken import SOON_LASTING, Change, make_overlay
from tests.support.faulty_s3 import UNKNOWN_KEY, Fault, FaultyS3
from tests.support.foreign_reader import keys_in, read_partitions
from tests.support.instances import compacted_config, instance
from tests.support.kafka_topics import create_topic, delete_topic, produce_values, producer_of
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.service import Instance, eventually, running, service_config

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]

VALUES = [b"value"] * 20
SOON_UNREADY = Change("backup/reports/troubles.py", "UNREADY_S: Final = 30.0", "UNREADY_S: Final = 5.0")


def warnings_of(found: Instance, text: str) -> list[str]:
    return [line for line in found.log.splitlines() if text in line and (" WARNING " in line or " ERROR " in line)]


def produce_keys(broker: Broker, topic: str) -> None:
    producer = producer_of(broker.bootstrap)
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, key=b"%d" % number)
    assert producer.flush(30) == 0


def test_another_cluster_at_the_same_address_stops_it_before_any_put(
    new_broker: StartBroker, site: ArchiveSite, topic: str
) -> None:
    """Wiped volumes, and the same name of the host."""
    broker = new_broker(KAFKA_41)
    create_topic(broker.bootstrap, topic, 1, KEEP_ALL)
    produce_values(broker.bootstrap, topic, VALUES)
    with running(site, service_config(site, broker.bootstrap, topic, groups="auto")) as found:
        eventually(lambda: found.total("archiver_records_total", topic=topic) >= 20)
        broker.stop()
        shutil.rmtree(broker.data_dir / "log")
        broker.cluster_id = "AAAAAAAAAAAAAAAAAAAAAQ"
        broker.start()
        create_topic(broker.bootstrap, topic, 1, KEEP_ALL)
        produce_values(broker.bootstrap, topic, VALUES)
        assert found.process.wait(120) == 3
        assert "cluster AAAAAAAAAAAAAAAAAAAAAQ answers there, and until now it was cluster" in found.log
    assert not [key for key in keys_in(site.bucket) if "@1" in key or "/1/" in key]


def test_a_store_that_is_away_is_told_once_and_makes_it_unready(
    broker_41: Broker, site: ArchiveSite, topic: str, tmp_path: Path
) -> None:
    create_topic(broker_41.bootstrap, topic, 8, KEEP_ALL)
    overlay = str(make_overlay(tmp_path / "overlay", [SOON_LASTING, SOON_UNREADY]))
    with FaultyS3(site.bucket.s3.endpoint) as store:
        config = service_config(site, broker_41.bootstrap, topic, group=topic)
        config["storage"]["endpoint"] = store.endpoint
        with running(site, config, PYTHONPATH=overlay) as found:
            eventually(lambda: found.value("archiver_partitions", topic=topic) == 8)
            for fault in (Fault.SLOW_DOWN, Fault.DENIED):  # away, and wrong credentials
                before = len(warnings_of(found, ""))
                with store.failing(fault, "PUT"):
                    for number in range(8):
                        produce_values(broker_41.bootstrap, topic, VALUES, number)
                    eventually(lambda: "because the store fails" in found.readiness)
                    eventually(lambda: found.value("archiver_partitions_failing", topic=topic) == 8)
                    with urllib.request.urlopen(f"http://127.0.0.1:{found.port}/healthz", timeout=5) as answer:
                        assert answer.status == 200  # a restart would not help
                eventually(found.is_ready)
                eventually(lambda: found.value("archiver_partitions_failing", topic=topic) == 0)
                eventually(lambda: "the store works again" in warnings_of(found, "")[-1])
                told = [one for one in warnings_of(found, "")[before:] if "service.heartbeats" not in one]
                assert len(told) == 2, told
            assert found.stop() == 0
    assert [len(read_partitions(site.bucket, topic)[number]) for number in range(8)] == [40] * 8


def test_an_instance_tells_once_of_a_store_that_lets_nobody_in(
    broker_41: Broker, site: ArchiveSite, topic: str, tmp_path: Path
) -> None:
    create_topic(broker_41.bootstrap, topic, 4, KEEP_ALL | {"cleanup.policy": "compact"})
    produce_keys(broker_41, topic)
    overlay = str(make_overlay(tmp_path / "overlay", [SOON_LASTING, SOON_UNREADY]))
    with FaultyS3(site.bucket.s3.endpoint) as store:
        config = compacted_config(site, broker_41.bootstrap, topic, turn_s=3600, takeover="1h")
        config["storage"]["endpoint"] = store.endpoint
        with instance(site, config, "a", "--initial-role", "active", PYTHONPATH=overlay) as found:
            eventually(lambda: found.total("archiver_records_total", topic=topic) == 20)
            eventually(found.is_ready)
            before = len(warnings_of(found, ""))
            store.refused_keys[site.bucket.s3.access_key] = UNKNOWN_KEY
            produce_keys(broker_41, topic)
            eventually(lambda: "InvalidAccessKeyId" in found.readiness)
            time.sleep(4)  # eight looks at each partition, and as many moments
            store.refused_keys.clear()
            eventually(lambda: found.total("archiver_records_total", topic=topic) == 40)
            eventually(found.is_ready)
            eventually(lambda: "the store works again" in warnings_of(found, "")[-1])
            others = (
                "before stays",
                "service.heartbeats",
            )  # cleaning up, or a note, may fail once before it is not ready
            lines = [line for line in warnings_of(found, "")[before:] if not any(one in line for one in others)]
            assert len(lines) == 2


def test_the_age_grows_while_the_broker_is_away(
    new_broker: StartBroker, site: ArchiveSite, topic: str, soon_lasting: str
) -> None:
    broker = new_broker(KAFKA_41)
    create_topic(broker.bootstrap, topic, 2, KEEP_ALL)
    produce_values(broker.bootstrap, topic, VALUES)
    with running(site, service_config(site, broker.bootstrap, topic, group=topic), PYTHONPATH=soon_lasting) as found:
        eventually(lambda: found.value("archiver_records_total", topic=topic) == 20)
        eventually(lambda: found.value("archiver_rpo_seconds", topic=topic) == 0)
        broker.stop()
        eventually(lambda: found.readiness.startswith("cannot reach Kafka since 20"))
        seen = [0.0]

        def grows() -> bool:
            seen.append(found.value("archiver_rpo_seconds", topic=topic))
            assert seen[-1] >= seen[-2] - 0.5, seen
            return seen[-1] > 8

        eventually(grows)
        broker.start()
        eventually(lambda: "Kafka works again" in found.log)
        eventually(found.is_ready)
        eventually(lambda: found.value("archiver_rpo_seconds", topic=topic) == 0)
        assert len(warnings_of(found, topic)) <= 2


def test_a_deleted_topic_is_told_until_it_is_accepted(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    names = [f"{topic}-a", f"{topic}-b"]
    for name in names:
        create_topic(broker_41.bootstrap, name, 1, KEEP_ALL)
        produce_values(broker_41.bootstrap, name, VALUES)
    config = service_config(site, broker_41.bootstrap, f"{topic}-.*", group=topic)
    with running(site, config) as found:
        eventually(lambda: found.total("archiver_records_total") == 40)
        delete_topic(broker_41.bootstrap, names[0])
        eventually(lambda: found.value("archiver_topics_gone", topic=names[0]) == 1)
        assert found.total("archiver_topics_gone") == 1
        assert len(warnings_of(found, "archived, and deleted in Kafka")) == 1
        delete_topic(broker_41.bootstrap, names[1])
        eventually(lambda: found.total("archiver_topics_gone") == 2)
        create_topic(broker_41.bootstrap, names[1], 1, KEEP_ALL)
        eventually(lambda: found.total("archiver_topics_gone") == 1)
        eventually(lambda: len(warnings_of(found, f"topic {names[1]} was created again")) == 1)
    site.write_config(broker_41.bootstrap, f"{topic}-.*")
    done = site.run_within("topics")
    assert (done.returncode, f"{names[0]}: is archived, and Kafka no longer has it" in done.stderr) == (3, True)
    done = site.run_within("topics", "--accept-gone", names[0])
    assert (done.returncode, f"{names[0]}: is archived" in done.stderr, "(accepted)" in done.stdout) == (0, False, True)
    assert site.run_within("topics", "--accept-gone", names[1]).returncode == 2
    with running(site, config, "two") as found:
        eventually(found.is_ready)
        assert found.total("archiver_topics_gone") == 0
        assert not warnings_of(found, "deleted in Kafka")


def test_a_full_spool_is_told_once_and_nothing_is_fetched(
    broker_41: Broker, site: ArchiveSite, topic: str, tmp_path: Path
) -> None:
    """A disk that somebody else has filled, as the program meets it."""
    full = tmp_path / "full"
    overlay = make_overlay(
        tmp_path / "overlay",
        [
            Change(
                "archive/segments/spool.py",
                "    try:\n        yield\n    except FileNotFoundError as error:\n",
                f"    try:\n        if Path({str(full)!r}).exists():\n"
                "            raise OSError(errno.ENOSPC, 'No space left on device')\n"
                "        yield\n    except FileNotFoundError as error:\n",
            ),
            Change(
                "archive/segments/spool.py",
                "        return disk.free >= ",
                f"        return not Path({str(full)!r}).exists() and disk.free >= ",
            ),
            SOON_UNREADY,
        ],
    )
    create_topic(broker_41.bootstrap, topic, 8, KEEP_ALL)
    config = service_config(site, broker_41.bootstrap, topic, group=topic)
    with running(site, config, PYTHONPATH=str(overlay)) as found:
        eventually(lambda: found.value("archiver_partitions", topic=topic) == 8)
        full.touch()
        for number in range(8):
            produce_values(broker_41.bootstrap, topic, VALUES, number)
        eventually(lambda: "because the spool fails" in found.readiness)
        assert found.value("archiver_partitions_failing", topic=topic) >= 1
        assert found.value("archiver_failures_total", topic=topic, cause="spool_full") >= 1
        fetched = found.value("archiver_fetched_bytes_total", topic=topic)
        eventually(lambda: found.value("archiver_rpo_seconds", topic=topic) > 5)
        assert found.value("archiver_fetched_bytes_total", topic=topic) == fetched
        full.unlink()
        eventually(lambda: found.value("archiver_records_total", topic=topic) == 160)
        eventually(lambda: found.value("archiver_partitions_failing", topic=topic) == 0)
        eventually(found.is_ready)
        assert [len(warnings_of(found, text)) for text in ("No space left", "the spool works again")] == [1, 1]
