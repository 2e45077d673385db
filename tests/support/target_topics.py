"""Topics to restore from and into: fills, archives, reads them, and restores them as `<topic>.back`."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.errors import ArchiverError
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.kafka.topics.configs import topic_configs
from archiver.restore.plan.request import Existing, RestoreRequest
from archiver.restore.report.preview import RestorePreview
from archiver.restore.report.restore_report import TopicReport
from archiver.spark.restore import preview_restore
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, settings_of, with_client
from tests.support.raw_produce import produce_records
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import KEEP_ALL, ArchiveSite

Partitions = dict[int, list[Rec]]
# Ways to restore one topic.
WAYS: dict[str, dict[str, Any]] = {
    "new": {},
    "purged": {"existing": Existing.PURGE},
    "dealt": {"repartition": 3},
    "empty": {},
    "behind": {"existing": Existing.APPEND},
}


def records_of(count: int, *, first_ms: int = NOW_MS, mark: bytes = b"ours", keys: int = 10**6) -> list[Rec]:
    return [Rec(at, first_ms + at, 0, b"k%d" % (at % keys), b"%s %d" % (mark, at)) for at in range(count)]


def write(broker: Broker, topic: str, records: Sequence[Rec], partition: int = 0, size: int = 50) -> None:
    produce_records(broker.bootstrap, topic, records, size=size, partition=partition)


def archived(broker: Broker, topic: str, site: ArchiveSite, *partitions: Sequence[Rec], **configs: str) -> Partitions:
    """A topic of these records, archived; `configs` are set on it, with _ for a dot, when it is filled."""
    create_topic(broker.bootstrap, topic, len(partitions), KEEP_ALL)
    for number, records in enumerate(partitions):
        write(broker, topic, records, number)
    set_configs(broker, topic, **configs)
    site.back_up(broker.bootstrap, topic, records=20)
    return {number: list(records) for number, records in enumerate(partitions)}


def foreign_topic(broker: Broker, topic: str, *sizes: int, **configs: str) -> Partitions:
    """Create a target topic with records that no restore wrote."""
    create_topic(broker.bootstrap, topic, len(sizes), KEEP_ALL)
    written = {number: records_of(size, mark=b"theirs") for number, size in enumerate(sizes)}
    for number, records in written.items():
        write(broker, topic, records, number)
    set_configs(broker, topic, **configs)
    return written


def set_configs(broker: Broker, topic: str, **configs: str) -> None:
    """Returns when the broker has them."""
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    asyncio.run(KafkaAdmin(settings_of(broker.bootstrap)).alter_topic_configs(topic, set_to=wanted))
    until(lambda: wanted.items() <= configs_of(broker, topic).items())


def until(reached: Callable[[], bool], within_s: float = 30.0) -> None:
    end_s = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < end_s, "did not come"
        time.sleep(0.05)


def configs_of(broker: Broker, topic: str) -> dict[str, str]:
    return dict(with_client(broker.bootstrap, lambda client: topic_configs(client, topic)).own)


def id_of(broker: Broker, topic: str) -> str:
    return with_client(broker.bootstrap, lambda client: client.describe_topics([topic]))[topic].topic_id


def log_of(broker: Broker, topic: str, partition: int = 0) -> tuple[int, int]:
    """Where it begins, and where it ends."""
    which = (topic, partition)
    found = with_client(broker.bootstrap, lambda client: client.offsets([which]))[which]
    return found.log_start, found.high_watermark


def on_target(oracle: JavaOracle, broker: Broker, topic: str) -> Partitions:
    return dict(oracle.consume(broker.bootstrap, topic).records)


def behind(there: Partitions, ours: Partitions) -> Partitions:
    return {
        number: [*records, *(replace(one, offset=len(records) + one.offset) for one in ours[number])]
        for number, records in there.items()
    }


def restored(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> TopicReport:  # noqa: ANN401
    """Restore one topic as `<topic>.back`."""
    (report,) = site.restore(broker.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], **asked).topics
    return report


def previewed(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> RestorePreview:  # noqa: ANN401
    """What a dry run of `restored` tells."""
    storage = ArchiverConfig.model_validate(site.config(broker.bootstrap, ())).storage
    request = RestoreRequest(topics=topic, renames={topic: f"{topic}.back"}, **asked)
    target = TargetConfig(kafka={"bootstrap.servers": broker.bootstrap})
    return preview_restore(storage, target, request, restore_id=None)


def there(broker: Broker, topic: str) -> tuple[str, tuple[int, int]] | None:
    """Which topic it is, and what it holds."""
    found = with_client(broker.bootstrap, lambda client: client.describe_topics([topic]))
    return (found[topic].topic_id, log_of(broker, topic)) if topic in found else None


def refused(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> str:  # noqa: ANN401
    """What is said about it, by a dry run as well; and nothing is changed."""
    before = there(broker, f"{topic}.back")
    foretold = previewed(site, broker, topic, **asked).refused
    with pytest.raises(ArchiverError) as caught:
        restored(site, broker, topic, **asked)
    assert [str(caught.value)] == list(foretold)
    assert keys_in(site.bucket, "control/restores/") == []
    assert there(broker, f"{topic}.back") == before
    return str(caught.value)
