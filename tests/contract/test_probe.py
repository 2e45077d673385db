"""May an archive lie in this store? What the probe of a writer accepts, refuses, and leaves there."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.segments.listing import list_strangers
from archiver.archive.segments.probe import METADATA, probe_key, probe_problem, probe_store
from archiver.errors import StoreError, StoreTemporaryError
from archiver.store.port import ObjectKind, ObjectStore
from archiver.upkeep.control_check import check_control
from tests.contract.conftest import open_bucket, use_credentials
from tests.support.brokers import Bucket
from tests.support.faulty_s3 import FaultyS3, Quirk
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.s3

LAYOUT = Layout("an/archive")
KEY = probe_key(LAYOUT)


def test_it_accepts_a_store_that_keeps_what_is_there(store: ObjectStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        for probed in [pool.submit(probe_store, Archive(store, LAYOUT)) for _ in range(8)]:
            probed.result()
    assert [item.key for item in store.list("")] == [LAYOUT.readme_key, KEY]
    found = store.get(KEY)
    assert found is not None
    assert probe_problem(LAYOUT, KEY, *found) == ""


def test_what_it_puts_never_changes() -> None:
    """An archive has what an earlier program put, and that must be what a later one compares it with."""
    spelled = json.dumps(METADATA, sort_keys=True).encode()
    assert hashlib.sha256(spelled).hexdigest() == "20d4995cd005c8d8cf01152f80ba21acf242dd910ac233e954abb5cca325bfa2"
    # MinIO counts `x-amz-meta-` too.
    assert 1500 < sum(len("x-amz-meta-" + name + text) for name, text in METADATA.items()) <= 2048
    assert "" in METADATA.values()


def test_it_costs_three_requests_where_it_was_before(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    use_credentials(bucket.s3, monkeypatch)
    with FaultyS3(bucket.s3.endpoint) as proxy:
        store = open_bucket(bucket, endpoint=proxy.endpoint)
        probe_store(Archive(store, LAYOUT))
        proxy.requests.clear()
        probe_store(Archive(store, LAYOUT))
    assert proxy.requests == {"PUT": 1, "GET": 1, "HEAD": 1}


@pytest.mark.parametrize("earlier_probes", [0, 1])
def test_it_refuses_a_store_that_overwrites(earlier_probes: int) -> None:
    store = MemoryStore(overwrites=True)
    for _ in range(earlier_probes):
        store.put_if_absent(KEY, b"earlier", {}, kind=ObjectKind.FACT)
    with pytest.raises(StoreError, match="If-None-Match"):
        probe_store(Archive(store, LAYOUT))


@pytest.mark.parametrize("earlier_probes", [0, 1])
def test_it_refuses_an_s3_that_drops_empty_metadata(moto_bucket: Bucket, earlier_probes: int) -> None:
    for _ in range(earlier_probes):
        probe_store(Archive(open_bucket(moto_bucket), LAYOUT))
    with FaultyS3(moto_bucket.s3.endpoint, Quirk.DROPS_EMPTY_METADATA) as proxy:
        store = open_bucket(moto_bucket, endpoint=proxy.endpoint)
        with pytest.raises(StoreError, match=r"does not give back metadata as it was put \(archiver-topic-id\)"):
            probe_store(Archive(store, LAYOUT))


def test_an_object_that_does_not_stay_is_no_verdict(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "get", lambda _key, _most_bytes: None)
    with pytest.raises(StoreTemporaryError, match="was put, and is not there"):
        probe_store(Archive(store, LAYOUT))


def test_the_readme_is_put_once_and_is_no_stranger(store: ObjectStore) -> None:
    archive = Archive(store, LAYOUT)
    probe_store(archive)
    found = store.get(LAYOUT.readme_key)
    assert found is not None
    assert "archiver ls --url s3://BUCKET/an/archive\n" in found[0].decode("ascii")
    assert list_strangers(archive) == []
    assert check_control(archive) == []
    store.delete([LAYOUT.readme_key])
    store.put_if_absent(LAYOUT.readme_key, b"ours", {}, kind=ObjectKind.FACT)
    probe_store(archive)
    assert store.get(LAYOUT.readme_key) == (b"ours", {})
    store.put_if_absent("an/archive/README.md", b"", {}, kind=ObjectKind.FACT)
    assert list_strangers(archive) == ["an/archive/README.md"]


def test_a_writer_that_may_not_put_the_readme_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()

    def refuse(key: str) -> None:
        raise StoreError(f"{key}: HeadObject was denied")

    monkeypatch.setattr(store, "head", refuse)
    probe_store(Archive(store, LAYOUT))
    assert caplog.messages == [
        "the archive has no readme for people yet, and needs none: an/archive/README.txt: HeadObject was denied"
    ]
