"""Copies held against the cluster (`verify --against-kafka`): two real instances, a real broker whose cleaner is eager."""

import pytest

from archiver.archive.copies.copied_topic import CopyChoice
from archiver.config.model import ArchiverConfig
from archiver.spark.verify import VerifyResult, run_verify
from archiver.upkeep.object_check import Level
from tests.support.brokers import Broker
from tests.support.compacted_copies import generations_of, latest, newest_entry, records_given
from tests.support.copied_topic import complete_copy, put_role_entry
from tests.support.examples import EAGER_CLEANER
from tests.support.foreign_reader import s3_client
from tests.support.instances import compacted_config, fill_oddly, holder, instance, write
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(300)]


def verify(site: ArchiveSite, bootstrap: str, topic: str, **wished: object) -> VerifyResult:
    config = ArchiverConfig.model_validate(site.config(bootstrap, [topic]))
    return run_verify(config, Level.LISTING, against_kafka=True, choice=CopyChoice(**wished))  # type: ignore[arg-type] # as it has them


def not_archived(found: VerifyResult) -> list[str]:
    return [note for note in found.notes if "offsets are not" in note or "offset is not" in note]


def test_what_kafka_still_has_is_in_each_copy(
    broker: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """Also after the log was compacted further; and a record that a copy lacks is found."""
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic, 4, EAGER_CLEANER)
    fill_oddly(bootstrap, topic)
    write(bootstrap, topic, {f"k{number}": "first" for number in range(200)})
    config = compacted_config(site, bootstrap, topic)
    config["compacted"]["clear.delay"] = "1h"
    with instance(site, config, "a", "--initial-role", "active"), instance(site, config, "b"):
        eventually(lambda: all(holder(site, topic, number).startswith("a:") for number in range(4)))
        write(bootstrap, topic, {f"k{number}": "second" for number in range(150)})
        write(bootstrap, topic, {f"k{number}": None for number in range(10)})
        eventually(lambda: all(holder(site, topic, number).startswith("b:") for number in range(4)))
    write(bootstrap, topic, {f"k{number}": "third" for number in range(50, 60)})

    def is_compacted() -> bool:
        write(bootstrap, topic, {"k0": "more"})  # a broker compacts no segment that is written to
        return len(java_oracle.consume(bootstrap, topic).records[0]) < 230

    eventually(is_compacted, every_s=1.5)
    found = verify(site, bootstrap, topic)
    assert (found.problems, found.errors) == ([], [])
    assert found.compared
    (note,) = not_archived(found)  # a log that ends in a marker is archived to its end
    assert note.startswith(f"{topic}-0: ")
    assert note.endswith(" offsets are not in that copy")
    for name in ("a", "b"):
        found = verify(site, bootstrap, topic, instance=name)
        assert (found.problems, found.errors) == ([], [])
        assert found.compared
    _lose_records(site, topic)
    missing = f"{topic}-1: Kafka has 20 records at offsets 0-19 that no object covers"
    claimed, found_missing = verify(site, bootstrap, topic).problems
    assert "it has no record from offset 0 on, and" in claimed
    assert found_missing == missing


def _lose_records(site: ArchiveSite, topic: str) -> None:
    """As if a copy of partition 1 had been taken for complete that had read over its records."""
    newest = newest_entry(site.bucket, topic, 1)
    assert newest is not None
    instance_name, _, generation = newest.holder.partition(":")
    for key in generations_of(site.bucket, topic, 1)[newest.holder]:
        s3_client(site.bucket).delete_object(Bucket=site.bucket.name, Key=key)
    put_role_entry(
        site.bucket,
        topic,
        1,
        newest.number + 1,
        holder=complete_copy(instance_name, int(generation), 0, 20),
        switched=0,
    )


def test_a_deletion_that_a_copy_missed_is_found_and_makes_the_next_copy_due(
    broker: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """delete.retention.ms was lowered for a moment, as for a purge of tombstones, while the active instance was down."""
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic, 1, EAGER_CLEANER)
    config = compacted_config(site, bootstrap, topic, turn_s=3600.0, takeover="1min")
    with instance(site, config, "a", "--initial-role", "active") as a:
        write(bootstrap, topic, {f"k{number}": "first" for number in range(9)})
        eventually(lambda: holder(site, topic).startswith("a:") and len(records_given(site.bucket, topic)) == 9)
        assert a.stop() == 0
    write(bootstrap, topic, {f"k{number}": None for number in range(3)})
    set_configs(broker, topic, delete_retention_ms="0")

    def is_purged() -> bool:
        write(bootstrap, topic, {"more": "more"})  # a broker compacts no segment that is written to
        keys = [one.key for one in java_oracle.consume(bootstrap, topic).records[0]]
        return b"k0" not in keys and keys.count(b"k5") == 1

    eventually(is_purged, every_s=1.5)
    set_configs(broker, topic, delete_retention_ms="86400000")
    with instance(site, config, "a") as a:
        eventually(lambda: latest(records_given(site.bucket, topic)).get(b"more") == b"more")
        assert latest(records_given(site.bucket, topic))[b"k0"] == b"first"
        found = verify(site, bootstrap, topic)
        (problem,) = found.problems
        assert "has values of 3 keys that Kafka no longer has, the first at offset 0" in problem
        assert f"{topic}-0: the next copy is due" in found.notes
        with instance(site, config, "b"):
            eventually(lambda: holder(site, topic).startswith("b:"))
            assert b"k0" not in latest(records_given(site.bucket, topic))
            assert verify(site, bootstrap, topic).problems == []
