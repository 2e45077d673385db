"""The index of facts on a real S3: what is asked of the store with it, and without, and when it is wrong."""

import signal
from pathlib import Path

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.index_generations import read_index
from archiver.archive.index.inventory import read_inventory
from archiver.archive.segments.listing import list_segments
from archiver.config.model import StorageConfig
from archiver.store.s3 import S3Store
from tests.support.brokers import Broker, Bucket, GivenS3
from tests.support.faulty_s3 import FaultyS3
from tests.support.kafka_topics import create_topic
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, archive_site, errors_of

pytestmark = pytest.mark.s3


# --- who writes it


def send(broker: Broker, topic: str, batches: int) -> None:
    rows = [Rec(at, NOW_MS, 0, b"k", b"value %d" % at) for at in range(10)]
    produce_raw(broker.bootstrap, topic, [encode(batch_of(rows))] * batches, 0)


def unknown_to_index(site: ArchiveSite) -> tuple[int, int]:
    """How many segments there are, and how many of them the index does not know as they are."""
    store = S3Store(StorageConfig(url=site.bucket.url, endpoint=site.bucket.s3.endpoint))
    listing = list_segments(Archive(store, Layout()))
    index = read_index(Archive(store, Layout()))
    inventory = read_inventory(Archive(store, Layout()))
    truth = {one.object_key: one.facts for parts in inventory.partitions.values() for one in parts[0].segments}
    unknown = 0
    for (topic, life, _), listed in listing.partitions.items():
        known = index.of((topic, life))
        for one, row in zip(listed, known.find(listed).tolist(), strict=True):
            unknown += row < 0
            assert row < 0 or known.entries.facts(row) == truth[one.item.key]
    return len(listing.segments), unknown


# --- what a backup that was killed has put


def notes_of(site: ArchiveSite, *options: str) -> str:
    """What `verify` says beside its result: notes, and what it logs."""
    done = site.run("verify", *options)
    assert done.returncode == 0
    return "".join(line for line in (done.stdout + done.stderr).splitlines(keepends=True) if "control/index/" in line)


@pytest.mark.kafka
@pytest.mark.parametrize("puts_more", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_next_backup_brings_in_what_a_killed_one_has_put(
    broker_41: Broker, topic: str, site: ArchiveSite, puts_more: bool
) -> None:
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    site.write_config(broker_41.bootstrap, topic, records=10)
    send(broker_41, topic, 3)
    assert site.run("backup", "--until-end").returncode == 0
    send(broker_41, topic, 15)
    killed = site.command("backup", "--until-end", ARCHIVER_FAILPOINT="segment.put:15")
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert unknown_to_index(site) == (18, 15)
    assert notes_of(site) == ""
    if puts_more:
        send(broker_41, topic, 2)
    assert site.run("backup", "--until-end").returncode == 0
    assert unknown_to_index(site) == (20, 0) if puts_more else (18, 0)
    assert notes_of(site) == ""


@pytest.mark.kafka
def test_a_backup_asks_for_nothing_that_the_index_knows(
    broker_41: Broker, topic: str, bucket: Bucket, tmp_path: Path
) -> None:
    """It reads the index once, and lists no partition for it."""
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    with FaultyS3(bucket.s3.endpoint) as proxy:
        s3 = GivenS3(proxy.endpoint, bucket.s3.access_key, bucket.s3.secret_key)
        with archive_site(Bucket(s3, bucket.name), tmp_path) as site:
            counts = []
            for _ in range(4):
                send(broker_41, topic, 3)
                proxy.requests.clear()
                assert errors_of(site.back_up(broker_41.bootstrap, topic, records=10)) == {}
                counts.append(dict(proxy.requests))
    assert counts[-1]["HEAD"] == counts[-2]["HEAD"]
    assert counts[-1]["GET"] == counts[-2]["GET"] + 1  # there is one file more
