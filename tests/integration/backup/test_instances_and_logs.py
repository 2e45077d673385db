"""What becomes of copies when something happens to the log under both instances: deleted, made again, cut back, or without time for tombstones."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.topics.admin import KafkaAdmin
from tests.support.brokers import KAFKA_41, REPOSITORY, Broker, StartBroker
from tests.support.cluster import cut_log
from tests.support.compacted_copies import generations_of, latest, newest_entry, records_given
from tests.support.examples import EAGER_CLEANER
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.instances import Fleet, compacted_config, holder, instance, latest_on, latest_restored, write
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, delete_topic, producer_of, settings_of
from tests.support.rights_stage import acting
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]

SINGLE_SEGMENT = {"cleanup.policy": "compact"}  # nothing is compacted: brokers leave the newest segment alone
QUICK = {"session-timeout": "3s"}
PATIENT = {"takeover": "1min"}  # nobody is replaced because a process takes its time to start


@pytest.fixture(scope="module")
def cut_broker(new_module_broker: StartBroker) -> KafkaBroker:
    """For tests that make or cut their own topic, and restart it."""
    return new_module_broker(KAFKA_41, **{"auto.create.topics.enable": "true"})


@pytest.fixture
def turns(pytestconfig: pytest.Config) -> int:
    """How often a copy must change hands until it counts as lasting."""
    return 4 if pytestconfig.getoption("--long") else 2


def fleet_of(site: ArchiveSite, bootstrap: str, topic: str, **compacted: Any) -> Fleet:  # noqa: ANN401 - as in `compacted_config`
    config = compacted_config(site, bootstrap, topic, **compacted)
    config["backup"] |= QUICK
    return Fleet(site, config)


def write_batches(bootstrap: str, topic: str, count: int, text: str, keys: int = 40) -> None:
    """Ten records in each."""
    for number in range(count):
        write(bootstrap, topic, {f"k{(number * 10 + at) % keys}": f"{text} {number}" for at in range(10)})


def auto_create(bootstrap: str, topic: str, policy: str) -> None:
    """As a producer does that asks for a topic that somebody has deleted."""
    entry = ConfigEntry("log.cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    of_broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (altered,) = admin.incremental_alter_configs([of_broker]).values()
    altered.result(30)
    producer = producer_of(bootstrap, allow_auto_create_topics=True)
    eventually(lambda: len(producer.list_topics(topic, timeout=10).topics[topic].partitions) > 0)


def topic_id_of(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(20).topic_id)


def entries_of(site: ArchiveSite, topic: str, life: int = 0) -> int:
    return len(keys_in(site.bucket, f"control/roles/{topic}/{life}/0/"))


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_topic_that_is_deleted_and_auto_created_empty_leaves_its_last_copy(
    cut_broker: KafkaBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, policy: str, turns: int
) -> None:
    """In the middle of a turn, and the next copy may still be finished: the last one stays, however often the new life turns."""
    bootstrap = cut_broker.bootstrap
    create_topic(bootstrap, topic, 1, EAGER_CLEANER)
    write_batches(bootstrap, topic, 30, "of old")
    write(bootstrap, topic, {"k0": None})
    before = latest_on(java_oracle, bootstrap, topic, 1)
    with fleet_of(site, bootstrap, topic, turn_s=2.0, **PATIENT) as fleet:
        fleet.start("a")
        eventually(lambda: holder(site, topic) != "" and latest(records_given(site.bucket, topic)) == before[0])
        fleet.start("b", "segment.put:1:stop")
        fleet.until_standing("b")
        old_id = topic_id_of(bootstrap, topic)
        delete_topic(bootstrap, topic)
        auto_create(bootstrap, topic, policy)
        assert topic_id_of(bootstrap, topic) != old_id
        fleet.wake("b")
        if policy == "compact":
            eventually(lambda: entries_of(site, topic, 1) >= 2 * turns)
            assert len(generations_of(site.bucket, topic, life=1)) == 0
        else:
            time.sleep(4.5)  # twice a turn, and the delay
            assert entries_of(site, topic, 1) == 0
        assert latest_restored(site, java_oracle, bootstrap, topic, f"{topic}.old", life=0) == before
        if policy == "delete":
            assert latest_restored(site, java_oracle, bootstrap, topic, f"{topic}.now") == before
        else:
            write_batches(bootstrap, topic, 3, "of new")
            after = latest_on(java_oracle, bootstrap, topic, 1)
            eventually(lambda: latest(records_given(site.bucket, topic, life=1)) == after[0])
            assert latest_restored(site, java_oracle, bootstrap, topic, f"{topic}.now") == after
        assert latest(records_given(site.bucket, topic)) == before[0]


@pytest.mark.parametrize(("regrown", "lives"), [(1, True), pytest.param(4, True, marks=pytest.mark.long), (4, False)])
def test_a_log_that_is_cut_back_gets_copies_of_its_own(
    cut_broker: KafkaBroker,
    site: ArchiveSite,
    topic: str,
    java_oracle: JavaOracle,
    regrown: int,
    lives: bool,
    turns: int,
) -> None:
    """Both instances run meanwhile, or the active one is dead. The log ends below where its copy ends, or above."""
    bootstrap = cut_broker.bootstrap
    create_topic(bootstrap, topic, 1, SINGLE_SEGMENT)
    write_batches(bootstrap, topic, 6, "of old", keys=60)
    before = latest_on(java_oracle, bootstrap, topic, 1)
    with fleet_of(site, bootstrap, topic, turn_s=2.0) as fleet:
        for name in "ab":
            fleet.start(name)
        eventually(lambda: holder(site, topic).startswith("b:"))
        eventually(lambda: latest(records_given(site.bucket, topic)) == before[0])
        if not lives:
            fleet.kill("b")
        cut_broker.stop()
        cut_log(cut_broker, topic, 0, 40)
        cut_broker.start()
        write_batches(bootstrap, topic, regrown, "of new", keys=60)
        after = latest_on(java_oracle, bootstrap, topic, 1)
        assert after != before
        eventually(lambda: holder(site, topic, life=1) != "", "the child life has no copy")
        eventually(lambda: latest(records_given(site.bucket, topic, life=1)) == after[0])
        assert any("the log was cut back" in one.log for one in fleet.running.values())
        held, stood = holder(site, topic), entries_of(site, topic)
        if not lives:
            fleet.start("b")
        eventually(lambda: entries_of(site, topic, 1) >= 2 * turns)
        assert latest_restored(site, java_oracle, bootstrap, topic, f"{topic}.now") == after
        assert latest_restored(site, java_oracle, bootstrap, topic, f"{topic}.old", life=0) == before
        assert (holder(site, topic), entries_of(site, topic)) == (held, stood)


# --- no time for tombstones


def is_sure(site: ArchiveSite, topic: str) -> bool:
    entry = newest_entry(site.bucket, topic)
    assert entry is not None
    return bool(entry.told["holder"]["is_sure"])


def alarms_of(site: ArchiveSite) -> set[str]:
    done = site.run("compacted", "status", "-c", "a.yaml", "--format", "json")
    assert done.returncode == 3, done.stderr
    return {alarm["kind"] for alarm in json.loads(done.stdout)["alarms"]}


def test_a_holder_that_may_miss_tombstones_from_now_on_says_so_once(
    broker_41: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 1, EAGER_CLEANER)
    write_batches(bootstrap, topic, 5, "some")
    with fleet_of(site, bootstrap, topic, turn_s=3600.0) as fleet:
        fleet.start("a")
        eventually(lambda: holder(site, topic).startswith("a:"))
        held = holder(site, topic)
        assert is_sure(site, topic)
        alter(bootstrap, topic, {"delete.retention.ms": "0"})
        write_batches(bootstrap, topic, 1, "more")
        eventually(lambda: not is_sure(site, topic))
        entry = newest_entry(site.bucket, topic)
        assert entry is not None
        assert entry.holder == held
        expected = latest_on(java_oracle, bootstrap, topic, 1)
        eventually(lambda: latest(records_given(site.bucket, topic)) == expected[0])
        eventually(lambda: holder(site, topic) not in {"", held}, "the turn is due, and overdue")  # it is alone
        time.sleep(3)  # six looks
    types = [json.loads(body)["type"] for body in role_bodies(site, topic)]
    assert types == ["begin", "switch", "unsure", "begin", "switch"]


def role_bodies(site: ArchiveSite, topic: str) -> list[bytes]:
    client = s3_client(site.bucket)
    keys = sorted(keys_in(site.bucket, f"control/roles/{topic}/0/0/"))
    return [client.get_object(Bucket=site.bucket.name, Key=key)["Body"].read() for key in keys]


# --- records that expire before they are read


def statements_of(role: str, site: ArchiveSite) -> list[Mapping[str, Any]]:
    """Of the shipped policy of a role, for an archive without a prefix."""
    text = (REPOSITORY / "infra" / "policies" / f"{role}.json").read_text(encoding="utf-8")
    text = text.replace("BUCKET", site.bucket.name).replace("/PREFIX", "").replace("PREFIX/*", "*")
    found: list[Mapping[str, Any]] = json.loads(text)["Statement"]
    return found


@pytest.mark.installed
def test_a_copy_whose_next_records_expired_is_unsure_until_the_next_one_is_there(
    new_broker: StartBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """With the shipped role: a deletion and an update expire while the active instance stands still."""
    bootstrap = new_broker(KAFKA_41, **{"log.retention.check.interval.ms": "300"}).bootstrap
    configs = {"cleanup.policy": "compact,delete", "segment.ms": "1000", "retention.ms": "-1"}
    create_topic(bootstrap, topic, 1, {**configs, "min.cleanable.dirty.ratio": "1.0"})
    config = compacted_config(site, bootstrap, topic, turn_s=3600.0, takeover="1min")
    config["backup"] |= QUICK
    with (
        acting(site.bucket, statements_of("compacted", site)) as rights,
        instance(site, config, "a", "--initial-role", "active", **rights) as a,
    ):
        write(bootstrap, topic, {"deleted": "1", "updated": "1", "kept": "1"})
        eventually(lambda: holder(site, topic).startswith("a:") and len(records_given(site.bucket, topic)) == 3)
        os.kill(a.process.pid, signal.SIGSTOP)
        write(bootstrap, topic, {"first": "1"})  # answers the fetch that waits
        write(bootstrap, topic, {"deleted": None, "updated": "2"})
        time.sleep(1.5)
        write(bootstrap, topic, {"kept": "2"})  # the segment before is closed
        alter(bootstrap, topic, {"retention.ms": "1000"})
        eventually(lambda: asyncio.run(log_start(bootstrap, topic)) >= 6)
        alter(bootstrap, topic, {"retention.ms": "-1"})
        write(bootstrap, topic, {"kept": "3"})
        os.kill(a.process.pid, signal.SIGCONT)
        eventually(lambda: not is_sure(site, topic))
        eventually(lambda: latest(records_given(site.bucket, topic)).get(b"kept") == b"3")
        given = latest(records_given(site.bucket, topic))
        assert (given[b"deleted"], given[b"updated"]) == (b"1", b"1")
        assert "expired before they were read" in a.log
        shown = site.run("cat", "-c", "a.yaml", topic)
        assert "the copy is complete, but unsure" in shown.stdout + shown.stderr
        assert alarms_of(site) >= {"unsure"}
        with instance(site, config, "b", **rights):
            eventually(lambda: holder(site, topic).startswith("b:"), "the next copy is due at once")
            assert is_sure(site, topic)
            expected = latest_on(java_oracle, bootstrap, topic, 1)
            assert latest(records_given(site.bucket, topic)) == expected[0] == {b"kept": b"3"}
            assert site.run("compacted", "status", "-c", "a.yaml").returncode == 0


def alter(bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
    altered = KafkaAdmin(settings_of(bootstrap)).alter_configs_of_topics({topic: dict(configs)})
    assert asyncio.run(altered) == {}


async def log_start(bootstrap: str, topic: str) -> int:
    async with KafkaClient(settings_of(bootstrap)) as client:
        return (await client.offsets([(topic, 0)]))[topic, 0].log_start
