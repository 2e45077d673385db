"""Two instances, as processes of their own, that keep a compacted topic by turns: a real broker, a real store."""

import random
import time

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Broker
from tests.support.compacted_copies import generations_of, latest, newest_entry, records_given
from tests.support.examples import EAGER_CLEANER
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.instances import compacted_config, holder, instance, write
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]


def test_the_other_takes_over(broker: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle) -> None:
    create_topic(broker.bootstrap, topic, 2, EAGER_CLEANER)
    write(broker.bootstrap, topic, {f"k{number}": f"first {number}" for number in range(200)})
    config = compacted_config(site, broker.bootstrap, topic, turn_s=4.0)
    with instance(site, config, "a", "--initial-role", "active"), instance(site, config, "b"):
        eventually(lambda: holder(site, topic).startswith("a:") and holder(site, topic, 1).startswith("a:"))
        write(broker.bootstrap, topic, {f"k{number}": f"second {number}" for number in range(100)})
        write(broker.bootstrap, topic, {f"k{number}": None for number in range(10)})
        eventually(lambda: holder(site, topic).startswith("b:") and holder(site, topic, 1).startswith("b:"))
        write(broker.bootstrap, topic, {f"k{number}": f"third {number}" for number in range(50, 60)})
        expected = latest(java_oracle.consume(broker.bootstrap, topic).records[0])
        eventually(lambda: latest(records_given(site.bucket, topic)) == expected)
        assert len(expected) == 190
        eventually(lambda: holder(site, topic).startswith("a:"))
    print(generations_of(site.bucket, topic).keys())


@pytest.mark.installed
def test_processes_of_an_instance_share_its_partitions(broker: Broker, site: ArchiveSite, topic: str) -> None:
    """What one of them has filled, another goes on with, also where the former one was killed: no generation begins for that."""
    partitions = range(4)
    create_topic(broker.bootstrap, topic, len(partitions), EAGER_CLEANER)
    config = compacted_config(site, broker.bootstrap, topic, turn_s=3600.0)
    config["backup"] |= {"session-timeout": "3s"}

    def put(what: str) -> None:
        for number in partitions:
            write(broker.bootstrap, topic, {f"k{one}": what for one in range(50)}, number)

    def is_given(what: str) -> bool:
        given = [latest(records_given(site.bucket, topic, number)) for number in partitions]
        return all(set(one.values()) == {what.encode()} and len(one) == 50 for one in given)

    put("first")
    with instance(site, config, "a", "--initial-role", "active") as first:
        eventually(lambda: all(holder(site, topic, number) for number in partitions))
        eventually(lambda: is_given("first"))
        with instance(site, config, "a", process="-2") as second:
            eventually(lambda: "this instance is active" in second.log)
            put("second")
            eventually(lambda: is_given("second"))
            first.kill()
            put("third")
            eventually(lambda: is_given("third"))
    for number in partitions:
        entry = newest_entry(site.bucket, topic, number)
        assert entry is not None
        assert (entry.holder, entry.told["holder"]["is_sure"]) == ("a:0", True)
        assert generations_of(site.bucket, topic, number).keys() == {"a:0"}


def test_the_group_of_the_active_instance_tells_its_lag(broker: Broker, site: ArchiveSite, topic: str) -> None:
    """For whoever watches consumer groups: the generation that holds, and how far it is in storage."""
    create_topic(broker.bootstrap, topic, 1, EAGER_CLEANER)
    write(broker.bootstrap, topic, {f"k{number}": "first" for number in range(50)})
    config = compacted_config(site, broker.bootstrap, topic, turn_s=3600.0)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def committed(name: str) -> list[tuple[int, str]]:
        group = f"{config['backup']['group']}-{name}"
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        rows = asked[group].result(20).topic_partitions or []
        return [(row.offset, (row.metadata or "").rstrip("\0").partition(" archive=")[0]) for row in rows]

    with instance(site, config, "a", "--initial-role", "active"), instance(site, config, "b"):
        eventually(lambda: holder(site, topic).startswith("a:"))
        eventually(lambda: committed("a") == [(50, "generation=0")])
        write(broker.bootstrap, topic, {f"k{number}": "second" for number in range(7)})
        eventually(lambda: committed("a") == [(57, "generation=0")])
        assert committed("b") == []


def test_what_is_read_no_more_goes(broker: Broker, site: ArchiveSite, topic: str) -> None:
    """The archive follows the compacted log: what was rewritten a hundred times does not stay."""
    bootstrap, dice = broker.bootstrap, random.Random(topic)
    create_topic(bootstrap, topic, 1, EAGER_CLEANER)
    config = compacted_config(site, bootstrap, topic, turn_s=2.0)
    with instance(site, config, "a", "--initial-role", "active"), instance(site, config, "b"):
        eventually(lambda: holder(site, topic) != "")
        begun = newest_entry(site.bucket, topic)
        assert begun is not None
        for _ in range(100):
            write(bootstrap, topic, {f"k{key}": dice.randbytes(200).hex() for key in range(20)})
        history = 100 * 20 * 200  # what compression cannot take away

        def has_turned_twice() -> bool:
            entry = newest_entry(site.bucket, topic)
            return entry is not None and (entry.switched or 0) >= (begun.switched or 0) + 4

        eventually(has_turned_twice)

        def is_small() -> bool:
            write(bootstrap, topic, {"k0": "more"})  # a broker compacts no segment that is written to
            return len(records_given(site.bucket, topic)) < 500

        eventually(is_small, every_s=1.5)
        # Both the copy that is read and the next one may stand; nothing lies under `topics/`, where no backup was run.
        eventually(lambda: archived_bytes(site) < history / 10, "the archive does not follow the log", every_s=0.5)
        print(f"{archived_bytes(site)} bytes are archived of {history}")
        assert keys_in(site.bucket, "topics/") == []
    assert len(latest(records_given(site.bucket, topic))) == 20


def test_a_copy_stays_sure_over_restarts(broker: Broker, site: ArchiveSite, topic: str) -> None:
    """Whoever stops, or gives a partition away, says how far it has read: the next process goes on from there, and not from the beginning."""
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic, 1, {"cleanup.policy": "compact", "delete.retention.ms": "40000"})
    write(bootstrap, topic, {f"k{number}": "some" for number in range(20)})
    config = compacted_config(site, bootstrap, topic, turn_s=600.0, takeover="1h")
    with instance(site, config, "a", "--initial-role", "active") as first:
        eventually(lambda: holder(site, topic) == "a:0")
        time.sleep(41)  # who did not say how far it has read would not be sure of what went since
        first.stop()
    with instance(site, config, "a"):
        write(bootstrap, topic, {"more": "some"})
        eventually(lambda: len(records_given(site.bucket, topic)) == 21)
        entry = newest_entry(site.bucket, topic)
        assert entry is not None
        assert (entry.type, entry.holder, entry.told["holder"]["is_sure"]) == ("switch", "a:0", True)


def archived_bytes(site: ArchiveSite) -> int:
    """Of copies, and of history."""
    pages = s3_client(site.bucket).get_paginator("list_objects_v2").paginate(Bucket=site.bucket.name)
    found = [item for page in pages for item in page.get("Contents", ())]
    return sum(item["Size"] for item in found if item["Key"].startswith(("compacted/", "topics/")))
