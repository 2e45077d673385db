"""The ways in which AWS's own tools find credentials, region and endpoint: a store finds them as boto3's session does."""

import json
import shlex
import sys
from pathlib import Path

import boto3
import pytest

from archiver.config.model import StorageConfig
from archiver.errors import StoreError, UsageError
from archiver.store.port import ObjectKind
from archiver.store.s3 import S3Store
from tests.contract.conftest import new_bucket
from tests.support.brokers import S3, Bucket

pytestmark = pytest.mark.s3

PROFILE = "archive"


@pytest.fixture
def empty_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment, and no machine that gives credentials: only what a test writes is found."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_PROFILE", PROFILE)


def keys_of(s3: S3) -> dict[str, str]:
    return {"aws_access_key_id": s3.access_key, "aws_secret_access_key": s3.secret_key}


def by_keys(s3: S3, _: Path) -> dict[str, str]:
    return keys_of(s3)


def by_process(s3: S3, folder: Path) -> dict[str, str]:
    """`credential_process` prints them as JSON."""
    answer = folder / "credentials.json"
    answer.write_text(json.dumps({"Version": 1, "AccessKeyId": s3.access_key, "SecretAccessKey": s3.secret_key}))
    code = "import sys; print(open(sys.argv[1]).read())"
    return {"credential_process": shlex.join([sys.executable, "-c", code, str(answer)])}


def by_web_identity(_: S3, folder: Path) -> dict[str, str]:
    """A token in a file, as Kubernetes mounts it, for which STS gives credentials."""
    (folder / "token").write_text("header.claims.signature")
    return {"role_arn": "arn:aws:iam::123456789012:role/archive", "web_identity_token_file": str(folder / "token")}


WAYS = {"keys": by_keys, "process": by_process, "web identity": by_web_identity}


# MinIO checks who signed a request, but has no STS without a provider of tokens; moto has one, and checks nothing.
@pytest.mark.parametrize(
    ("s3_name", "way"), [("minio", "keys"), ("minio", "process"), ("moto", "web identity")], ids=str
)
def test_a_profile_is_found_as_boto3_finds_it(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3_name: str, way: str
) -> None:
    s3: S3 = request.getfixturevalue(s3_name)
    bucket: Bucket = new_bucket(s3, monkeypatch)
    request.getfixturevalue("empty_chain")
    settings = {"region": "eu-west-3", "endpoint_url": s3.endpoint, **WAYS[way](s3, tmp_path)}
    lines = [f"[profile {PROFILE}]", *(f"{name} = {text}" for name, text in settings.items())]
    (tmp_path / "config").write_text("\n".join(lines))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    store = S3Store(StorageConfig(url=bucket.url))
    assert store.put_if_absent("k", b"body", {}, kind=ObjectKind.FACT)
    assert store.put_if_absent("s", b"body", {}, kind=ObjectKind.SEGMENT)
    assert store.get("k") == (b"body", {})
    theirs = boto3.session.Session()
    credentials = theirs.get_credentials()
    assert credentials is not None
    assert store._clients.has_session_token == bool(credentials.token) == (way == "web identity")
    for client in (store._clients.patient, store._clients.once):
        assert (client.meta.region_name, client.meta.endpoint_url) == (theirs.region_name, s3.endpoint)


def test_a_configured_profile_comes_before_credentials_of_the_environment(
    request: pytest.FixtureRequest, minio: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that one process uses two stores with different credentials."""
    bucket = new_bucket(minio, monkeypatch)
    request.getfixturevalue("empty_chain")
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-another-store")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    lines = [f"[{PROFILE}]", *(f"{name} = {text}" for name, text in keys_of(minio).items())]
    (tmp_path / "credentials").write_text("\n".join(lines))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    store = S3Store(StorageConfig(url=bucket.url, endpoint=minio.endpoint, profile=PROFILE))
    assert store.put_if_absent("key", b"content", {}, kind=ObjectKind.FACT)
    with pytest.raises(StoreError, match="credentials were refused"):
        S3Store(StorageConfig(url=bucket.url, endpoint=minio.endpoint)).get("key")
    with pytest.raises(UsageError, match=r"storage: .*another.* could not be found"):
        S3Store(StorageConfig(url=bucket.url, endpoint=minio.endpoint, profile="another"))
