"""A bucket that others may write to: what they can do to an archive, what versions and Object Lock bring back (docs/security.md)."""

import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jmespath
import pytest
from botocore.exceptions import ClientError

from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment_facts import facts_from_metadata
from archiver.archive.segments.segment_writer import OpenSegment
from archiver.archive.segments.spool import Spool
from archiver.upkeep.object_check import Level
from tests.support.brokers import REPOSITORY, S3, Broker, Bucket, GivenS3
from tests.support.faulty_s3 import FaultyS3, Quirk
from tests.support.foreign_reader import Segment, open_client, read_partitions, read_segments
from tests.support.frames import frame_of
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import ArchiveSite, archive_site
from tests.support.segments import NO_LIMIT, content_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import DefaultRetentionTypeDef

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

OFFSETS = list(range(30))


@pytest.fixture
def locked(minio: S3, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ArchiveSite]:
    """Its bucket has Object Lock, and with it versions: no version of an object is deleted for a day."""
    bucket = Bucket(minio, f"test-{uuid.uuid4().hex[:12]}")
    client = open_client(minio)
    client.create_bucket(Bucket=bucket.name, ObjectLockEnabledForBucket=True)
    retention: DefaultRetentionTypeDef = {"Mode": getattr(request, "param", "GOVERNANCE"), "Days": 1}
    client.put_object_lock_configuration(
        Bucket=bucket.name,
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": retention}},
    )
    with archive_site(bucket, tmp_path) as site:
        yield site


def archived(broker: Broker, topic: str, site: ArchiveSite) -> list[Segment]:
    """Three segments of ten records."""
    create_topic(broker.bootstrap, topic)
    produce_values(broker.bootstrap, topic, [b"value %d" % number for number in OFFSETS])
    site.back_up(broker.bootstrap, topic, records=10)
    return read_segments(site.bucket, topic)


def versions_of(site: ArchiveSite) -> dict[str, list[str]]:
    """By key, the newest first; of a delete marker with the word."""
    found: dict[str, list[str]] = {}
    page = client_of(site).list_object_versions(Bucket=site.bucket.name)
    assert not page["IsTruncated"]
    for one in sorted(page.get("Versions", []), key=lambda row: row["LastModified"], reverse=True):
        found.setdefault(one["Key"], []).append(one["VersionId"])
    for marker in page.get("DeleteMarkers", []):
        found.setdefault(marker["Key"], []).insert(0, f"marker {marker['VersionId']}")
    return found


