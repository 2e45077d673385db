"""One object over others that does not have their records, at a real store with the shipped roles: it hides and deletes nothing."""

import json
import time
from pathlib import Path

import pytest

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.format.layout import SegmentKey
from archiver.archive.notes.topics import PartitionSource, read_topic
from archiver.archive.segments.segment_writer import OpenSegment
from archiver.archive.segments.spool import Spool
from archiver.backup.service.run_backup import run_backup
from archiver.cli.main import main
from archiver.config.load import load_config
from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.restore.plan.request import RestoreRequest, parse_renames
from archiver.restore.report.restore_report import RestoreResult
from archiver.spark.restore import run_restore_job
from archiver.spark.verify import run_verify
from archiver.store.port import ObjectKind
from archiver.upkeep.object_check import Level
from tests.integration.test_policies import PREFIX, as_role
from tests.support.brokers import Broker
from tests.support.frames import frame_of
from tests.support.kafka_topics import create_topic, producer_of
from tests.support.records import Rec
from tests.support.round_trip import ArchiveSite, without_spark
from tests.support.segments import NO_LIMIT, content_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(400)]

RECORDS, EACH, COVERED = 1000, 100, 900


def write_config(site: ArchiveSite, bootstrap: str, topic: str) -> Path:
    tree = site.config(bootstrap, [topic], records=EACH)
    tree |= {"storage": {**tree["storage"], "url": f"{site.bucket.url}/{PREFIX}"}}
    path = site.folder / "archive.yaml"
    path.write_text(json.dumps(tree | {"retention": {"grace": 0, "min-object-age": 0}}))
    return path


def put_cover(archive: Archive, spool: Path, topic: str, base: int, end: int) -> str:
    """Put an object with one record over all others from `base` on."""
    fact = read_topic(archive, topic)
    assert fact is not None
    source = PartitionSource(
        topic=topic, partition=0, life=0, topic_id=fact.lives[0].topic_id, cluster_id=fact.cluster_id
    )
    made = OpenSegment(source, base, NO_LIMIT, Spool(spool))
    assert made.append(frame_of([Rec(end - 1, 1_700_000_000_000, 0, b"k", b"false")]), 0) == 1
    made.cover(end, leader_epoch=0, source_bytes=100)
    finished = made.finish()
    key = archive.layout.segment_key(SegmentKey(topic=topic, partition=0, base=base, next=end))
    assert archive.store.put_if_absent(key, content_of(finished), finished.facts.to_metadata(), kind=ObjectKind.SEGMENT)
    return key


def restore(config: ArchiverConfig, bootstrap: str, topic: str, *, skips: bool) -> RestoreResult:
    return run_restore_job(
        config.storage,
        TargetConfig(kafka={"bootstrap.servers": bootstrap}),
        RestoreRequest(topics=topic, renames=parse_renames([f"{topic}={topic}.{skips}"]), skips_damage=skips),
        restore_id=f"skips-{skips}".lower(),
        notice=lambda _: None,
    )


def archive_records(site: ArchiveSite, broker: Broker, topic: str) -> tuple[Path, list[str]]:
    """Archive all records. Returns the configuration, and the keys of their objects."""
    create_topic(broker.bootstrap, topic, configs={"retention.ms": str(20 * 24 * 3600 * 1000)})
    producer = producer_of(broker.bootstrap, **{"linger.ms": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"v%d" % number)
    assert producer.flush(60) == 0
    path = write_config(site, broker.bootstrap, topic)
    config = load_config(path)
    with as_role(site.bucket, "backup"):
        run_backup(config, lambda _: None)
    originals = [item.key for item in open_archive(config.storage).store.list(f"{PREFIX}/topics/")]
    assert len(originals) == RECORDS // EACH
    return path, originals


def test_one_record_over_900_hides_none_and_nothing_is_deleted(
    broker: Broker, topic: str, site: ArchiveSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, originals = archive_records(site, broker, topic)
    config = load_config(path)
    with as_role(site.bucket, "backup"):
        false = put_cover(open_archive(config.storage), tmp_path, topic, 0, COVERED)
    time.sleep(1.1)  # the store's clock has whole seconds, and what was put in this one is too young

    with as_role(site.bucket, "restore"):
        capsys.readouterr()
        code = main(["cat", topic, "-c", str(path)])
        told = capsys.readouterr()
        assert (code, [json.loads(line)["offset"] for line in told.out.splitlines()]) == (3, list(range(RECORDS)))
        assert f"{false} is damaged" in told.err
        assert main(["ls", topic, "-c", str(path)]) == 3
        for level in (Level.LISTING, Level.RECORDS):
            found = run_verify(config, level)
            assert not found.is_whole
            assert any(f"{false} is damaged" in problem for problem in found.problems)
    with as_role(site.bucket, "sweep"), without_spark():
        main(["retention", "-c", str(path)])  # notes what the topic keeps
        capsys.readouterr()
        assert main(["retention", "--yes", "-c", str(path)]) == 3
        problem = f"{false}: has 0 records at offsets 0-99, where {originals[0]} has 100; what it covers stays"
        assert problem in capsys.readouterr().err
    left = [item.key for item in open_archive(config.storage).store.list(f"{PREFIX}/topics/")]
    assert left == sorted([*originals, false])
    with as_role(site.bucket, "restore"):
        refused, done = (restore(config, broker.bootstrap, topic, skips=skips) for skips in (False, True))
        (error,) = refused.topics[0].errors
        assert (error.exit_code, false in error.error) == (3, True)
        assert [one.records for one in done.topics] == [RECORDS]
