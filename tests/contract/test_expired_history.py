"""What docs/runbooks.md says of a topic that has copies: what lies under `topics/` of it may be deleted, and what is read then."""

from pathlib import Path

import pytest

from archiver.archive.index.index_generations import append_to_index
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import record_cluster
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.segment_facts import facts_from_metadata
from archiver.cli.main import main
from tests.support.brokers import Bucket
from tests.support.bucket_archive import BucketArchive
from tests.support.copied_topic import complete_copy, copy_partition, put_role_entry
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.records import NOW_MS, Rec

pytestmark = pytest.mark.s3

POLICY = {"cleanup.policy": "compact"}


def test_the_history_of_a_copied_topic_can_be_deleted_whole(
    moto_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_bucket.s3.endpoint)
    archive = BucketArchive(moto_bucket, tmp_path)
    record_cluster(archive.handle, "c")
    record_topic(
        archive.handle, topic="t", topic_id="A", cluster_id="c", partitions=2, configs=POLICY, effective=POLICY
    )
    for partition in range(2):
        records = [Rec(at, NOW_MS + at, 0, b"k%d" % (at % 7), b"%d" % at) for at in range(50)]
        archive.put("t", partition, records, each=10)
        copy_partition(moto_bucket, moto_bucket, "t", partition, instance="a", generation=1)
        for number in range(2):
            put_role_entry(moto_bucket, "t", partition, number, holder=None, candidate=("a", number))
        put_role_entry(moto_bucket, "t", partition, 2, holder=complete_copy("a", 1, 50), replaced="topics/")
    index_all(archive)

    def delete(prefix: str, *, but: int = 0) -> None:
        keys = keys_in(moto_bucket, prefix)
        for key in keys[: len(keys) - but]:
            s3_client(moto_bucket).delete_object(Bucket=moto_bucket.name, Key=key)

    def run(*words: str) -> tuple[int, str]:
        code = main([*words, "--quiet", "--url", moto_bucket.url])
        return code, capsys.readouterr().out

    assert run("verify")[0] == 0
    before = run("cat", "t")
    assert before[0] == 0
    delete("topics/t/partition=0/", but=1)
    code, said = run("verify")  # a part of the history has gaps
    assert (code, "t-0: offsets 0-39 are missing" in said) == (3, True)
    delete("topics/t/")
    code, said = run("verify")  # the index remembers the ends
    assert (code, "t-0: " in said) == (3, True)
    delete("control/index/")
    code, said = run("verify")
    assert (code, said.splitlines()[-1]) == (0, "whole")
    assert run("cat", "t") == before
    assert run("ls", "t", "--history")[0] == 0


def index_all(archive: BucketArchive) -> None:
    entries = []
    for item in archive.store.list("topics/"):
        key, found = archive.layout.parse_segment(item.key), archive.store.head(item.key)
        assert key is not None
        assert found is not None
        facts = facts_from_metadata(found.metadata, item.key)
        assert facts is not None
        entries.append(IndexEntry(key, found.size, found.etag, facts))
    append_to_index(archive.handle, entries)
