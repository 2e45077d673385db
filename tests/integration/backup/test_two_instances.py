"""Two instances, as processes of their own, that keep a compacted topic by turns: a real broker, a real store."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.brokers import Broker
from tests.support.compacted_copies import generations_of, latest, newest_entry, records_given
from tests.support.examples import EAGER_CLEANER
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, producer_of
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually, service_config

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

SECONDS = 1 / 86_400


def compacted_config(
    site: ArchiveSite, bootstrap: str, *include: str, turn_s: float = 8.0, **compacted: object
) -> dict[str, Any]:
    config = service_config(site, bootstrap, *include, segment={"age": "1s"}, group=f"g-{site.bucket.name}")
    config["compacted"] = {
        "enabled": True,
        "instances": ["a", "b"],
        "log.backup.length.days": turn_s * SECONDS,
        "takeover": "5s",
        "interval": "500ms",
        "clear.delay": "2s",
        **compacted,
    }
    return config


@contextlib.contextmanager
def instance(
    site: ArchiveSite, config: Mapping[str, Any], name: str, *arguments: str, **environment: str
) -> Iterator[Instance]:
    found = Instance(
        site, config, name, environment, command=("compacted", "run"), arguments=("--instance", name, *arguments)
    )
    try:
        yield found
    except BaseException:
        print(f"--- {found.log_path}\n{found.log[-9000:]}")
        raise
    finally:
        found.kill()


def write(bootstrap: str, topic: str, values: Mapping[str, str | None], partition: int = 0) -> None:
    producer = producer_of(bootstrap)
    for key, value in values.items():
        producer.produce(topic, None if value is None else value.encode(), key=key.encode(), partition=partition)
    assert producer.flush(30) == 0


def holder(site: ArchiveSite, topic: str, partition: int = 0) -> str:
    entry = newest_entry(site.bucket, topic, partition)
    return "" if entry is None else entry.holder


def test_the_other_takes_over(broker: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle) -> None:
    create_topic(broker.bootstrap, topic, 2, EAGER_CLEANER)
    write(broker.bootstrap, topic, {f"k{number}": f"first {number}" for number in range(200)})
    config = compacted_config(site, broker.bootstrap, topic)
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
