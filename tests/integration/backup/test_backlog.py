"""Partitions that cannot be opened: what is at stake in them is told all the same."""

import time

import pytest

from archiver.archive.format.layout import Layout
from archiver.archive.notes.topics import topic_stream
from tests.support.brokers import Broker
from tests.support.foreign_reader import s3_client
from tests.support.kafka_topics import create_topic, producer_of
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.service import eventually, running, service_config

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

OLD_S = 1000
RETENTION_S = 3600


def test_the_age_of_what_waits_is_that_of_its_records(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    """A topic whose control fact is damaged is not opened once; its oldest record has waited since long before that."""
    create_topic(broker_41.bootstrap, topic, 3, KEEP_ALL | {"retention.ms": f"{RETENTION_S * 1000}"})
    producer = producer_of(broker_41.bootstrap, compression_type="zstd")
    old_ms = int((time.time() - OLD_S) * 1000)
    for number in range(10):
        producer.produce(topic, b"value %d" % number, partition=number % 2, timestamp=old_ms + number)
    assert producer.flush(30) == 0
    fact = Layout().fact_key(topic_stream(topic), 0)
    store = s3_client(site.bucket)
    store.put_object(Bucket=site.bucket.name, Key=fact, Body=b"not a fact")
    with running(site, service_config(site, broker_41.bootstrap, topic, group=topic)) as instance:
        eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == 3)
        eventually(lambda: instance.value("archiver_lag_offsets", topic=topic) == 10)
        age_s = time.time() - old_ms / 1000
        assert instance.value("archiver_rpo_seconds", topic=topic) == pytest.approx(age_s, abs=2)
        left_s = instance.value("archiver_retention_left_seconds", topic=topic)
        assert left_s == pytest.approx(RETENTION_S - age_s, abs=2)
        store.delete_object(Bucket=site.bucket.name, Key=fact)
        eventually(lambda: instance.value("archiver_records_total", topic=topic) == 10)
        eventually(lambda: instance.value("archiver_rpo_seconds", topic=topic) == 0)
        assert instance.value("archiver_partitions_failing", topic=topic) == 0
        assert instance.stop() == 0
