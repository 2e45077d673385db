"""What two instances tell of themselves while they work: metrics, readiness, and a damaged copy that is noticed. A real broker and store."""

import pytest

from tests.integration.backup.test_compacted_status import status
from tests.support.brokers import Broker
from tests.support.compacted_copies import generations_of, latest, newest_entry, records_given
from tests.support.foreign_reader import s3_client
from tests.support.instances import compacted_config, holder, instance, write
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

ROLES = "archiver_compacted_partitions"
LONG_S = 3_000.0  # no turn ends within a test


def alarms(one: Instance, kind: str) -> float:
    return one.total("archiver_compacted_alarms", kind=kind)


def test_a_turn_is_seen_in_the_metrics_of_both(broker: Broker, site: ArchiveSite, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 2, {"cleanup.policy": "compact"})
    write(broker.bootstrap, topic, {f"k{number}": f"first {number}" for number in range(200)})
    write(broker.bootstrap, topic, {f"k{number}": f"first {number}" for number in range(100)}, 1)
    config = compacted_config(site, broker.bootstrap, topic, turn_s=10.0, takeover="20s")
    with instance(site, config, "a", "--initial-role", "active") as a:
        eventually(lambda: a.value(ROLES, topic=topic, role="active") == 2)
        eventually(lambda: a.value("archiver_compacted_position_offsets", topic=topic, role="active") == 300)
        assert a.is_ready()
        assert a.value("archiver_compacted_lag_offsets", topic=topic, role="active") == 0
        assert 0 < a.value("archiver_compacted_turn_left_seconds", topic=topic) < 12
        assert a.value("archiver_records_total", topic=topic) == 300
        assert a.value("archiver_lag_offsets", topic=topic) == 0
        assert a.value("archiver_partitions_left", topic=topic) == 0
        assert a.value("archiver_compacted_turns_total", topic=topic) == 2
        eventually(lambda: alarms(a, "unheard") == 1)  # b, of which nothing was ever heard
        with instance(site, config, "b") as b:
            eventually(lambda: b.value("archiver_compacted_turns_total", topic=topic) == 2)
            eventually(
                lambda: (
                    a.value("archiver_partitions_left", topic=topic) == 2
                    or a.value(ROLES, topic=topic, role="active") == 2
                )
            )
            eventually(lambda: b.total("archiver_compacted_hints_received_total") > 0)
            assert a.total("archiver_compacted_hints_sent_total") > 0
            eventually(
                lambda: (
                    a.total("archiver_compacted_cleared_objects_total")
                    + b.total("archiver_compacted_cleared_objects_total")
                    > 0
                )
            )
            eventually(lambda: alarms(a, "unheard") == 0)
            # Not asked of one answer after the other: between two, the other instance may have taken over.
            eventually(lambda: max(one.total("archiver_compacted_generations", topic=topic) for one in (a, b)) >= 2)
            eventually(lambda: max(one.total("archiver_compacted_generation_bytes", topic=topic) for one in (a, b)) > 0)
            assert [one.total("archiver_compacted_look_failures_total") for one in (a, b)] == [0, 0]


def test_a_process_says_what_it_is_for_its_partitions(broker: Broker, site: ArchiveSite, topic: str) -> None:
    """Without --verbose, when the group has given it partitions, and once a minute."""
    create_topic(broker.bootstrap, topic, 2, {"cleanup.policy": "compact"})
    write(broker.bootstrap, topic, {f"k{number}": "some" for number in range(20)})
    config = compacted_config(site, broker.bootstrap, topic, turn_s=LONG_S)
    with instance(site, config, "a", "--initial-role", "active") as a:
        eventually(lambda: a.value(ROLES, topic=topic, role="active") == 2)
        joined = (
            f"archiving 2 partitions of 1 topic into {site.bucket.url}, as a member of group g-{site.bucket.name}-a"
        )
        eventually(lambda: joined in a.log)
        a.stop()
        assert "2 partitions: active for 2; 20 records durable" in a.log


def test_readiness_is_that_of_the_process_alone(broker: Broker, site: ArchiveSite, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 1, {"cleanup.policy": "delete"})
    with instance(site, compacted_config(site, broker.bootstrap, topic), "b") as b:
        eventually(lambda: "no compacted topic" in b.readiness)
        create_topic(broker.bootstrap, f"{topic}-c", 1, {"cleanup.policy": "compact"})
    with instance(site, compacted_config(site, broker.bootstrap, f"{topic}.*"), "b") as b:
        eventually(b.is_ready)
        assert b.total(ROLES, role="active") == 0


def test_a_damaged_copy_is_replaced_before_its_turn_is_over(
    broker: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """One object of what is read is gone: the other instance makes the next copy at once, and what readers are given is whole again."""
    create_topic(broker.bootstrap, topic, 1, {"cleanup.policy": "compact"})
    config = compacted_config(site, broker.bootstrap, topic, turn_s=LONG_S, **{"clear.delay": "1d"})
    config["backup"]["segment"] = {"age": "1s", "records": 20}
    with instance(site, config, "a", "--initial-role", "active") as a, instance(site, config, "b") as b:
        write(broker.bootstrap, topic, {f"k{number}": f"first {number}" for number in range(100)})
        eventually(lambda: holder(site, topic).startswith("a:"))
        former = holder(site, topic)
        eventually(lambda: len(latest(records_given(site.bucket, topic))) == 100)
        eventually(lambda: alarms(b, "damaged") == 0)
        s3_client(site.bucket).delete_object(Bucket=site.bucket.name, Key=generations_of(site.bucket, topic)[former][2])
        eventually(lambda: holder(site, topic).startswith("b:"))
        expected = latest(java_oracle.consume(broker.bootstrap, topic).records[0])
        assert len(expected) == 100
        eventually(lambda: latest(records_given(site.bucket, topic)) == expected)
        eventually(lambda: a.value(ROLES, topic=topic, role="passive") == 1)
        held = newest_entry(site.bucket, topic)
        assert held is not None
        eventually(lambda: alarms(a, "damaged") + alarms(b, "damaged") == 0)
        assert "is damaged, and the next one is due" in a.log + b.log
    code, found = status(site)
    assert (code, found["alarms"]) == (0, [])
    assert newest_entry(site.bucket, topic) == held  # one new copy, and no turn after turn
