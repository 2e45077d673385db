"""Instances that may not ask what they would like to know go on with what the archive knows."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin._acl import AclOperation as Op
from confluent_kafka.admin._resource import ResourceType as Kind

from tests.conftest import kafka_jars
from tests.support.brokers import KAFKA_41
from tests.support.compacted_copies import newest_entry, records_given
from tests.support.instances import compacted_config, holder, instance, write
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite
from tests.support.secure_broker import PASSWORD, USER, Certificates, SecureBroker
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    folder = tmp_path_factory.mktemp("secure-broker")
    with SecureBroker(kafka_jars(KAFKA_41), folder / "broker", Certificates.make(folder / "keys")) as broker:
        yield broker


def test_a_topic_with_copies_is_taken_also_when_its_configs_cannot_be_asked(
    secure: SecureBroker, site: ArchiveSite, topic: str
) -> None:
    """A plain backup leaves it to the instances: if they did so too, nobody would archive it."""
    create_topic(secure.bootstrap, topic, 1, {"cleanup.policy": "compact"})
    write(secure.bootstrap, topic, {f"k{number}": "some" for number in range(10)})
    config = compacted_config(site, secure.bootstrap, topic, turn_s=600.0)
    with instance(site, config, "a", "--initial-role", "active"):
        eventually(lambda: holder(site, topic) == "a:0")
    secure.grant((Kind.TOPIC, topic, Op.READ), (Kind.GROUP, "*", Op.READ))
    config["kafka"] = {
        "bootstrap.servers": secure.address("SASL"),
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    write(secure.bootstrap, topic, {"more": "some"})
    with instance(site, config, "a"):
        eventually(lambda: len(records_given(site.bucket, topic)) == 11)
    entry = newest_entry(site.bucket, topic)
    assert entry is not None
    assert (entry.number, entry.told["holder"]["is_sure"]) == (1, True)
