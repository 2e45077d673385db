"""What every ObjectStore does. Faults of the wire and refusals: test_store_faults.py."""

import base64
import contextlib
import hashlib
import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import pytest

from archiver.archive.format.handle import open_archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.segments.segment_facts import Hole, HoleCause, SegmentFacts, facts_from_metadata
from archiver.archive.segments.segment_writer import MOST_HOLES
from archiver.config.model import Sse, StorageConfig
from archiver.errors import CorruptSegmentError, StoreTemporaryError
from archiver.store.port import ObjectKind, ObjectStore, ReadBuffer
from archiver.store.s3 import S3Store
from tests.contract.conftest import new_bucket, open_bucket, use_credentials
from tests.support.brokers import S3, Bucket
from tests.support.faulty_s3 import Fault, FaultyS3, Quirk
from tests.support.foreign_reader import open_client

pytestmark = pytest.mark.s3

LAYOUT = Layout("an/archive")
KEY = LAYOUT.segment_key(SegmentKey(topic="a.topic_x-1", life=7, partition=12, base=5, next=99))
MORE_THAN_A_PAGE = 1001
CONTENT = bytes(range(256)) * 8192  # two of the pieces that a body is hashed in


def largest_facts() -> SegmentFacts:
    """As long as facts get: 2 KB with their names is what S3 takes."""
    holes = tuple(
        Hole(first_offset=2**62 + 10 * n, last_offset=2**62 + 10 * n + 3, cause=HoleCause.EXPIRED)
        for n in range(MOST_HOLES)
    )
    return SegmentFacts(
        writer="111.222.333.dev4444+g0123456",
        cluster_id="c" * 22,
        topic_id="t" * 22,
        leader_epoch=2**31 - 1,
        base=2**62,
        first=2**62 + 1,
        last=2**63 - 3,
        next=2**63 - 1,
        records=2**61,
        tombstones=2**60,
        min_timestamp=-(2**63),
        max_timestamp=2**63 - 1,
        timestamp_types=(-1, 0, 1),
        bytes=2**62,
        largest_record=2**40,
        source_bytes=2**62,
        holes=holes,
        sha256="f" * 64,
        digest=2**61 - 2,
    )


def test_creates_once_and_then_leaves_what_is_there(store: ObjectStore) -> None:
    assert store.put_if_absent(KEY, b"first", {"archiver-a": "1"}, kind=ObjectKind.SEGMENT)
    assert not store.put_if_absent(KEY, b"second, longer", {"archiver-a": "2"}, kind=ObjectKind.SEGMENT)
    assert store.get(KEY) == (b"first", {"archiver-a": "1"})
    info = store.head(KEY)
    assert info is not None
    assert (info.size, dict(info.metadata)) == (5, {"archiver-a": "1"})
    assert info.last_modified.tzinfo is not None


def test_an_etag_stays_for_as_long_as_the_object_does(store: ObjectStore) -> None:
    """An index of facts is believed by it (docs/format.md §9), so one that a listing tells otherwise would be of no use."""

    def told() -> set[str | None]:
        info = store.head(KEY)
        return {None if info is None else info.etag, *(item.etag for item in store.list(KEY))}

    created = store.put_if_absent(KEY, b"first", {}, kind=ObjectKind.SEGMENT)
    assert created
    assert '"' not in created
    assert store.put_if_absent(KEY, b"other", {}, kind=ObjectKind.SEGMENT) is None
    assert told() == {created}
    store.delete([KEY])
    again = store.put_if_absent(KEY, b"other", {}, kind=ObjectKind.SEGMENT)
    assert again != created
    assert told() == {again}


def test_an_empty_body_is_a_body(store: ObjectStore) -> None:
    assert store.put_if_absent(KEY, b"", {}, kind=ObjectKind.SEGMENT)
    assert store.get(KEY) == (b"", {})


def test_objects_are_read_into_the_same_room(store: ObjectStore) -> None:
    """More than one piece, less, none, and more again; and what nobody has."""
    room = ReadBuffer()
    bodies = [os.urandom(size) for size in (700_000, 3, 0, 700_000)]
    for number, body in enumerate(bodies):
        store.put_if_absent(f"{KEY}-{number}", body, {"archiver-n": str(number)}, kind=ObjectKind.FACT)
    for number, body in enumerate(bodies):
        found = store.get_into(room, f"{KEY}-{number}")
        assert found is not None
        assert (bytes(found[0]), found[1]) == (body, {"archiver-n": str(number)})
        assert found[0].readonly
    assert store.get_into(room, f"{KEY}-absent") is None


def test_a_get_reads_at_most_the_given_size(store: ObjectStore) -> None:
    store.put_if_absent("k", CONTENT, {}, kind=ObjectKind.FACT)
    assert store.get("k", len(CONTENT)) == (CONTENT, {})
    with pytest.raises(CorruptSegmentError, match=r"^k: has 2,097,152 bytes, and what is written there never has more"):
        store.get("k", len(CONTENT) - 1)
    assert store.get("k") == (CONTENT, {})


