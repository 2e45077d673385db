"""What S3Store makes of refusals, throttling, timeouts, cut connections and lost answers."""

import hashlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from archiver.archive.format.layout import Layout, SegmentKey
from archiver.config.model import Sse, StorageConfig
from archiver.errors import StoreError, StoreTemporaryError
from archiver.process.running.silence import steady_s
from archiver.store.patient import PatientStore
from archiver.store.port import ObjectKind, ObjectStore, ReadBuffer
from archiver.store.s3 import S3Store
from tests.contract.conftest import ATTEMPTS, FaultyStore, open_bucket
from tests.support.brokers import Bucket
from tests.support.faulty_s3 import KEY_OF_KMS, Fault
from tests.support.kafka_broker import free_ports

pytestmark = pytest.mark.s3

BODY = bytes(range(256)) * 2048  # more than the buffers of both sockets would take, were it not read
SHA256 = {"archiver-sha256": hashlib.sha256(BODY).hexdigest()}

OPERATIONS: dict[str, tuple[str, str, Callable[[ObjectStore], object]]] = {
    "put": ("PUT", "s3:PutObject on it", lambda store: store.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT)),
    "get": ("GET", "s3:GetObject on it", lambda store: store.get("k")),
    "get_into": ("GET", "s3:GetObject on it", lambda store: store.get_into(ReadBuffer(), "k")),
    "head": ("HEAD", "s3:GetObject on it, and s3:ListBucket on bucket BUCKET", lambda store: store.head("k")),
    "list": ("GET", "s3:ListBucket on bucket BUCKET", lambda store: list(store.list("k"))),
    "list_directories": ("GET", "s3:ListBucket on bucket BUCKET", lambda store: list(store.list_directories("k/"))),
    "delete": ("POST", "s3:DeleteObject on it", lambda store: store.delete(["k"])),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS)


@every_operation
def test_denied_is_final_and_names_the_permission(faulty: FaultyStore, operation: str) -> None:
    method, permission, call = OPERATIONS[operation]
    with faulty.proxy.failing(Fault.DENIED, method), pytest.raises(StoreError) as caught:
        call(faulty.store)
    assert f"grant {permission.replace('BUCKET', faulty.bucket.name)} (" in str(caught.value)
    assert f"s3://{faulty.bucket.name}" in str(caught.value)
    assert faulty.proxy.requests == {method: 1}


def test_what_a_put_brings_with_it_takes_rights_too(faulty: FaultyStore) -> None:
    config = StorageConfig(url=faulty.bucket.url, endpoint=faulty.proxy.endpoint, sse=Sse.KMS, tags={"team": "shop"})
    store = S3Store(config, attempts=1)
    segment = Layout().segment_key(SegmentKey(topic="orders", partition=0, base=0))
    keys = re.escape(" on it, and kms:GenerateDataKey on its key (storage.sse) (")
    with faulty.proxy.failing(Fault.DENIED, "PUT"):
        with pytest.raises(StoreError, match=f"grant s3:PutObject{keys}"):
            store.put_if_absent("control/fact", b"", {}, kind=ObjectKind.FACT)
        with pytest.raises(StoreError, match=rf"grant s3:PutObject, s3:PutObjectTagging \(storage.tags\){keys}"):
            store.put_if_absent(segment, b"", {}, kind=ObjectKind.SEGMENT)
    with (
        faulty.proxy.failing(Fault.DENIED, "GET"),
        pytest.raises(
            StoreError, match=re.escape("grant s3:GetObject on it, and kms:Decrypt on its key (storage.sse) (")
        ),
    ):
        store.get("control/fact")


def test_a_right_that_the_store_names_itself_is_the_one_to_grant(faulty: FaultyStore) -> None:
    """Of the key, a reader knows nothing, nor that there is one."""
    with faulty.proxy.failing(Fault.DENIED_KEY, "GET"), pytest.raises(StoreError) as caught:
        faulty.store.get("k")
    assert f"GetObject was denied; grant kms:Decrypt on {KEY_OF_KMS} (the store answered" in str(caught.value)


