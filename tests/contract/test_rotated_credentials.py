"""Credentials that are replaced while a store is open: read again when the old ones are refused, and only then."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archiver.archive.format.layout import Layout, SegmentKey
from archiver.config.model import StorageConfig
from archiver.errors import StoreError
from archiver.store.port import ObjectKind, ObjectStore, ReadBuffer
from archiver.store.s3 import S3Store
from tests.support.brokers import S3, Bucket
from tests.support.faulty_s3 import EXPIRED_TOKEN, UNKNOWN_KEY, Fault, FaultyS3, Refusal
from tests.support.rotated_credentials import Rotated

pytestmark = pytest.mark.s3

SEGMENT = Layout().segment_key(SegmentKey(topic="t", partition=0, base=0))
OPERATIONS: dict[str, Callable[[ObjectStore], object]] = {
    "put of a segment": lambda store: store.put_if_absent(SEGMENT, b"body", {}, kind=ObjectKind.SEGMENT),
    "put": lambda store: store.put_if_absent("new", b"body", {}, kind=ObjectKind.FACT),
    "get": lambda store: store.get("k"),
    "get_into": lambda store: store.get_into(ReadBuffer(), "k"),
    "get_range": lambda store: store.get_range("k", 0, 1),
    "head": lambda store: store.head("k"),  # of which a refusal tells no code
    "list": lambda store: list(store.list("")),
    "list_directories": lambda store: list(store.list_directories("")) == [],
    "delete": lambda store: [store.delete(["another"])],  # type: ignore[func-returns-value]
}


@pytest.fixture
def proxy(minio: S3) -> Iterator[FaultyS3]:
    with FaultyS3(minio.endpoint) as proxy:
        yield proxy


@pytest.fixture
def rotated(minio: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rotated:
    rotated = Rotated(minio, tmp_path / "credentials")
    for name, text in rotated.environment.items():
        monkeypatch.setenv(name, text)
    return rotated


@pytest.fixture
def store(bucket: Bucket, proxy: FaultyS3, rotated: Rotated) -> S3Store:  # noqa: ARG001 - by the environment
    """Opened, and used, with the first credentials."""
    store = S3Store(StorageConfig(url=bucket.url, endpoint=proxy.endpoint), attempts=1)
    assert store.put_if_absent("k", b"body", {}, kind=ObjectKind.FACT)
    return store


@pytest.mark.parametrize("refusal", [EXPIRED_TOKEN, UNKNOWN_KEY], ids=lambda one: one.code)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_goes_on_with_the_new_ones(
    store: S3Store, proxy: FaultyS3, rotated: Rotated, operation: str, refusal: Refusal
) -> None:
    proxy.refused_keys[rotated.rotate()] = refusal
    assert OPERATIONS[operation](store)


def test_many_threads_go_on_with_the_new_ones(store: S3Store, proxy: FaultyS3, rotated: Rotated) -> None:
    for _ in range(3):
        proxy.refused_keys[rotated.rotate()] = EXPIRED_TOKEN
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda _: store.head("k"), range(64)))


@pytest.mark.parametrize("operation", ["put", "get", "list"])
def test_the_same_ones_are_not_tried_again(store: S3Store, proxy: FaultyS3, rotated: Rotated, operation: str) -> None:
    proxy.refused_keys[rotated.access_key] = EXPIRED_TOKEN
    proxy.requests.clear()
    with pytest.raises(StoreError, match="ExpiredToken"):
        OPERATIONS[operation](store)
    assert sum(proxy.requests.values()) == 1
    rotated.rotate()
    assert OPERATIONS[operation](store)


@pytest.mark.parametrize("content", ["", "[default]\naws_access_key_id = half\n", "[default\n"])
def test_a_file_that_is_just_being_written_is_not_believed(
    store: S3Store, proxy: FaultyS3, rotated: Rotated, content: str
) -> None:
    proxy.refused_keys[rotated.access_key] = EXPIRED_TOKEN
    rotated.path.write_text(content)
    with pytest.raises(StoreError, match="ExpiredToken"):
        store.get("k")
    rotated.rotate()
    assert store.get("k") is not None


def test_a_right_that_is_missing_is_told_once(store: S3Store, proxy: FaultyS3) -> None:
    with proxy.failing(Fault.DENIED, "GET"), pytest.raises(StoreError, match="was denied; grant s3:GetObject"):
        store.get("k")
    assert proxy.requests == {"GET": 1}