def test_a_stream_is_read_from_its_start_and_stays_open(store: ObjectStore, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "body").write_bytes(content)
    with FileIO(tmp_path / "body") as body:
        body.seek(77)
        assert store.put_if_absent(KEY, body, {}, kind=ObjectKind.SEGMENT)
        assert not body.closed
        assert not store.put_if_absent(KEY, body, {}, kind=ObjectKind.SEGMENT)
    found = store.get(KEY)
    assert found is not None
    assert hashlib.sha256(found[0]).digest() == hashlib.sha256(content).digest()


def test_all_facts_come_back_from_metadata(store: ObjectStore) -> None:
    facts = largest_facts()
    metadata = facts.to_metadata()
    # MinIO counts `x-amz-meta-` too.
    assert 1500 < sum(len("x-amz-meta-" + name + text) for name, text in metadata.items()) <= 2048
    store.put_if_absent(KEY, b"x", metadata, kind=ObjectKind.SEGMENT)
    info, found = store.head(KEY), store.get(KEY)
    assert info is not None
    assert found is not None
    assert info.metadata == found[1] == metadata
    assert facts_from_metadata(info.metadata, KEY) == facts


def test_empty_facts_come_back_from_metadata(store: ObjectStore) -> None:
    """No holes and no topic id are empty strings, which a store may trim or drop."""
    metadata = {"archiver-holes": "", "archiver-topic-id": "", "archiver-base": "0"}
    store.put_if_absent(KEY, b"x", metadata, kind=ObjectKind.SEGMENT)
    info = store.head(KEY)
    assert info is not None
    assert info.metadata == metadata


def test_what_is_missing_is_none(store: ObjectStore) -> None:
    assert store.get(KEY) is None
    assert store.head(KEY) is None
    assert list(store.list("an/archive/")) == []
    assert list(store.list_directories("an/archive/")) == []
    store.delete([KEY])
    store.delete([])


def test_lists_in_order_below_a_prefix(store: ObjectStore) -> None:
    keys = ["p/a-", "p/a.", "p/a/b", "p/a@1/b", "p/aB", "p/b+1=2", "p/é"]
    for key in [*reversed(keys), "o/z", "pa", "q/a"]:
        store.put_if_absent(key, key.encode(), {}, kind=ObjectKind.FACT)
    listed = list(store.list("p/"))
    assert [item.key for item in listed] == sorted(keys, key=str.encode)
    assert [item.size for item in listed] == [len(item.key.encode()) for item in listed]
    assert all(item.last_modified.tzinfo is not None for item in listed)
    assert [item.key for item in store.list("p/a.")] == ["p/a."]
    assert [item.key for item in store.list("p/a")] == [key for key in sorted(keys) if key.startswith("p/a")]


def test_lists_after_a_key(store: ObjectStore) -> None:
    for key in ("p/1", "p/2", "p/3"):
        store.put_if_absent(key, b"", {}, kind=ObjectKind.FACT)
    assert [item.key for item in store.list("p/", start_after="p/1")] == ["p/2", "p/3"]
    assert [item.key for item in store.list("p/", start_after="p/1x")] == ["p/2", "p/3"]
    assert [item.key for item in store.list("p/", start_after="p/3")] == []


def test_lists_directories_once_and_no_objects(store: ObjectStore) -> None:
    for key in ("p/a/1", "p/a/2", "p/a@1/x/y", "p/object", "p/z/", "other/b/1"):
        store.put_if_absent(key, b"", {}, kind=ObjectKind.FACT)
    assert list(store.list_directories("p/")) == ["a", "a@1", "z"]


def test_more_than_a_page_is_listed_and_deleted(store: ObjectStore) -> None:
    keys = [f"p/{number:06}" for number in range(MORE_THAN_A_PAGE)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda key: store.put_if_absent(key, b"", {}, kind=ObjectKind.FACT), keys))
    assert [item.key for item in store.list("p/")] == keys
    store.put_if_absent("p/kept", b"", {}, kind=ObjectKind.FACT)
    store.delete(iter(keys))
    assert [item.key for item in store.list("p/")] == ["p/kept"]


@pytest.mark.parametrize("store", ["memory", "minio"], indirect=True)  # moto looks and puts in two steps
def test_of_writers_at_once_exactly_one_creates(store: ObjectStore) -> None:
    writers = 8
    start = threading.Barrier(writers)

    def write(number: int) -> bool:
        body = bytes([number]) * 100_000
        start.wait()
        return store.put_if_absent(KEY, body, {"archiver-writer": str(number)}, kind=ObjectKind.SEGMENT) is not None

    with ThreadPoolExecutor(writers) as pool:
        created = list(pool.map(write, range(writers)))
    assert created.count(True) == 1
    winner = created.index(True)
    assert store.get(KEY) == (bytes([winner]) * 100_000, {"archiver-writer": str(winner)})


