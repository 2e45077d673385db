"""Archives of AvroKafkaRecord v1.0 as fastavro writes them, in a real S3: `ls`, `cat`, `verify`, `inspect`, and a restore."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from archiver.archive.index.archived_end import position_of
from archiver.cli.main import main
from archiver.upkeep.object_check import Level
from tests.support.brokers import Broker
from tests.support.bucket_archive import BucketArchive
from tests.support.cat_lines import cat_line
from tests.support.foreign_reader import s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.old_archive import VARIANTS, old_file, old_key, old_records
from tests.support.records import NOW_MS, Rec, without_offsets
from tests.support.round_trip import ArchiveSite

pytestmark = pytest.mark.s3


@pytest.fixture
def archive(site: ArchiveSite) -> BucketArchive:
    return BucketArchive(site.bucket, site.folder)


def put_old(archive: BucketArchive, topic: str, records: Sequence[Rec], *, each: int, partition: int = 0) -> list[str]:
    """Put v1.0 objects of so many records, of both variants in turn as far as they can hold them."""
    keys = []
    for start in range(0, len(records), each):
        part = records[start : start + each]
        has_tombstones = any(record.value is None for record in part)
        schema = VARIANTS[1] if has_tombstones else VARIANTS[start // each % 2]
        key = old_key(topic, partition, part[0].offset)
        put(archive, key, old_file(part, topic, partition, schema=schema, codec="deflate", sync_interval=500))
        keys.append(key)
    return keys


def put(archive: BucketArchive, key: str, content: bytes) -> None:
    s3_client(archive.bucket).put_object(Bucket=archive.bucket.name, Key=key, Body=content)


def run(site: ArchiveSite, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    exit_code = main([*arguments, "-c", str(site.write_config("127.0.0.1:9", "x"))])
    out, err = capsys.readouterr()
    return exit_code, out.splitlines(), err


def test_a_topic_that_goes_on_with_ours(
    site: ArchiveSite, archive: BucketArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [Rec(at, NOW_MS + at, -1, b"k", b"old %d" % at) for at in range(5, 25)]
    new = [Rec(at, NOW_MS + at, 0, b"k", b"new %d" % at, ((b"h", b"1"), (b"h", None))) for at in range(25, 45)]
    put_old(archive, "mixed", old, each=10)
    archive.write_topic_fact("mixed")
    archive.put("mixed", 0, new, each=10, base=25)
    exit_code, lines, err = run(site, capsys, "cat", "mixed")
    assert (exit_code, err) == (0, "")
    assert [json.loads(line) for line in lines] == [cat_line(record, 0) for record in (*old, *new)]
    assert position_of(archive.handle, "mixed", 0, 0).next == 45
    _, lines, _ = run(site, capsys, "ls")
    assert lines[1].split()[:4] == ["mixed", "1", "5..45", "20"]
    assert lines[1].endswith("2 of v1.0")
    _, lines, _ = run(site, capsys, "ls", "mixed", "--segments", "--format", "json")
    found = json.loads("\n".join(lines))
    assert [(row["base"], row["next"], row["records"], row["max_timestamp"]) for row in found["segments"]] == [
        (5, 15, None, None),
        (15, 25, None, None),
        (25, 35, 10, NOW_MS + 34),
        (35, 45, 10, NOW_MS + 44),
    ]
    assert (found["holdings"][0]["records"], found["holdings"][0]["uncounted"]) == (20, 2)
    _, lines, _ = run(site, capsys, "ls", "mixed", "--segments")
    assert [line.rpartition("  ")[2] for line in lines[1:3]] == ["v1.0", "v1.0"]


@pytest.mark.parametrize("level", list(Level))
def test_verify(site: ArchiveSite, archive: BucketArchive, level: Level) -> None:
    """Nothing of ours stands beside such an archive, and nothing of it is missed."""
    keys = put_old(archive, "old", [Rec(at, NOW_MS, -1, b"k", b"v" * 100) for at in range(7, 47)], each=10)
    found = site.verify("127.0.0.1:9", [], level)
    assert (found.problems, found.listing.records) == ([], 0)
    (note,) = found.listing.notes
    assert note.startswith("old-0: 4 objects are of v1.0, from offset 7 on, which tells neither how many records")
    put(archive, keys[2], archive.content(keys[2]).replace(b"Obj\x01", b"Obj\x02"))
    (problem,) = site.verify("127.0.0.1:9", [], level).problems
    assert problem.startswith(f"{keys[2]}: not an Avro object container file")
    assert "old-0: offsets 27-36 are in no object" in problem


@pytest.mark.kafka
def test_a_restore(
    site: ArchiveSite, archive: BucketArchive, broker_41: Broker, java_oracle: JavaOracle, topic: str, seed: int
) -> None:
    old = [replace(record, timestamp=NOW_MS + at, offset=at) for at, record in enumerate(old_records(seed, 200))]
    new = [Rec(at, NOW_MS + at, 0, b"k", b"new %d" % at) for at in range(200, 230)]
    put_old(archive, topic, old, each=60)
    put_old(archive, topic, old[:10], each=60, partition=1)
    archive.put(topic, 0, new, each=10, base=200)
    result = site.restore(broker_41.bootstrap, topics=topic)
    assert [(one.records, one.error) for report in result.topics for one in report.partitions] == [(230, ""), (10, "")]
    found = java_oracle.consume(broker_41.bootstrap, topic).records
    wanted = {0: [*old, *new], 1: old[:10]}
    assert {number: without_offsets(rows) for number, rows in found.items()} == {
        number: [replace(row, timestamp_type=0) for row in without_offsets(rows)] for number, rows in wanted.items()
    }


@pytest.mark.kafka
def test_a_file_that_is_damaged_behind_its_first_block_is_skipped_whole(
    site: ArchiveSite, archive: BucketArchive, broker_41: Broker, java_oracle: JavaOracle, topic: str
) -> None:
    """Nothing but its blocks tells: some of its records would have been written already."""
    old = [Rec(at, NOW_MS + at, 0, b"k", b"v%d" % at) for at in range(90)]
    for base in (0, 30, 60):
        content = bytearray(old_file(old[base : base + 30], topic, 0, sync_interval=200))
        if base == 30:
            markers = [at for at in range(len(content)) if content.startswith(content[-16:], at)]
            assert len(markers) > 4
            content[markers[len(markers) // 2]] ^= 1
        put(archive, old_key(topic, 0, base), bytes(content))
    rename = [f"{topic}={topic}.back"]
    (stopped,) = site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.all"]).topics[0].errors
    assert stopped.exit_code == 3
    for _ in range(2):
        (restored,) = site.restore(broker_41.bootstrap, topics=topic, rename=rename, skips_damage=True).topics
        assert restored.errors == ()
        (missing,) = restored.partitions[0].missing
        assert missing.startswith(f"offsets 30-59 in {old_key(topic, 0, 30)}: ")
        found = java_oracle.consume(broker_41.bootstrap, f"{topic}.back").records[0]
        assert without_offsets(found) == without_offsets([*old[:30], *old[60:]])