def test_a_key_that_may_not_be_deleted_is_an_error(faulty: FaultyStore) -> None:
    with (
        faulty.proxy.failing(Fault.DENIED_BY_KEY, "POST"),
        pytest.raises(StoreError, match=r"some/key.*s3:DeleteObject"),
    ):
        faulty.store.delete(["some/key"])


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.INTERNAL_ERROR, Fault.HANG, Fault.REFUSE])
@every_operation
def test_what_may_pass_is_temporary(faulty: FaultyStore, operation: str, fault: Fault) -> None:
    method, _, call = OPERATIONS[operation]
    with faulty.proxy.failing(fault, method), pytest.raises(StoreTemporaryError, match=r"s3://test-"):
        call(faulty.impatient)
    assert faulty.direct.head("k") is None


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.INTERNAL_ERROR, Fault.HANG, Fault.REFUSE, Fault.CUT_UPLOAD])
def test_what_passes_is_repeated_with_the_whole_body(faulty: FaultyStore, fault: Fault) -> None:
    with faulty.proxy.failing(fault, "PUT", times=ATTEMPTS - 1):
        assert faulty.store.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT) is not None
    assert faulty.direct.get("k") == (BODY, SHA256)


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.HANG, Fault.REFUSE, Fault.LOSE_ANSWER])
def test_a_delete_is_never_repeated(faulty: FaultyStore, fault: Fault) -> None:
    """The same keys may be held by then, or have been put again. Whoever deletes must look first."""
    with faulty.proxy.failing(fault, "POST"), pytest.raises(StoreTemporaryError):
        PatientStore(faulty.store).delete(["k"])
    assert faulty.proxy.requests == {"POST": 1}


def test_a_delete_whose_time_is_over_is_not_sent(faulty: FaultyStore) -> None:
    """However long it took to connect: the store gets no whole request."""
    faulty.direct.put_if_absent("k", BODY, {}, kind=ObjectKind.FACT)
    with pytest.raises(StoreTemporaryError, match="was not sent"):
        faulty.store.delete_each(["k"], send_by_s=steady_s() - 0.001)
    assert faulty.direct.head("k") is not None
    assert faulty.store.delete_each(["k"], send_by_s=steady_s() + 60) == {}
    assert faulty.direct.head("k") is None


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.HANG, Fault.CONFLICT])
@pytest.mark.parametrize("key", [Layout().segment_key(SegmentKey(topic="t", partition=0, base=0)), "compacted/t/copy"])
def test_a_segment_is_put_once_and_its_writer_repeats_it(faulty: FaultyStore, fault: Fault, key: str) -> None:
    """A thread that waits here for better times is one that no other partition has."""
    with faulty.proxy.failing(fault, "PUT", times=1), pytest.raises(StoreTemporaryError):
        faulty.store.put_if_absent(key, BODY, SHA256, kind=ObjectKind.SEGMENT)
    assert faulty.store.put_if_absent(key, BODY, SHA256, kind=ObjectKind.SEGMENT) is not None


def test_a_listing_that_breaks_off_is_an_error(faulty: FaultyStore) -> None:
    """What came before it is no answer: whoever deletes by a listing deletes nothing then."""
    keys = [f"p/{number:04}" for number in range(1001)]
    with ThreadPoolExecutor(8) as pool:
        # Which may be told "it is there already": a busy store's answer comes too late, and the put is repeated.
        list(pool.map(lambda key: faulty.store.put_if_absent(key, b"", {}, kind=ObjectKind.FACT), keys))
    with (
        faulty.proxy.failing(Fault.DENIED, "GET", naming="continuation-token="),
        pytest.raises(StoreError, match="s3:ListBucket"),
    ):
        list(faulty.store.list("p/"))
    assert [item.key for item in faulty.store.list("p/")] == keys