# --- checksums


SEGMENT = Layout().segment_key(SegmentKey(topic="t", partition=0, base=0))


@pytest.mark.parametrize(("key", "kind"), [(SEGMENT, ObjectKind.SEGMENT), ("control/x/000000.json", ObjectKind.FACT)])
def test_a_put_has_the_checksum_that_a_bucket_with_object_lock_asks_for(
    s3: S3, key: str, kind: ObjectKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy refuses a put without one, as AWS does, and one whose checksum is of another body; also when it is repeated."""
    bucket = new_bucket(s3, monkeypatch)
    (tmp_path / "body").write_bytes(CONTENT)
    with FaultyS3(s3.endpoint, Quirk.WANTS_CHECKSUM) as proxy, FileIO(tmp_path / "body") as body:
        store = open_bucket(bucket, endpoint=proxy.endpoint)
        with proxy.failing(Fault.SLOW_DOWN, "PUT", times=1), contextlib.suppress(StoreTemporaryError):
            store.put_if_absent(key, body, {}, kind=kind)
        store.put_if_absent(key, body, {}, kind=kind)
        assert store.get(key) == (CONTENT, {})


def test_a_bucket_with_object_lock_takes_puts_and_keeps_their_checksums(
    minio: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_credentials(minio, monkeypatch)
    bucket = Bucket(minio, f"test-{uuid.uuid4().hex[:12]}")
    client = open_client(minio)
    client.create_bucket(Bucket=bucket.name, ObjectLockEnabledForBucket=True)
    client.put_object_lock_configuration(
        Bucket=bucket.name,
        ObjectLockConfiguration={
            "ObjectLockEnabled": "Enabled",
            "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}},
        },
    )
    (tmp_path / "body").write_bytes(CONTENT)
    with FileIO(tmp_path / "body") as body:
        assert open_bucket(bucket).put_if_absent(KEY, body, {}, kind=ObjectKind.SEGMENT)
    found = client.head_object(Bucket=bucket.name, Key=KEY, ChecksumMode="ENABLED")
    assert found["ObjectLockMode"] == "GOVERNANCE"
    assert found["ChecksumSHA256"] == base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()


# --- options of a put


@pytest.mark.parametrize("key", [KEY, "an/archive/compacted/orders/partition=0/00000000000000000005.avro"])
def test_only_segments_get_a_storage_class_and_tags(moto_bucket: Bucket, key: str) -> None:
    """Wherever they lie: the store is told what it puts."""
    config = StorageConfig(
        url=f"{moto_bucket.url}/an/archive",
        endpoint=moto_bucket.s3.endpoint,
        sse=Sse.S3,
        storage_class="STANDARD_IA",
        tags={"team": "a b=c", "tier": "1"},
    )
    archive = open_archive(config)
    fact_key = archive.layout.fact_key("topics/x", 0)
    archive.store.put_if_absent(key, b"x", {}, kind=ObjectKind.SEGMENT)
    archive.store.put_if_absent(fact_key, b"{}", {}, kind=ObjectKind.FACT)
    client = open_client(moto_bucket.s3)
    segment = client.head_object(Bucket=moto_bucket.name, Key=key)
    fact = client.head_object(Bucket=moto_bucket.name, Key=fact_key)
    tags = client.get_object_tagging(Bucket=moto_bucket.name, Key=key)["TagSet"]
    assert segment["StorageClass"] == "STANDARD_IA"
    assert tags == [{"Key": "team", "Value": "a b=c"}, {"Key": "tier", "Value": "1"}]
    assert segment["ServerSideEncryption"] == fact["ServerSideEncryption"] == "AES256"
    assert archive.store.get(fact_key) is not None
    assert "StorageClass" not in dict(fact)


def test_a_kms_key_is_named(moto_bucket: Bucket) -> None:
    config = StorageConfig(url=moto_bucket.url, endpoint=moto_bucket.s3.endpoint, sse=Sse.KMS, kms_key_id="alias/mine")
    S3Store(config).put_if_absent(KEY, b"x", {}, kind=ObjectKind.SEGMENT)
    client = open_client(moto_bucket.s3)
    found = client.head_object(Bucket=moto_bucket.name, Key=KEY)
    assert (found["ServerSideEncryption"], found["SSEKMSKeyId"]) == ("aws:kms", "alias/mine")


def test_a_range_is_the_bytes_from_one_place_on_and_before_another(store: ObjectStore) -> None:
    content = bytes(range(200))
    store.put_if_absent(KEY, content, {}, kind=ObjectKind.SEGMENT)
    for start, stop in ((0, 1), (0, 200), (17, 100), (199, 200)):
        assert store.get_range(KEY, start, stop) == content[start:stop]
    assert store.get_range("absent", 0, 1) is None
