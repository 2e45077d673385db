"""A restore of a compacted topic from the copy that holds, on a real broker; the copies are laid into the bucket by the words of docs/format.md §11."""

from dataclasses import replace
from typing import Any

import pytest

import archiver.restore.fill.sending
from archiver.restore.plan.request import Existing
from tests.support.brokers import Broker
from tests.support.copied_topic import complete_copy, copy_partition, move_to_copy, put_role_entry
from tests.support.foreign_reader import keys_in
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.produce_doubles import Killed, MortalProduce
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

EVERY: dict[str, Any] = {
    "is_latest_per_key": False
}  # the last of each key are chosen by Spark, which these tests do without


def rows_of(count: int, begin: int = 0) -> list[Rec]:
    return [Rec(at, NOW_MS + at, 0, b"k%d" % (at % 7), b"%d" % at) for at in range(begin, begin + count)]


def produce(broker: Broker, topic: str, rows: list[Rec], partition: int) -> None:
    for start in range(0, len(rows), 25):
        batch = [replace(row, offset=at) for at, row in enumerate(rows[start : start + 25])]
        produce_raw(broker.bootstrap, topic, [encode(batch_of(batch))], partition)


class Compacted:
    """A topic of two partitions of which copy a/1 holds. Nothing of it lies under `topics/`."""

    def __init__(self, broker: Broker, topic: str, site: ArchiveSite) -> None:
        self.broker, self.topic, self.site = broker, topic, site
        self.rows = {partition: rows_of(100) for partition in range(2)}
        create_topic(broker.bootstrap, topic, 2, KEEP_ALL | {"cleanup.policy": "compact"})
        for partition, rows in self.rows.items():
            produce(broker, topic, rows, partition)
        site.back_up(broker.bootstrap, topic, records=30)
        for partition in range(2):
            move_to_copy(site.bucket, topic, partition, "a", 1)
            for number in range(2):
                put_role_entry(site.bucket, topic, partition, number, holder=None, candidate=("a", number))
            self.hold(partition, 2, "a", 1, 100)
        assert keys_in(site.bucket, "topics/") == []

    def hold(self, partition: int, number: int, instance: str, generation: int, until: int, **said: object) -> None:
        holder = complete_copy(instance, generation, until)
        put_role_entry(self.site.bucket, self.topic, partition, number, holder=holder, **said)

    def turn(self) -> None:
        """Let copy b/3 take over, which has more."""
        for partition, rows in self.rows.items():
            produce(self.broker, self.topic, rows_of(40, 100), partition)
            self.rows[partition] = rows + rows_of(40, 100)
        self.site.back_up(self.broker.bootstrap, self.topic, records=30)
        for partition in range(2):
            move_to_copy(self.site.bucket, self.topic, partition, "b", 3)
            self.hold(partition, 4, "b", 3, 140, replaced=complete_copy("a", 1, 100))


@pytest.fixture
def compacted(broker_41: Broker, topic: str, site: ArchiveSite) -> Compacted:
    return Compacted(broker_41, topic, site)


def test_what_holds_comes_back_and_a_later_turn_does_not_change_a_restore(
    compacted: Compacted, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, bootstrap, topic = compacted.site, compacted.broker.bootstrap, compacted.topic
    before = dict(compacted.rows)
    mortal = MortalProduce()
    monkeypatch.setattr(archiver.restore.fill.sending, "produce", mortal)
    rename = [f"{topic}={topic}.back"]
    mortal.live(3)
    with pytest.raises(Killed):
        site.restore(bootstrap, rename=rename, batch_bytes=500, **EVERY)
    compacted.turn()
    mortal.live(10**6)
    (restored,) = site.restore(bootstrap, rename=rename, batch_bytes=500, **EVERY).topics
    assert restored.errors == ()
    assert dict(java_oracle.consume(bootstrap, f"{topic}.back").records) == before
    (again,) = site.restore(bootstrap, rename=rename, batch_bytes=500, reads_again=True, **EVERY).topics
    assert (again.errors, again.records) == ((), 200)
    (fresh,) = site.restore(bootstrap, rename=[f"{topic}={topic}.new"], **EVERY).topics
    assert fresh.errors == ()
    assert dict(java_oracle.consume(bootstrap, f"{topic}.new").records) == compacted.rows
    (former,) = site.restore(bootstrap, rename=[f"{topic}={topic}.a"], instance="a", **EVERY).topics
    assert (former.errors, former.records) == ((), 200)


def test_a_restore_begun_from_the_history_goes_on_with_it(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL | {"cleanup.policy": "compact"})
    produce(broker_41, topic, rows_of(100), 0)
    site.back_up(broker_41.bootstrap, topic, records=30)
    mortal = MortalProduce()
    monkeypatch.setattr(archiver.restore.fill.sending, "produce", mortal)
    rename = [f"{topic}={topic}.back"]
    mortal.live(3)
    with pytest.raises(Killed):
        site.restore(broker_41.bootstrap, rename=rename, batch_bytes=500, is_latest_per_key=None)
    copy_partition(site.bucket, site.bucket, topic, 0, instance="a", generation=1)
    put_role_entry(site.bucket, topic, 0, 2, holder=complete_copy("a", 1, 100), replaced="topics/")
    mortal.live(10**6)
    (restored,) = site.restore(broker_41.bootstrap, rename=rename, batch_bytes=500, is_latest_per_key=None).topics
    assert restored.errors == ()
    assert dict(java_oracle.consume(broker_41.bootstrap, f"{topic}.back").records) == {0: rows_of(100)}


def test_a_topic_may_be_purged_that_a_copy_has(compacted: Compacted, java_oracle: JavaOracle) -> None:
    site, bootstrap, topic = compacted.site, compacted.broker.bootstrap, compacted.topic
    (restored,) = site.restore(bootstrap, topics=topic, existing=Existing.PURGE, **EVERY).topics
    assert restored.errors == ()
    assert dict(java_oracle.consume(bootstrap, topic).records) == compacted.rows