def test_an_upload_that_was_cut_leaves_nothing(faulty: FaultyStore) -> None:
    with faulty.proxy.failing(Fault.CUT_UPLOAD, "PUT"), pytest.raises(StoreTemporaryError):
        faulty.store.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT)
    assert faulty.direct.head("k") is None
    assert list(faulty.direct.list("")) == []
    assert faulty.store.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT) is not None


def test_a_lost_answer_is_settled_by_the_same_put(faulty: FaultyStore) -> None:
    with faulty.proxy.failing(Fault.LOSE_ANSWER, "PUT"), pytest.raises(StoreTemporaryError):
        faulty.impatient.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT)
    assert faulty.store.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT) is None
    info = faulty.store.head("k")
    assert info is not None
    assert info.metadata == SHA256
    assert faulty.store.get("k") == (BODY, SHA256)


def test_a_lost_answer_inside_the_client_looks_like_another_writer(faulty: FaultyStore) -> None:
    with faulty.proxy.failing(Fault.LOSE_ANSWER, "PUT", times=1):
        assert faulty.store.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT) is None
    info = faulty.direct.head("k")
    assert info is not None
    assert info.metadata == SHA256


def test_a_body_that_ends_early_is_never_returned(faulty: FaultyStore) -> None:
    faulty.direct.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT)
    with faulty.proxy.failing(Fault.CUT_DOWNLOAD, "GET"), pytest.raises(StoreTemporaryError):
        faulty.store.get("k")
    with faulty.proxy.failing(Fault.CUT_DOWNLOAD, "GET"), pytest.raises(StoreTemporaryError):
        faulty.store.get_into(ReadBuffer(), "k")


def test_a_conflict_is_repeated(faulty: FaultyStore) -> None:
    with faulty.proxy.failing(Fault.CONFLICT, "PUT", times=2):
        assert faulty.store.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT) is not None
    assert faulty.direct.get("k") == (BODY, SHA256)


def test_conflicts_without_end_are_temporary(faulty: FaultyStore) -> None:
    with faulty.proxy.failing(Fault.CONFLICT, "PUT"), pytest.raises(StoreTemporaryError, match="409"):
        faulty.store.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT)


@every_operation
def test_no_server_is_temporary(faulty: FaultyStore, operation: str) -> None:
    nobody = open_bucket(faulty.bucket, endpoint=f"http://127.0.0.1:{free_ports(1)[0]}", attempts=1)
    with pytest.raises(StoreTemporaryError):
        OPERATIONS[operation][2](nobody)


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "head"])
def test_a_missing_bucket_is_named(faulty: FaultyStore, operation: str) -> None:
    nowhere = open_bucket(Bucket(faulty.bucket.s3, "not-there"))
    with pytest.raises(StoreError, match=r"bucket not-there does not exist; create it"):
        OPERATIONS[operation][2](nowhere)


@every_operation
def test_no_credentials_is_final(faulty: FaultyStore, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(StoreError, match="no credentials; set AWS_ACCESS_KEY_ID"):
        OPERATIONS[operation][2](open_bucket(faulty.bucket))


def test_wrong_credentials_are_not_a_missing_permission(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-wrong-wrong")
    store = S3Store(StorageConfig(url=bucket.url, endpoint=bucket.s3.endpoint))
    with pytest.raises(StoreError, match="the credentials were refused; correct them"):
        store.put_if_absent("k", BODY, SHA256, kind=ObjectKind.FACT)


def test_a_call_that_cannot_be_right_is_not_temporary(faulty: FaultyStore) -> None:
    with pytest.raises(StoreError):
        open_bucket(faulty.bucket).put_if_absent("k", BODY, {"name": "not ascii: é"}, kind=ObjectKind.FACT)


def test_a_server_without_tls_is_not_temporary(faulty: FaultyStore) -> None:
    endpoint = faulty.bucket.s3.endpoint.replace("http:", "https:")
    with pytest.raises(StoreError, match=r"no TLS with the store at https.*wrong version number"):
        open_bucket(faulty.bucket, endpoint=endpoint, attempts=1).head("k")
