"""`verify`, on an archive that a backup has made: against its objects, and against what Kafka still has."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.inventory import read_inventory
from archiver.archive.notes.topic_changes import accept_gone
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment import open_segment as read_body
from archiver.archive.segments.segment_facts import facts_from_metadata
from archiver.archive.segments.segment_writer import OpenSegment
from archiver.archive.segments.spool import Spool
from archiver.config.model import ArchiverConfig, StorageConfig
from archiver.errors import UsageError
from archiver.spark.verify import VerifyResult, run_verify
from archiver.store.address import archive_mark
from archiver.store.port import ObjectKind, ObjectStore
from archiver.upkeep.object_check import Level
from tests.support.brokers import Broker, Bucket, GivenS3
from tests.support.faulty_s3 import FaultyS3, Quirk
from tests.support.frames import frame_of, records_of
from tests.support.kafka_topics import create_topic, delete_topic, produce_values
from tests.support.records import Rec
from tests.support.round_trip import ArchiveSite
from tests.support.segments import NO_LIMIT, content_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


def archived(broker: Broker, topic: str, site: ArchiveSite, count: int = 30, each: int = 10) -> None:
    create_topic(broker.bootstrap, topic)
    produce_values(broker.bootstrap, topic, [b"value %d" % number for number in range(count)])
    site.back_up(broker.bootstrap, topic, records=each)


def compared(
    site: ArchiveSite, broker: Broker, topic: str, *include: str
) -> tuple[int | None, Sequence[str], Sequence[str]]:
    found = site.verify(broker.bootstrap, include or [topic], against_kafka=True)
    assert not found.errors
    assert found.is_whole == (not found.problems)
    return found.compared, found.problems, found.notes


def store_of(site: ArchiveSite) -> tuple[ObjectStore, Layout]:
    store, layout = open_archive(StorageConfig(url=site.bucket.url, endpoint=site.bucket.s3.endpoint))
    return store, layout


def object_keys(site: ArchiveSite, topic: str) -> list[str]:
    store, layout = store_of(site)
    found = read_inventory(Archive(store, layout)).partitions[topic, 0][0]
    return [segment.object_key for segment in found.segments]


def rewrite(site: ArchiveSite, key: str, folder: Path, change: Iterable[Rec]) -> None:
    """Put another object in the place of one, in itself without a fault; the index, which remembers the first one, goes."""
    store, layout = store_of(site)
    found = store.get(key)
    parsed = layout.parse_segment(key)
    assert found is not None
    assert parsed is not None
    facts = facts_from_metadata(found[1], key)
    assert facts is not None
    source = PartitionSource(
        topic=parsed.topic, partition=parsed.partition, life=0, topic_id=facts.topic_id, cluster_id=facts.cluster_id
    )
    segment = OpenSegment(source, facts.base, NO_LIMIT, Spool(folder))
    segment.append(frame_of(list(change)), 0)
    segment.cover(facts.next, leader_epoch=facts.leader_epoch, source_bytes=facts.source_bytes)
    finished = segment.finish()
    store.delete([key, *(item.key for item in store.list(layout.index_prefix))])
    assert store.put_if_absent(key, content_of(finished), finished.facts.to_metadata(), kind=ObjectKind.SEGMENT)


def records_in(site: ArchiveSite, key: str) -> list[Rec]:
    found = store_of(site)[0].get(key)
    assert found is not None
    parsed = Layout().parse_segment(key)
    assert parsed is not None
    return records_of(*read_body(*found, key).frames(parsed.topic, 0))


@pytest.mark.parametrize("level", list(Level))
def test_what_a_backup_made_is_whole_at_every_level(
    broker_41: Broker, topic: str, site: ArchiveSite, level: Level
) -> None:
    archived(broker_41, topic, site)
    store, _ = store_of(site)
    for key in ("junk", "topics.bak/a", "topics.bak/b", "zoo"):
        store.put_if_absent(key, b"x", {}, kind=ObjectKind.FACT)
    found = site.verify(broker_41.bootstrap, [topic], level)
    assert found.is_whole
    assert found.notes == [f"{key}: is not one of ours" for key in ("junk", "topics.bak/", "zoo")]
    assert (found.listing.records, found.checked) == (30, 0 if level is Level.LISTING else 3)


def test_an_archive_in_a_store_that_drops_empty_metadata_is_read(
    broker_41: Broker, topic: str, site: ArchiveSite
) -> None:
    """As earlier programs have made them there. Its segments have no hole, and that is an empty value."""
    archived(broker_41, topic, site)
    with FaultyS3(site.bucket.s3.endpoint, Quirk.DROPS_EMPTY_METADATA) as store:
        s3 = GivenS3(store.endpoint, site.bucket.s3.access_key, site.bucket.s3.secret_key)
        behind = ArchiveSite(Bucket(s3, site.bucket.name), site.folder)
        for level in Level:
            found = behind.verify(broker_41.bootstrap, [topic], level, against_kafka=True)
            assert (found.problems, found.listing.records, found.compared) == ([], 30, 30)
        behind.write_config(broker_41.bootstrap, topic)
        printed = behind.run("cat", topic)
        assert (printed.returncode, len(printed.stdout.splitlines())) == (0, 30)


def test_what_kafka_has_is_there_and_what_came_later_is_told(broker: Broker, topic: str, site: ArchiveSite) -> None:
    archived(broker, topic, site)
    assert compared(site, broker, topic) == (30, [], [])
    produce_values(broker.bootstrap, topic, [b"later"] * 7)
    assert compared(site, broker, topic) == (30, [], [f"{topic}-0: 7 offsets are not archived yet"])


def test_a_record_at_another_offset_is_found(broker_41: Broker, topic: str, site: ArchiveSite, tmp_path: Path) -> None:
    """The same records in the same order, as many, with the same first and last offset: one stands where a marker is."""
    create_topic(broker_41.bootstrap, topic)
    producer = Producer({"bootstrap.servers": broker_41.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number in range(2):
        producer.begin_transaction()
        for at in range(5):
            producer.produce(topic, b"%d of %d" % (at, number), partition=0)
        producer.commit_transaction()
    site.back_up(broker_41.bootstrap, topic)
    assert compared(site, broker_41, topic) == (10, [], [])
    (key,) = object_keys(site, topic)
    records = records_in(site, key)
    assert [one.offset for one in records] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    records[4] = replace(records[4], offset=5)
    rewrite(site, key, tmp_path, records)
    assert site.verify(broker_41.bootstrap, [topic], Level.RECORDS).is_whole
    _, problems, _ = compared(site, broker_41, topic)
    assert problems == [
        f"{topic}-0: {key}: 1 record that Kafka has is not in it, the first at offset 4",
    ]


def test_what_kafka_has_deleted_need_not_be_there(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """The log begins in the middle of an object."""
    archived(broker_41, topic, site)
    admin = AdminClient({"bootstrap.servers": broker_41.bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 13)]).values():
        deleted.result(30)
    assert compared(site, broker_41, topic) == (17, [], [])


def test_an_end_that_the_backup_has_committed_is_missed(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """As when its newest object is lost before the index remembers it, or the index with it."""
    archived(broker_41, topic, site)
    store, layout = store_of(site)
    config = site.config(broker_41.bootstrap, [topic])
    config["backup"]["group"] = topic
    checked = ArchiverConfig.model_validate(config)
    lost, kept = (30, "base=20"), (20, "base=10")

    def verified(told: tuple[int, str]) -> VerifyResult:
        offset, metadata = told
        consumer = Consumer({"bootstrap.servers": broker_41.bootstrap, "group.id": topic})
        marked = f"{metadata} archive={archive_mark(checked.storage)}"
        consumer.commit(offsets=[TopicPartition(topic, 0, offset, marked)], asynchronous=False)
        consumer.close()
        return run_verify(checked, Level.LISTING, against_kafka=True)

    assert verified(lost).is_whole
    store.delete([object_keys(site, topic)[-1], *(item.key for item in store.list(layout.index_prefix))])
    produce_values(broker_41.bootstrap, topic, [b"later"] * 7)
    found = verified(lost)
    assert len(found.problems) == 1
    what = (
        f"{topic}-0: group {topic} has committed that an object from offset 20 on was put, and the archive ends at 20: "
    )
    assert found.problems[0].startswith(what)
    assert f"{topic}-0: 7 offsets are not archived yet" in found.notes
    assert any("there is no index" in note for note in found.notes)
    assert verified(kept).is_whole


def test_a_selection_that_matches_nothing_is_reported(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    config = ArchiverConfig.model_validate(site.config(broker_41.bootstrap, [topic]))
    with pytest.raises(UsageError, match=r"nothing is archived there; check storage\.url"):
        run_verify(config, Level.LISTING)
    create_topic(broker_41.bootstrap, f"{topic}-other")
    elsewhere = ArchiverConfig.model_validate(site.config(broker_41.bootstrap, [f"{topic}-other"]))
    found = run_verify(elsewhere, Level.LISTING, against_kafka=True)
    assert found.problems == [f"{topic}-other: is included, but no backup archives it"]
    with pytest.raises(UsageError, match="--topics ordesr: no topic of the archive matches"):
        run_verify(elsewhere, Level.LISTING, topics="ordesr", against_kafka=True)
    archived(broker_41, topic, site)
    with pytest.raises(UsageError, match="--topics ordesr: no topic of the archive matches"):
        run_verify(config, Level.LISTING, topics="ordesr")
    now_ms = time.time_ns() // 1_000_000
    with pytest.raises(UsageError, match="--since: is in the future"):
        run_verify(config, Level.COUNTS, since_ms=now_ms + 3_600_000)
    time.sleep(1.1)  # the store's clock tells seconds
    found = run_verify(config, Level.COUNTS, since_ms=time.time_ns() // 1_000_000)
    assert (found.checked, found.notes) == (0, ["none of 3 objects was read: none was put since"])


def test_topics_that_nobody_archives_are_found(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    archived(broker_41, topic, site)
    create_topic(broker_41.bootstrap, f"{topic}-new")
    _, problems, _ = compared(site, broker_41, topic, f"{topic}.*")
    assert problems == [f"{topic}-new: is included, but no backup archives it"]
    delete_topic(broker_41.bootstrap, topic)
    found = site.verify(broker_41.bootstrap, [topic], against_kafka=True)
    gone = f"{topic}: is archived, and Kafka no longer has it; if it may be gone: archiver topics --accept-gone {topic}"
    assert (found.compared, found.problems, found.notes) == (0, [gone], [])
    accept_gone(open_archive(ArchiverConfig.model_validate(site.config(broker_41.bootstrap, [topic])).storage), topic)
    found = site.verify(broker_41.bootstrap, [topic], against_kafka=True)
    assert (found.compared, found.problems, found.notes) == (0, [], [f"{topic}: is not in the cluster any more"])
    _, missing, notes = compared(site, broker_41, topic, topic, "not-there")
    assert missing == []
    assert "topics.include[1]: 'not-there' matches no topic of the cluster" in notes
    create_topic(broker_41.bootstrap, topic)
    assert compared(site, broker_41, topic)[1] == [f"{topic}: was created again, and no backup archives the new one"]
