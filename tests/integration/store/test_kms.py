"""An archive that is encrypted with a key of KMS. MinIO's own has no rights of its own: conditions of policies stand in for them."""

import base64
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from archiver.cli.main import main
from tests.support.brokers import Broker, Bucket
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.minio import Minio, minio_or_skip
from tests.support.rights_stage import acting
from tests.support.round_trip import ArchiveSite, archive_site

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

KEY = "archive-key"
_ENCRYPTED = {"StringLike": {"s3:x-amz-server-side-encryption": "aws:kms"}}


@pytest.fixture(scope="module")
def minio_with_key() -> Iterator[Minio]:
    key = base64.b64encode(bytes(32)).decode()
    started = minio_or_skip(environment={"MINIO_KMS_SECRET_KEY": f"{KEY}:{key}"})
    yield started
    started.stop()


@pytest.fixture
def encrypted(minio_with_key: Minio, tmp_path: Path) -> Iterator[ArchiveSite]:
    bucket = Bucket(minio_with_key, f"test-{uuid.uuid4().hex[:12]}")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    with archive_site(bucket, tmp_path) as site:
        yield site


@pytest.fixture
def commands(encrypted: ArchiveSite, broker_41: Broker, topic: str) -> tuple[list[str], list[str]]:
    """A backup, and a restore of what it has archived."""
    create_topic(broker_41.bootstrap, topic)
    produce_values(broker_41.bootstrap, topic, [b"one", b"two"])
    tree = encrypted.config(broker_41.bootstrap, [topic])
    tree["storage"] |= {"sse": "kms", "kms-key-id": KEY}
    config = encrypted.folder / "archive.yaml"
    config.write_text(yaml.safe_dump(tree))
    target = encrypted.write_target(broker_41.bootstrap)
    restore = ["restore", "-c", str(config), "--target", str(target), "--rename", f"{topic}={topic}.back"]
    return ["backup", "--until-end", "-c", str(config)], restore


def not_encrypted(bucket: Bucket) -> list[str]:
    client = s3_client(bucket)
    heads = {key: client.head_object(Bucket=bucket.name, Key=key) for key in keys_in(bucket)}
    return [key for key, head in heads.items() if not head.get("SSEKMSKeyId", "").endswith(KEY)]


def test_a_backup_and_a_restore_encrypt_all_that_they_put(
    encrypted: ArchiveSite, commands: tuple[list[str], list[str]]
) -> None:
    """So both need kms:GenerateDataKey, and kms:Decrypt for what they read."""
    backup, restore = commands
    assert main(backup) == 0
    before = set(keys_in(encrypted.bucket))
    assert main(restore) == 0
    new = set(keys_in(encrypted.bucket)) - before
    assert {key.split("/")[1] for key in new} == {"restores", "runs"}
    assert any(key.endswith(".avro") for key in new)  # the offset maps
    assert not_encrypted(encrypted.bucket) == []


def test_a_missing_right_to_the_key_is_reported(
    encrypted: ArchiveSite, commands: tuple[list[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = f"arn:aws:s3:::{encrypted.bucket.name}"
    everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": [bucket, f"{bucket}/*"]}
    no_key = {"Effect": "Deny", "Action": ["s3:PutObject"], "Resource": [f"{bucket}/*"], "Condition": _ENCRYPTED}
    backup, restore = commands
    said = "PutObject was denied; grant s3:PutObject on it, and kms:GenerateDataKey on its key (storage.sse) ("
    with acting(encrypted.bucket, [everything, no_key]):
        assert main(backup) == 1
    assert f"/control/probe/000000.json: {said}" in capsys.readouterr().err
    assert keys_in(encrypted.bucket) == []
    assert main(backup) == 0
    before = keys_in(encrypted.bucket)
    with acting(encrypted.bucket, [everything, no_key]):
        assert main(restore) == 1
    assert said in capsys.readouterr().err
    assert keys_in(encrypted.bucket) == before
