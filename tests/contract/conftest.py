"""Each test of the contract runs on a store in memory, on moto and on MinIO; those of faults on the latter two, through a proxy."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from archiver.config.model import StorageConfig
from archiver.demo.sandbox import EmbeddedS3
from archiver.store.port import ObjectStore
from archiver.store.s3 import S3Store
from tests.support.brokers import S3, Bucket
from tests.support.faulty_s3 import FaultyS3
from tests.support.foreign_reader import open_client
from tests.support.memory_store import MemoryStore

if TYPE_CHECKING:
    pass

READ_TIMEOUT_S = 1.0  # a put here takes a tenth of it
ATTEMPTS = 2  # botocore pauses up to a second before the second


@dataclass(frozen=True, slots=True)
class FaultyStore:
    """A store whose requests go through a proxy that can fail them, and the same store without it."""

    bucket: Bucket
    proxy: FaultyS3
    store: ObjectStore
    direct: ObjectStore
    impatient: ObjectStore  # through the proxy, and never repeats a request


@pytest.fixture(scope="session")
def moto() -> Iterator[S3]:
    with EmbeddedS3("first") as server:
        yield server


@pytest.fixture(scope="session", params=["moto", "minio"])
def s3(request: pytest.FixtureRequest) -> S3:
    found: S3 = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def moto_bucket(moto: S3, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """For what MinIO refuses or checks: encryption without a key server, changed requests."""
    return new_bucket(moto, monkeypatch)


def new_bucket(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket, and its credentials where boto3 looks for them."""
    use_credentials(s3, monkeypatch)
    bucket = Bucket(s3, f"test-{uuid.uuid4().hex[:12]}")
    open_client(s3).create_bucket(Bucket=bucket.name)
    return bucket


def use_credentials(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def open_bucket(bucket: Bucket, *, endpoint: str = "", attempts: int = ATTEMPTS) -> S3Store:
    config = StorageConfig(url=bucket.url, endpoint=endpoint or bucket.s3.endpoint)
    return S3Store(config, attempts=attempts, read_timeout_s=READ_TIMEOUT_S if endpoint else 60)


@pytest.fixture(params=["memory", "moto", "minio"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    return open_bucket(new_bucket(request.getfixturevalue(request.param), monkeypatch))


@pytest.fixture(scope="session")
def session_faulty(s3: S3) -> Iterator[FaultyStore]:
    """Shared: a client of boto3 takes a quarter of a second to make."""
    with FaultyS3(s3.endpoint) as proxy:
        with pytest.MonkeyPatch.context() as monkeypatch:
            bucket = new_bucket(s3, monkeypatch)
            shared = FaultyStore(
                bucket=bucket,
                proxy=proxy,
                store=open_bucket(bucket, endpoint=proxy.endpoint),
                direct=open_bucket(bucket),
                impatient=open_bucket(bucket, endpoint=proxy.endpoint, attempts=1),
            )
        yield shared


@pytest.fixture
def faulty(session_faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    """The bucket is empty."""
    session_faulty.direct.delete([item.key for item in session_faulty.direct.list("")])
    use_credentials(session_faulty.bucket.s3, monkeypatch)
    return session_faulty
