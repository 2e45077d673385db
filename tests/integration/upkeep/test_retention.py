"""Retention sweeps beside a real broker: what the broker still has is in the archive, and what was swept is no loss."""

import socket
import time

import pytest

from archiver.archive.notes.holds import Hold, add_hold, release_hold
from archiver.archive.notes.swept import OffsetRanges, SweptPlace, add_swept, read_swept_place
from archiver.errors import KafkaTemporaryError
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult
from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic
from tests.support.real_sweeps import DAY_MS, archive_of, bases, cut, produce_aged, sweep
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]


@pytest.fixture
def aged(broker: Broker, topic: str, site: ArchiveSite) -> str:
    """Ten records, the oldest ten days old, an object for each; the broker has the last four."""
    create_topic(broker.bootstrap, topic, configs={"retention.ms": str(20 * DAY_MS)})
    produce_aged(broker.bootstrap, topic, [age * DAY_MS for age in range(10, 0, -1)])
    site.back_up(broker.bootstrap, topic, records=1)
    assert bases(site, topic) == list(range(10))
    cut(broker, topic, 6)
    time.sleep(1.1)  # the store's clock has whole seconds, and what was put in this one is too young
    set_configs(broker, topic, retention_ms=str(5 * DAY_MS - DAY_MS // 2))
    return topic


def test_a_sweep(broker: Broker, aged: str, site: ArchiveSite) -> None:
    first = sweep(site, broker.bootstrap, aged)
    assert [kept.why for kept in first.plan.kept if kept.topic == aged] == [
        "what it keeps was never noted before; a sweep that is no dry run notes it, and the next one goes by it"
    ]
    second = sweep(site, broker.bootstrap, aged)
    assert [one.topic for one in second.waiting] == [aged]
    assert bases(site, aged) == list(range(10))
    shown = sweep(site, broker.bootstrap, aged, is_dry_run=True)
    assert bases(site, aged) == list(range(10))
    third = sweep(site, broker.bootstrap, aged, digest=shown.digest)
    assert third.is_complete
    assert bases(site, aged) == list(range(6, 10))
    found = site.verify(broker.bootstrap, [aged], against_kafka=True)
    assert found.is_whole
    assert f"{aged}-0: offsets 0-5 are no longer in the archive: a retention sweep took them" in found.notes
    restored = site.restore(broker.bootstrap, topics=aged, rename=[f"{aged}={aged}.back"])
    assert restored.failure is None


def agreed(site: ArchiveSite, broker: Broker, topic: str) -> SweepResult:
    """Sweep as often as it takes until what goes has gone."""
    sweep(site, broker.bootstrap, topic)
    return sweep(site, broker.bootstrap, topic, agreed=True)


def why_kept(result: SweepResult, topic: str) -> list[str]:
    return [kept.why for kept in result.plan.kept if kept.topic == topic]


def test_nothing_goes_without_a_cluster_that_answers(broker: Broker, aged: str, site: ArchiveSite) -> None:
    sweep(site, broker.bootstrap, aged)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(KafkaTemporaryError):
        sweep(site, nobody, aged, agreed=True)
    assert bases(site, aged) == list(range(10))


def test_a_hold_keeps_what_it_names_and_lets_the_others_go(broker: Broker, aged: str, site: ArchiveSite) -> None:
    archive, now_ms = archive_of(site), time.time_ns() // 1_000_000
    noon_ms = now_ms - 8 * DAY_MS
    hold = Hold(
        name="audit",
        topics=aged,
        from_ms=noon_ms - 3_600_000,
        until_ms=noon_ms + 3_600_000,
        reason="r",
        by="b",
        added_ms=0,
    )
    add_hold(archive, hold)
    assert agreed(site, broker, aged).is_complete
    assert bases(site, aged) == [2, *range(6, 10)]
    assert site.verify(broker.bootstrap, [aged]).is_whole
    release_hold(archive, "audit", by="b", now_ms=0)
    agreed(site, broker, aged)
    assert bases(site, aged) == list(range(6, 10))


def test_what_a_sweep_that_died_wrote_down_is_taken_back_though_nothing_goes_any_more(
    broker_41: Broker, topic: str, site: ArchiveSite
) -> None:
    """Somebody holds the topic because of it: what is lost from then on must show."""
    create_topic(broker_41.bootstrap, topic, configs=KEEP_ALL)
    produce_aged(broker_41.bootstrap, topic, [DAY_MS] * 3)
    site.back_up(broker_41.bootstrap, topic, records=1)
    archive, place = archive_of(site), SweptPlace(topic, 0, 0)
    add_swept(archive, place, OffsetRanges.of([(0, 2)]))
    add_hold(archive, Hold(name="all", topics=topic, reason="r", by="b", added_ms=0))
    assert why_kept(sweep(site, broker_41.bootstrap, topic, is_dry_run=True), topic) == ["it is on hold: all"]
    assert read_swept_place(archive, place).ranges == ((0, 2),)
    sweep(site, broker_41.bootstrap, topic)
    assert not read_swept_place(archive, place)
    archive.store.delete([next(iter(archive.store.list(f"topics/{topic}/"))).key])
    assert not site.verify(broker_41.bootstrap, [topic]).is_whole
