"""A schema registry comes back with the same ids: its topic archived by two instances over two turns, deleted, restored by the command."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.apicurio import apicurio
from tests.support.brokers import Broker, StartBroker
from tests.support.compacted_copies import latest, records_given
from tests.support.examples import EAGER_CLEANER
from tests.support.instances import compacted_config, holder, instance
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, delete_topic
from tests.support.round_trip import ArchiveSite, errors_of
from tests.support.schema_registry import TOPIC, Reference, Registry, Told, record_schema
from tests.support.schemas_topic import documented_form
from tests.support.service import eventually
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(600)]

ADDRESS = record_schema("Address", street="", town="")  # its second version
StartRegistry = Callable[[Broker, Path], AbstractContextManager[Registry]]


def register_first(registry: Registry) -> None:
    address = Reference("Address", "address", 1)
    registry.register("address", record_schema("Address", street=""))
    order = '{"type":"record","name":"Order","fields":[{"name":"to","type":"Address"}]}'
    registry.register("orders-value", order, address)
    for subject in ("soft", "hard", "one-version"):
        registry.register(subject, record_schema(subject.partition("-")[0], first=""))
    registry.set_compatibility("FULL")
    registry.set_compatibility("NONE", "orders-value")


def change_in_the_first_turn(registry: Registry) -> None:
    registry.register("address", ADDRESS)
    for subject in ("soft", "hard", "one-version"):
        registry.register(subject, record_schema(subject.partition("-")[0], first="", second=""))
    registry.delete("soft")
    registry.delete("hard")
    registry.set_compatibility("BACKWARD", "orders-value")


def change_in_the_second_turn(registry: Registry) -> None:
    registry.delete("hard", permanently=True)
    registry.delete("one-version", 1)
    registry.register("späte/Themen-value", record_schema("Late", größe="ß"))
    registry.set_compatibility("FORWARD_TRANSITIVE", "address")
    registry.set_compatibility("NONE")


# Apicurio is 160 MB, and the Java that it runs with 35 MB.
@pytest.mark.parametrize("start", [pytest.param(apicurio, marks=pytest.mark.long), documented_form])
def test_a_registry_comes_back_with_the_same_ids(
    new_broker: StartBroker, site: ArchiveSite, java_oracle: JavaOracle, tmp_path: Path, start: StartRegistry
) -> None:
    broker = new_broker()
    create_topic(broker.bootstrap, TOPIC, 1, EAGER_CLEANER)
    config = compacted_config(site, broker.bootstrap, TOPIC, turn_s=4.0)
    with (
        start(broker, tmp_path) as registry,
        instance(site, config, "a", "--initial-role", "active"),
        instance(site, config, "b"),
    ):
        register_first(registry)
        eventually(lambda: holder(site, TOPIC).startswith("a:"))
        change_in_the_first_turn(registry)
        eventually(lambda: holder(site, TOPIC).startswith("b:"))
        change_in_the_second_turn(registry)
        eventually(lambda: holder(site, TOPIC).startswith("a:"))
        registry.register("behind-the-turns", record_schema("Behind", first=""))
        if start is documented_form:
            eventually(lambda: a_copy_is_of_the_compacted_log(site, registry), every_s=1.5)
        written = java_oracle.consume(broker.bootstrap, TOPIC).records[0]
        eventually(lambda: latest(records_given(site.bucket, TOPIC)) == latest(written))
        before = registry.told()
    bring_back(site, broker)
    with start(broker, tmp_path) as registry:
        goes_on_from(registry, before)


@pytest.mark.long
def test_so_does_one_whose_topic_is_not_compacted(new_broker: StartBroker, site: ArchiveSite, tmp_path: Path) -> None:
    """As Apicurio wants its topic to be: a plain backup keeps it."""
    broker = new_broker()
    create_topic(broker.bootstrap, TOPIC, 1, {"retention.ms": "-1"})
    with apicurio(broker, tmp_path) as registry:
        set_configs(broker, TOPIC, cleanup_policy="delete")
        register_first(registry)
        change_in_the_first_turn(registry)
        change_in_the_second_turn(registry)
        before = registry.told()
    assert not errors_of(site.back_up(broker.bootstrap, TOPIC))
    bring_back(site, broker)
    with apicurio(broker, tmp_path) as registry:
        goes_on_from(registry, before)


def bring_back(site: ArchiveSite, broker: Broker) -> None:
    delete_topic(broker.bootstrap, TOPIC)
    site.write_config(broker.bootstrap, TOPIC)
    site.write_target(broker.bootstrap)
    done = site.run("restore", "--target", "target.yaml", "--topics", TOPIC, timeout_s=240.0)
    assert done.returncode == 0, done.stderr


def goes_on_from(registry: Registry, before: Told) -> None:
    assert registry.told() == before
    known, _, _ = before.subjects["address"][2]
    assert registry.register("address", ADDRESS) == known
    assert registry.register("new", record_schema("New", first="")) > max(before.ids)


def a_copy_is_of_the_compacted_log(site: ArchiveSite, registry: Registry) -> bool:
    """Whether the holder lacks what the cleaner removed. The broker cleans no segment that is written to: more is written."""
    registry.set_compatibility("NONE")
    given = records_given(site.bucket, TOPIC)
    return len(given) <= given[-1].offset
