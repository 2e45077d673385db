"""What each command may and may not do in S3, held against the policies of a real store: docs/operations.md, Rights."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from archiver.config import ArchiverConfig
from archiver.errors import ArchiverError, StoreError
from archiver.job import run_backup
from archiver.spark.stores import _open_once
from archiver.verify import Level
from tests.support.brokers import Broker, Bucket
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.kafka_topics import create_topic, produce_values, with_client
from tests.support.round_trip import ArchiveSite
from tests.support.target_topics import configs_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

READING = ("s3:ListBucket", "s3:GetObject")
WRITING = (*READING, "s3:PutObject")
Statement = dict[str, Any]


def allow(bucket: Bucket, *actions: str, below: str = "") -> Statement:
    everything = [f"arn:aws:s3:::{bucket.name}", f"arn:aws:s3:::{bucket.name}/{below}*"]
    return {"Effect": "Allow", "Action": list(actions), "Resource": everything}


@contextmanager
def only(bucket: Bucket, *statements: Statement) -> Iterator[None]:
    """Have this process come to the store as somebody with these rights alone."""
    sts = boto3.client(
        "sts",
        endpoint_url=bucket.s3.endpoint,
        aws_access_key_id=bucket.s3.access_key,
        aws_secret_access_key=bucket.s3.secret_key,
        region_name="us-east-1",
    )
    policy = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    given = sts.assume_role(RoleArn="arn:any:of:any:role:any", RoleSessionName="test", Policy=policy)["Credentials"]
    sts.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", given["AccessKeyId"])
        patch.setenv("AWS_SECRET_ACCESS_KEY", given["SecretAccessKey"])
        patch.setenv("AWS_SESSION_TOKEN", given["SessionToken"])
        _open_once.cache_clear()  # what the one before had opened
        yield


@pytest.fixture
def filled(broker_41: Broker, topic: str) -> str:
    create_topic(broker_41.bootstrap, topic)
    produce_values(broker_41.bootstrap, topic, [b"one", b"two"])
    return topic


def said_by(run: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as caught:
        run()
    return str(caught.value)


def test_the_rights_that_are_written_down_are_enough(broker_41: Broker, filled: str, site: ArchiveSite) -> None:
    with only(site.bucket, allow(site.bucket, *WRITING)):
        (report,) = site.back_up(broker_41.bootstrap, filled).values()
    assert (report.error, report.position) == (None, 2)
    with only(site.bucket, allow(site.bucket, *READING)):
        assert site.verify(broker_41.bootstrap, [filled], Level.RECORDS).is_whole
    restoring = allow(site.bucket, "s3:PutObject", below="control/restores/")
    with only(site.bucket, allow(site.bucket, *READING), restoring):
        (back,) = site.restore(broker_41.bootstrap, rename=[f"{filled}={filled}.back"]).topics
    assert (back.records, back.errors) == (2, ())


@pytest.mark.parametrize("is_there", [False, True])
def test_a_restore_that_may_not_note_anything_changes_nothing(
    broker_41: Broker, filled: str, site: ArchiveSite, *, is_there: bool
) -> None:
    site.back_up(broker_41.bootstrap, filled)
    if is_there:
        create_topic(broker_41.bootstrap, f"{filled}.back", 1, {"segment.ms": "5000"})
    with only(site.bucket, allow(site.bucket, *READING)):
        said = said_by(lambda: site.restore(broker_41.bootstrap, rename=[f"{filled}={filled}.back"]))
    assert "grant s3:PutObject" in said
    if is_there:
        assert configs_of(broker_41, f"{filled}.back") == {"segment.ms": "5000"}
    else:
        assert with_client(broker_41.bootstrap, lambda client: client.describe_topics([f"{filled}.back"])) == {}


@pytest.mark.parametrize("missing", WRITING)
def test_a_backup_names_the_right_that_it_lacks(
    broker_41: Broker, filled: str, site: ArchiveSite, missing: str
) -> None:
    left = [right for right in WRITING if right != missing]
    with only(site.bucket, allow(site.bucket, *left)):
        said = said_by(lambda: site.back_up(broker_41.bootstrap, filled))
    assert "was denied; grant " in said
    assert missing in said


@pytest.mark.parametrize("missing", READING)
def test_a_reader_names_the_right_that_it_lacks(
    broker_41: Broker, filled: str, site: ArchiveSite, missing: str
) -> None:
    site.back_up(broker_41.bootstrap, filled)
    left = [right for right in READING if right != missing]
    with only(site.bucket, allow(site.bucket, *left)):
        said = said_by(lambda: site.verify(broker_41.bootstrap, [filled]))
    assert missing in said


def test_a_restore_names_the_right_that_it_lacks(broker_41: Broker, filled: str, site: ArchiveSite) -> None:
    site.back_up(broker_41.bootstrap, filled)
    with only(site.bucket, allow(site.bucket, *READING)):
        try:
            found = site.restore(broker_41.bootstrap, rename=[f"{filled}={filled}.back"])
        except ArchiverError as error:
            said = str(error)
        else:
            said = "".join(partition.error for topic in found.topics for partition in topic.errors)
    assert "control/restores/" in said
    assert "PutObject was denied; grant s3:PutObject on it" in said


def test_tags_take_a_right_of_their_own(broker_41: Broker, filled: str, site: ArchiveSite) -> None:
    """AWS asks for s3:PutObjectTagging with a put that has tags. MinIO does not: a condition of its policy stands in for that."""
    tree = site.config(broker_41.bootstrap, [filled])
    tree["storage"]["tags"] = {"team": "shop"}
    config = ArchiverConfig.model_validate(tree)
    untagged = {**allow(site.bucket, "s3:PutObject"), "Effect": "Deny"}
    untagged["Condition"] = {"StringLike": {"s3:RequestObjectTag/team": "*"}}
    with only(site.bucket, allow(site.bucket, *WRITING), untagged):
        report, _ = run_backup(config, lambda _: None)
    (error,) = (str(one.error) for one in report.partitions)
    assert f"topics/{filled}/" in error
    assert "PutObject was denied; grant s3:PutObject, s3:PutObjectTagging (storage.tags) on it" in error
    with only(site.bucket, allow(site.bucket, *WRITING, "s3:PutObjectTagging")):
        report, _ = run_backup(config, lambda _: None)
    assert [one.error for one in report.partitions] == [None]
    (key,) = keys_in(site.bucket, "topics/")
    client = s3_client(site.bucket)
    assert client.get_object_tagging(Bucket=site.bucket.name, Key=key)["TagSet"] == [{"Key": "team", "Value": "shop"}]
