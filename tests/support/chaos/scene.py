"""All parts of a chaos test: a broker of its own, a bucket behind bad weather, traffic, members."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.brokers import KAFKA_41, Bucket, StartBroker
from tests.support.chaos.archive import WatchedBucket
from tests.support.chaos.fleet import Fleet
from tests.support.chaos.group import Cluster
from tests.support.chaos.traffic import Style, Topic, Traffic
from tests.support.chaos.verdict import Judgement, consume_all, judge, wait_caught_up
from tests.support.faulty_s3 import FaultyS3, Weather
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.service import eventually

SESSION_TIMEOUT_S = 3
_GROWTH_S = 240.0
_FAULTS_S = 120.0
# KIP-848: the session is the broker's to set.
_GROUP_PROPERTIES = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": f"{SESSION_TIMEOUT_S * 1000}",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
}
FIRST_TOPICS = (
    ("chaos-plain", Style.PLAIN, 3),
    ("chaos-idempotent", Style.IDEMPOTENT, 3),
    ("chaos-transactions", Style.TRANSACTIONAL, 3),
    ("chaos-compacted", Style.COMPACTED, 2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that a director moves."""

    broker: KafkaBroker
    cluster: Cluster
    traffic: Traffic
    watched: WatchedBucket
    proxy: FaultyS3
    weather: Weather
    fleet: Fleet
    oracle: JavaOracle

    def wait_growth(self) -> None:
        """Until segments are written that were not there: the backup lives."""
        before = self.watched.count()

        def has_grown() -> bool:
            self.fleet.check()
            return self.watched.count() > before

        eventually(has_grown, "the archive grows", _GROWTH_S)

    def wait_every_fault(self) -> None:
        """Until the weather has brought each of its faults, and a transaction was aborted: members and traffic go on meanwhile."""

        def is_enough() -> bool:
            self.fleet.check()
            return self.weather.met.keys() == self.weather.chances.keys() and self.traffic.tally.aborted > 0

        eventually(is_enough, "every kind of fault has happened", _FAULTS_S)

    def settle_accounts(self) -> Judgement:
        """No more records, no more faults; the members catch up and leave; then what Kafka shows against the archive."""
        self.traffic.stop()
        self.proxy.set_weather(None)
        expected = consume_all(self.oracle, self.broker.bootstrap, self.traffic.topics)
        if self.fleet.live:
            wait_caught_up(self.watched, expected)
            self.fleet.terminate_all()
        self.fleet.check()
        judgement = judge(self.watched, expected, self.traffic.topics)
        if self.watched.swept:  # and whether what was swept was right
            self.watched.put_back()
            judgement.records = judge(self.watched, expected, self.traffic.topics).records
        return judgement


def member_config(broker: KafkaBroker, bucket: Bucket, endpoint: str, protocol: str) -> dict[str, Any]:
    """archive.yaml of a member, but for its spool and client id. Segments are small: the more effects, the more gaps."""
    return {
        "kafka": {"bootstrap.servers": broker.bootstrap},
        "storage": {"url": bucket.url, "endpoint": endpoint},
        "topics": {"include": ["chaos-.*"], "refresh": "1s"},
        "backup": {
            "group": "chaos",
            "group-protocol": protocol,
            "session-timeout": f"{SESSION_TIMEOUT_S}s",
            "groups": "off",
            "segment": {"records": 200, "age": "1500ms"},
        },
    }


@contextmanager
def open_scene(
    *,
    new_broker: StartBroker,
    bucket: Bucket,
    folder: Path,
    oracle: JavaOracle,
    seed: int,
    protocol: str = "classic",
) -> Iterator[Scene]:
    """Traffic flows, the weather is fair, and no member is there yet. What goes wrong is told with the members' last words."""
    started = time.monotonic()
    broker = new_broker(KAFKA_41, **(_GROUP_PROPERTIES if protocol == "consumer" else {}))
    cluster = Cluster(broker.bootstrap, "chaos")
    with FaultyS3(bucket.s3.endpoint) as proxy:
        config = member_config(broker, bucket, proxy.endpoint, protocol)
        scene = Scene(
            broker=broker,
            cluster=cluster,
            traffic=Traffic(broker.bootstrap, seed),
            watched=WatchedBucket(bucket),
            proxy=proxy,
            weather=Weather(seed),
            fleet=Fleet(cluster, bucket, folder, config),
            oracle=oracle,
        )
        for name, style, partitions in FIRST_TOPICS:
            scene.traffic.add(Topic(name, style, partitions))
        try:
            yield scene
        except BaseException as error:
            error.add_note(f"replay with --hypothesis-seed={seed}; {time.monotonic() - started:.0f} s after the start")
            error.add_note(f"the members said last:\n{scene.fleet.tails()}")
            raise
        finally:
            scene.fleet.end()
