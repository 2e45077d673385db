"""How many offsets no batch served, as real brokers serve them: behind compaction, and beside transactions."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from archiver.archive.segments.segment_facts import FACTS_SHA256
from archiver.cli.main import main
from tests.support.brokers import KAFKA_39, KAFKA_41, StartBroker
from tests.support.examples import EAGER_CLEANER, until_compacted, until_stable
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


@pytest.mark.parametrize("version", [pytest.param(KAFKA_39, marks=pytest.mark.long), KAFKA_41])
def test_what_compaction_took_is_counted(
    version: str, shared_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    bootstrap = shared_broker(version).bootstrap
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


def test_committed_and_aborted_transactions_were_served(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    bootstrap = shared_broker(KAFKA_41).bootstrap
    create_topic(bootstrap, topic, 2, KEEP_ALL)
    for turn in range(8):
        java_oracle.produce(bootstrap, topic, {0: rows(9), 1: rows(2)}, transactional_id=f"{topic}-{turn % 3}")
        java_oracle.end_transaction(f"{topic}-{turn % 3}", commit=turn % 2 == 1)
        send(bootstrap, topic, rows(3))
    java_oracle.produce(bootstrap, topic, {0: rows(40), 1: rows(1)}, transactional_id=f"{topic}-last")
    java_oracle.end_transaction(f"{topic}-last", commit=False)
    until_stable(bootstrap, topic)

    reports = site.back_up(bootstrap, topic, records=5)
    assert errors_of(reports) == {}
    segments = read_segments(site.bucket, topic)
    assert set(unserved_in(segments, 0)) == set(unserved_in(segments, 1)) == {0}
    ends = {one.partition: one.next for one in segments}
    records = [sum(len(one.records) for one in segments if one.partition == number) for number in (0, 1)]
    assert records == [4 * 9 + 8 * 3, 4 * 2]
    assert ends[0] - records[0] > 4 * 9 + 8  # markers and aborted records lie among them
    assert len(segments) > 10
