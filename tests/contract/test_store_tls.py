"""S3 over TLS, with a certificate that only a private authority vouches for."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, StoreError
from archiver.store.port import ObjectKind
from archiver.store.s3 import S3Store
from tests.support.minio import Minio, minio_or_skip
from tests.support.secure_broker import Certificates

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates.make(tmp_path_factory.mktemp("certificates"))
    (made.folder / "public.crt").write_bytes(made.chain("broker").read_bytes())
    (made.folder / "private.key").write_bytes(made.key("broker").read_bytes())
    return made


def client_of(minio: Minio, certificates: Certificates) -> "S3Client":
    return boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        aws_access_key_id=minio.access_key,
        aws_secret_access_key=minio.secret_key,
        region_name="us-east-1",
        verify=str(certificates.ca),
    )


@pytest.fixture(scope="module")
def tls(certificates: Certificates) -> Iterator[Minio]:
    minio = minio_or_skip(certificates=certificates.folder)
    try:
        client_of(minio, certificates).create_bucket(Bucket="private")
        yield minio
    finally:
        minio.stop()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", Minio.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", Minio.secret_key)


def store_at(endpoint: str, ca_file: Path | None) -> S3Store:
    return S3Store(StorageConfig(url="s3://private", endpoint=endpoint, ca_file=ca_file), attempts=1, read_timeout_s=5)


def test_a_private_authority_is_believed_where_it_is_named(tls: Minio, certificates: Certificates) -> None:
    store = store_at(tls.endpoint, certificates.ca)
    assert store.put_if_absent("k", b"content", {}, kind=ObjectKind.FACT)
    assert store.get("k") == (b"content", {})
    found = client_of(tls, certificates).head_object(Bucket="private", Key="k", ChecksumMode="ENABLED")
    assert found["ChecksumSHA256"] == base64.b64encode(hashlib.sha256(b"content").digest()).decode()


@pytest.mark.parametrize("authority", ["the system's", "a stranger's"])
def test_another_one_is_not(tls: Minio, certificates: Certificates, authority: str) -> None:
    ca_file = certificates.stranger if authority == "a stranger's" else None
    with pytest.raises(StoreError, match=r"certificate verify failed.*storage\.ca-file") as caught:
        store_at(tls.endpoint, ca_file).head("k")
    assert tls.endpoint in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_other_scheme_is_told(tls: Minio, minio: Minio, certificates: Certificates, scheme: str) -> None:
    endpoint = (tls if scheme == "http" else minio).endpoint
    wrong = f"{scheme}://{endpoint.partition('://')[2]}"
    with pytest.raises(ArchiverError) as caught:
        store_at(wrong, certificates.ca if scheme == "https" else None).put_if_absent(
            "k", b"", {}, kind=ObjectKind.FACT
        )
    assert "HTTPS" in str(caught.value) or "storage.endpoint" in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no such file"):
        StorageConfig(url="s3://private", ca_file=tmp_path / "ca.pem")
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ValueError, match="no certificates in PEM"):
        StorageConfig(url="s3://private", ca_file=tmp_path / "ca.pem")
