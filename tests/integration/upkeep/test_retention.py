"""Retention sweeps beside a real broker: what the broker still has is in the archive, and what was swept is no loss."""

import time

import pytest

from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic
from tests.support.real_sweeps import DAY_MS, bases, cut, produce_aged, sweep
from tests.support.round_trip import ArchiveSite
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
