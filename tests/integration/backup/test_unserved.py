"""How many offsets no batch served, as real brokers serve them: behind compaction, and beside transactions."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from archiver.archive.segments.segment_facts import FACTS_SHA256
from archiver.cli.main import main
from tests.support.brokers import Broker
from tests.support.examples import EAGER_CLEANER, until_compacted
from tests.support.foreign_reader import Segment, read_segments
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, errors_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]


def rows(count: int, keys: int = 1) -> list[Rec]:
    return [Rec(at, NOW_MS + at, 0, b"key %d" % (at % keys), b"value %d" % at) for at in range(count)]


def send(bootstrap: str, topic: str, records: Sequence[Rec], partition: int = 0) -> None:
    for start in range(0, len(records), 7):
        part = [replace(record, offset=at) for at, record in enumerate(records[start : start + 7])]
        produce_raw(bootstrap, topic, [encode(batch_of(part))], partition)


def unserved_in(segments: Sequence[Segment], partition: int = 0) -> list[int]:
    return [int(one.metadata["archiver-unserved"]) for one in segments if one.partition == partition]


def test_what_compaction_took_is_counted(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 1, {**KEEP_ALL, **EAGER_CLEANER})
    send(bootstrap, topic, rows(200, keys=10))
    send(bootstrap, topic, [Rec(0, NOW_MS + 99_999, 0, b"other", b"of the next log segment")])
    left = until_compacted(java_oracle, bootstrap, topic).records[0]
    assert len(left) == 11

    assert errors_of(site.back_up(bootstrap, topic, records=4)) == {}
    segments = read_segments(site.bucket, topic)
    offsets = [record.offset for record in left]
    taken = [len(set(range(one.base, one.next)) - set(offsets)) for one in segments]
    assert unserved_in(segments) == taken
    assert (len(taken), sum(taken), segments[-1].next) == (3, 190, 201)

    site.write_config(bootstrap, topic)
    capsys.readouterr()
    assert main(["inspect", segments[0].key, "-c", str(site.folder / "archive.yaml")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split() for line in shown if line.startswith("unserved")] == [["unserved", str(taken[0]), "same"]]
    assert sum(len(name) + len(text) for name, text in segments[0].metadata.items()) < 2048
    assert FACTS_SHA256 in segments[0].metadata

    send(bootstrap, topic, rows(5, keys=5))  # read before any compaction
    assert errors_of(site.back_up(bootstrap, topic)) == {}
    assert unserved_in(read_segments(site.bucket, topic)) == [*taken, 0]