def told_by_the_page(site: ArchiveSite) -> set[str]:
    """The keys that the command of docs/security.md prints."""
    (query,) = re.findall(r"--query '([^']+)'", (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8"))
    rows = jmespath.search(query, client_of(site).list_object_versions(Bucket=site.bucket.name))
    return {key for row in rows for key, _, _ in row or ()}


def client_of(site: ArchiveSite) -> "S3Client":
    return open_client(site.bucket.s3)


def forged(topic: str, segment: Segment, folder: Path, base: int | None = None) -> tuple[bytes, dict[str, str]]:
    """Other values in the place of a segment, or from another base on: whole in itself, its facts and hashes those of what it holds."""
    facts = facts_from_metadata(segment.metadata, segment.key)
    assert facts is not None
    begin = facts.base if base is None else base
    source = PartitionSource(topic=topic, partition=0, life=0, topic_id=facts.topic_id, cluster_id=facts.cluster_id)
    made = OpenSegment(source, begin, NO_LIMIT, Spool(folder))
    records = [
        replace(record, value=b"forged", offset=record.offset - facts.base + begin) for record in segment.records
    ]
    made.append(frame_of(records), 0)
    made.cover(facts.next - facts.base + begin, leader_epoch=facts.leader_epoch, source_bytes=facts.source_bytes)
    finished = made.finish()
    return content_of(finished), finished.facts.to_metadata()


def overwrite(site: ArchiveSite, key: str, body: bytes, metadata: dict[str, str]) -> None:
    """As who may PutObject, and has no scruples."""
    client_of(site).put_object(Bucket=site.bucket.name, Key=key, Body=body, Metadata=metadata)


def bring_back(site: ArchiveSite, key: str) -> None:
    """The oldest version, as docs/security.md says."""
    oldest = versions_of(site)[key][-1]
    source = {"Bucket": site.bucket.name, "Key": key, "VersionId": oldest}
    client_of(site).copy_object(Bucket=site.bucket.name, Key=key, CopySource=source)  # type: ignore[arg-type]


def test_each_key_is_written_once_and_under_the_condition(broker_41: Broker, topic: str, locked: ArchiveSite) -> None:
    """A store that denies puts without If-None-Match takes all of ours; so whatever has a second version is a stranger's."""
    with FaultyS3(locked.bucket.s3.endpoint, Quirk.WANTS_CONDITION, Quirk.WANTS_CHECKSUM) as proxy:
        s3 = GivenS3(proxy.endpoint, locked.bucket.s3.access_key, locked.bucket.s3.secret_key)
        site = replace(locked, bucket=Bucket(s3, locked.bucket.name))
        archived(broker_41, topic, site)
        produce_values(broker_41.bootstrap, topic, [b"later"] * 5)
        for _ in range(2):
            site.back_up(broker_41.bootstrap, topic, records=10)
        done = site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}-back"])
        assert (done.failure, done.records) == (None, 35)
        assert site.verify(broker_41.bootstrap, [topic], Level.RECORDS).is_whole
    versions = versions_of(locked)
    assert {key.split("/")[0] for key in versions} == {"topics", "control", "README.txt"}
    assert {key: found for key, found in versions.items() if len(found) != 1 or found[0].startswith("marker")} == {}
    assert [record.offset for record in read_partitions(locked.bucket, topic)[0]] == list(range(35))


def test_an_object_that_is_whole_in_itself_is_told_by_the_index_by_kafka_and_by_its_versions(
    broker_41: Broker, topic: str, locked: ArchiveSite, tmp_path: Path
) -> None:
    """Hashes vouch for themselves. The index is a witness that may be silenced, Kafka one that forgets."""
    segments = archived(broker_41, topic, locked)
    forgery = segments[1].key
    overwrite(locked, forgery, *forged(topic, segments[1], tmp_path))
    (told,) = locked.verify(broker_41.bootstrap, [topic]).problems
    assert told.startswith(f"{forgery}: is not the object that was put there")

    index = {key for key in versions_of(locked) if key.startswith("control/index/")}
    for key in index:
        overwrite(locked, key, b"", {})
    found = locked.verify(broker_41.bootstrap, [topic], Level.RECORDS)
    assert [problem for problem in found.problems if forgery in problem] == []
    assert [record.value for record in read_segments(locked.bucket, topic)[1].records] == [b"forged"] * 10
    found = locked.verify(broker_41.bootstrap, [topic], against_kafka=True)
    assert any(f"{forgery}: its records at offsets 10-19 are not those" in problem for problem in found.problems)

    assert told_by_the_page(locked) == {forgery, *index}
    for key in (forgery, *index):
        bring_back(locked, key)
    assert locked.verify(broker_41.bootstrap, [topic], Level.RECORDS, against_kafka=True).is_whole
    assert read_segments(locked.bucket, topic) == segments


def test_a_backup_goes_on_behind_what_lies_in_the_place_of_its_next_object(
    broker_41: Broker, topic: str, locked: ArchiveSite, tmp_path: Path
) -> None:
    """No version tells of an object that is the first of its name; Kafka does."""
    segments = archived(broker_41, topic, locked)
    key = Layout().segment_key(SegmentKey(topic=topic, partition=0, base=30))
    overwrite(locked, key, *forged(topic, segments[2], tmp_path, base=30))
    produce_values(broker_41.bootstrap, topic, [b"true"] * 15)
    (report,) = locked.back_up(broker_41.bootstrap, topic).values()
    assert (report.error, report.position) == (None, 45)
    values = [record.value for record in read_partitions(locked.bucket, topic)[0]]
    assert values[30:] == [b"forged"] * 10 + [b"true"] * 5
    assert told_by_the_page(locked) == set()
    found = locked.verify(broker_41.bootstrap, [topic], against_kafka=True)
    assert any(f"{key}: its records at offsets 30-39 are not those" in problem for problem in found.problems)


@pytest.mark.parametrize("locked", ["GOVERNANCE", "COMPLIANCE"], indirect=True)
def test_a_deleted_object_is_missed_and_comes_back_without_its_marker(
    broker_41: Broker, topic: str, locked: ArchiveSite, request: pytest.FixtureRequest
) -> None:
    segments = archived(broker_41, topic, locked)
    key = segments[2].key  # the last one: no gap tells, the index does
    client = client_of(locked)
    client.delete_object(Bucket=locked.bucket.name, Key=key)
    assert not locked.verify(broker_41.bootstrap, [topic]).is_whole
    assert told_by_the_page(locked) == {key}
    marker, version = versions_of(locked)[key]
    with pytest.raises(ClientError, match="WORM protected"):
        client.delete_object(Bucket=locked.bucket.name, Key=key, VersionId=version)
    client.delete_object(Bucket=locked.bucket.name, Key=key, VersionId=marker.removeprefix("marker "))
    assert locked.verify(broker_41.bootstrap, [topic], Level.RECORDS).is_whole
    assert read_segments(locked.bucket, topic) == segments

    bypass = {"Bucket": locked.bucket.name, "Key": key, "VersionId": version, "BypassGovernanceRetention": True}
    if "COMPLIANCE" in request.node.nodeid:
        with pytest.raises(ClientError, match="WORM protected"):
            client.delete_object(**bypass)  # type: ignore[arg-type]
    else:
        client.delete_object(**bypass)  # type: ignore[arg-type]
        assert key not in versions_of(locked)
