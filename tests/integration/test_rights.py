"""What each command may and may not do, a right at a time, against the ACLs of a broker and the policies of a store: docs/reference.md, Rights."""

import re
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not marked so
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.conftest import kafka_jars
from tests.support.brokers import KAFKA_41, S3, Bucket
from tests.support.foreign_reader import s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.rights_stage import RightsStage, says
from tests.support.rights_table import CASES, Case, Kind
from tests.support.round_trip import ArchiveSite, archive_site
from tests.support.secure_broker import Certificates, SecureBroker
from tests.support.service import eventually
from tests.support.zookeeper import StartZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

_GRANT = re.compile(r"\bgrant\b")
_SERVICES = {Kind.SERVICE, Kind.INSTANCE}


@pytest.fixture(scope="module")
def stage(minio: S3, java_oracle: JavaOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsStage]:
    folder = tmp_path_factory.mktemp("rights")
    bucket = Bucket(minio, f"test-{uuid.uuid4().hex[:12]}")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    broker = SecureBroker(kafka_jars(KAFKA_41), folder / "kafka", Certificates.make(folder / "certificates"))
    try:
        broker.start()
        with archive_site(bucket, folder) as site:
            yield RightsStage(site, broker, java_oracle)
    finally:
        broker.stop()


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=str(case), marks=[pytest.mark.long] if case.is_long else []) for case in CASES]
)
def test_a_command_has_the_rights_of_the_table_and_needs_each(stage: RightsStage, case: Case) -> None:
    """With all it says of none that it is missing: so a right that nothing needs is found, whose loss says nothing either."""
    stage.set_up(case)
    before = stage.picture()
    done = stage.run(case)
    told = "\n".join(done.lines)
    if case.loss is None:
        assert (done.exit_code, _GRANT.findall(told)) == (case.command.exit_code, []), told
        stage.assert_whole(case, done)
        return
    assert done.exit_code == case.loss.exit_code, told
    is_told = done.lines if case.loss.is_borne or case.command.kind in _SERVICES else done.complaints
    assert any(re.search(says(stage, case), line) for line in is_told), told
    if case.loss.is_borne:
        stage.assert_whole(case, done)
    else:
        stage.assert_nothing_begun(case, before)


@pytest.mark.long
def test_who_may_write_to_a_topic_needs_no_right_to_be_idempotent(
    new_zookeeper_broker: StartZooKeeperBroker, topic: str, site: ArchiveSite
) -> None:
    """With the oldest brokers that are supported, too: those before asked for it."""
    broker = new_zookeeper_broker(
        **{
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
    )
    create_topic(broker.bootstrap, topic)
    produce_values(broker.bootstrap, topic, [b"one", b"two"])
    site.back_up(broker.bootstrap, topic)
    anybody = ("User:ANONYMOUS", "*")
    of_cluster = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, *anybody)
    of_topics = (ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, *anybody)
    rules = [
        AclBinding(*of_cluster, AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(*of_cluster, AclOperation.IDEMPOTENT_WRITE, AclPermissionType.DENY),
        AclBinding(*of_topics, AclOperation.ALL, AclPermissionType.ALLOW),
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.create_acls(rules).values():
        done.result(30)

    def may_be_idempotent() -> bool:
        told = admin.describe_cluster(include_authorized_operations=True).result(30).authorized_operations
        return AclOperation.IDEMPOTENT_WRITE in told

    eventually(lambda: not may_be_idempotent())
    (back,) = site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"]).topics
    assert (back.records, back.errors) == (2, ())
