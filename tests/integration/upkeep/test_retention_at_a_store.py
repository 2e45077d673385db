"""Sweeps at a real store that does not do everything: some deletes are denied, and a listing breaks off half way."""

import time

import pytest

from archiver.archive.notes.sweeps import read_last_report
from archiver.archive.notes.swept import SweptPlace, read_swept
from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic
from tests.support.processes import end_of
from tests.support.real_sweeps import DAY_MS, archive_of, cut, produce_aged, read_kept, start_sweep, sweep
from tests.support.rights_stage import acting
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

PAGE = 1_000  # keys of one answer


def archive_two_partitions(broker: Broker, topic: str, site: ArchiveSite, more: int = 0) -> None:
    """Five objects in each; the broker has the last one. With `more` objects in the second."""
    create_topic(broker.bootstrap, topic, 2, KEEP_ALL)
    for partition, count in enumerate((5, 5 + more)):
        produce_aged(broker.bootstrap, topic, [5 * DAY_MS] * count, partition)
    site.back_up(broker.bootstrap, topic, records=1)
    for partition, count in enumerate((5, 5 + more)):
        cut(broker, topic, count - 1, partition)
    set_configs(broker, topic, retention_ms=str(DAY_MS))  # not before: the broker would be first
    time.sleep(1.1)  # the store's clock has whole seconds, and what was put in this one is too young
    assert not sweep(site, broker.bootstrap, topic).swept  # it only notes what the topic keeps


def left_of(site: ArchiveSite, topic: str) -> dict[int, list[int]]:
    return {number: [row.offset for row in one.records] for number, one in read_kept(site.bucket, topic).items()}


def test_what_a_policy_denies_stays_and_the_rest_goes(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    archive_two_partitions(broker_41, topic, site)
    whole = f"arn:aws:s3:::{site.bucket.name}"
    denied = [f"{whole}/topics/{topic}/partition=1/{topic}+1-{base:020}.data" for base in (0, 2)]
    statements = [
        {"Effect": "Allow", "Action": ["s3:*"], "Resource": [whole, f"{whole}/*"]},
        {"Effect": "Deny", "Action": ["s3:DeleteObject"], "Resource": denied},
    ]
    with acting(site.bucket, statements) as somebody:
        asked = ("", "--metrics-file", str(site.folder / "sweep.prom"))
        done = end_of(start_sweep(site, broker_41.bootstrap, topic, *asked, environment=somebody), 60)
    assert done.returncode == 1, done.stderr
    assert [f"topics/{topic}/partition=1/{topic}+1-{base:020}.data: DeleteObjects was denied" in done.stderr for base in (0, 1, 2)] == [True, False, True]  # fmt: skip
    assert left_of(site, topic) == {0: [4], 1: [0, 2, 4]}
    archive = archive_of(site)
    assert {place.partition: one.ranges for place, one in read_swept(archive, topic).items()} == {
        0: ((0, 4),),
        1: ((1, 2), (3, 4)),
    }
    report = read_last_report(archive)
    assert report is not None
    assert (report.refused, report.is_complete, report.topics[topic].objects) == (2, False, 6)
    metrics = (site.folder / "sweep.prom").read_text()
    assert f'archiver_sweep_deleted_objects{{topic="{topic}"}} 6.0\n' in metrics
    assert "archiver_sweep_refused_deletes 2.0\n" in metrics
    told = site.run("retention", "--last", "-c", "sweep.yaml")
    assert (told.returncode, told.stderr) == (0, "")
    assert f"{topic}  6" in told.stdout
    assert told.stdout.endswith("; the store refused 2 deletes\n")
    assert site.verify(broker_41.bootstrap, [topic], against_kafka=True).is_whole
    # With the right it goes on. What was denied did not count as swept: its loss would have shown.
    assert sweep(site, broker_41.bootstrap, topic, agreed=True).is_complete
    assert left_of(site, topic) == {0: [4], 1: [4]}
    assert read_swept(archive, topic)[SweptPlace(topic, 0, 1)].ranges == ((0, 4),)
