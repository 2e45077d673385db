"""Sweeps while a backup writes: killed at each effect, and with writers whose objects come when their offsets were swept long ago."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from archiver.backup.service.run_backup import run_backup
from archiver.config.model import ArchiverConfig
from archiver.spark.verify import VerifyResult
from archiver.upkeep.object_check import Level
from tests.support.brokers import KAFKA_41, StartBroker
from tests.support.faulty_s3 import Fault, FaultyS3
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, producer_of
from tests.support.processes import end_of
from tests.support.real_sweeps import (
    DAY_MS,
    EAGER,
    assert_archived,
    assert_restored,
    bases,
    cut,
    produce_aged,
    read_kept,
    start_sweep,
    until_swept,
)
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.service import eventually, running, service_config
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

SWEEP_S = 120.0
# The place in the middle is reached where a sweep has died behind its note.
ALL_PLACES = ("sweep.decided", "sweep.noted", "sweep.taken_back", "sweep.deleted", "")
PLACES = ("sweep.noted", "sweep.taken_back", "")


@pytest.fixture
def eager(shared_broker: StartBroker) -> KafkaBroker:
    return shared_broker(KAFKA_41, **EAGER)


class Flow:
    """Records that come all the time, and where each of them went."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.sent: dict[int, dict[int, bytes]] = {number: {} for number in range(partitions)}
        self._producer = producer_of(bootstrap, **{"linger.ms": 0})
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        count = 0
        while not self._is_over.wait(0.02):
            number, value = count % len(self.sent), b"value %d" % count

            def note(error: object, message: Any, number: int = number, value: bytes = value) -> None:  # noqa: ANN401
                assert error is None
                self.sent[number][message.offset()] = value

            self._producer.produce(self._topic, value, partition=number, on_delivery=note)
            self._producer.poll(0)
            count += 1
        assert self._producer.flush(30) == 0

    @property
    def ends(self) -> dict[int, int]:
        return {number: max(sent) + 1 for number, sent in self.sent.items()}

    @contextmanager
    def flowing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def test_sweeps_that_are_killed_beside_a_backup_that_writes(
    eager: KafkaBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, pytestconfig: pytest.Config
) -> None:
    """At no moment does a reader miss a record, nor after all of it: a sweep that died is gone on with by the next one."""
    keeps_ms = 3_000
    create_topic(eager.bootstrap, topic, 2, KEEP_ALL | {"segment.ms": "1000", "retention.ms": str(keeps_ms)})
    flow = Flow(eager.bootstrap, topic, 2)
    with running(site, service_config(site, eager.bootstrap, topic, group=topic)) as backup, flow.flowing():
        eventually(lambda: len(bases(site, topic)) > 4)
        assert end_of(start_sweep(site, eager.bootstrap, topic), SWEEP_S).returncode == 0
        for place in ALL_PLACES if pytestconfig.getoption("--long") else PLACES:
            process = start_sweep(site, eager.bootstrap, topic, place)
            read: list[VerifyResult] = []
            while process.poll() is None:
                read.append(site.verify(eager.bootstrap, [topic], Level.RECORDS))
            done = end_of(process, SWEEP_S)
            assert done.returncode == (-signal.SIGKILL if place else 0), done.stderr
            assert [(one.problems, one.errors) for one in read if not one.is_whole or one.problems or one.errors] == []
        flow.end()
        eventually(lambda: {nr: one.end for nr, one in read_kept(site.bucket, topic).items()} == flow.ends)
        assert backup.stop() == 0
    until_swept(site, eager, topic)
    assert site.verify(eager.bootstrap, [topic], Level.RECORDS, against_kafka=True).is_whole
    kept = assert_archived(site.bucket, eager.bootstrap, topic, java_oracle)
    for number, one in kept.items():
        told = {row.offset: row.value for row in one.records}
        assert len(told) == len(one.records)
        assert told.items() <= flow.sent[number].items()
        assert one.end == len(flow.sent[number])
        assert set(flow.sent[number]) - set(told) == set(range(one.records[0].offset))  # the oldest went, and no other
        assert one.records[0].offset > 0
    assert_restored(site, eager.bootstrap, topic, java_oracle)


def test_an_object_that_comes_when_its_offsets_were_swept(
    eager: KafkaBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """A put that hangs in the network for as long as a sweep takes: the same put was tried again, archived, and swept."""
    create_topic(eager.bootstrap, topic, 1, KEEP_ALL)
    produce_aged(eager.bootstrap, topic, [age * DAY_MS for age in range(10, 0, -1)])
    with FaultyS3(site.bucket.s3.endpoint) as proxy:
        tree = site.config(eager.bootstrap, [topic], records=1)
        tree |= {"storage": {**tree["storage"], "endpoint": proxy.endpoint}}
        with proxy.failing(Fault.LATE, "PUT", 1, naming=f"{topic}+0-{2:020}"):
            run_backup(ArchiverConfig.model_validate(tree), lambda _: None)
            assert bases(site, topic) == list(range(10))
            set_configs(eager, topic, retention_ms=str(int(4.5 * DAY_MS)))
            cut(eager, topic, 9)
            until_swept(site, eager, topic)
            assert bases(site, topic) == [6, 7, 8, 9]
        eventually(lambda: bases(site, topic) == [2, 6, 7, 8, 9])
    kept = assert_archived(site.bucket, eager.bootstrap, topic, java_oracle)
    assert [row.offset for row in kept[0].records] == [2, 6, 7, 8, 9]
    found = site.verify(eager.bootstrap, [topic], Level.RECORDS, against_kafka=True)
    assert found.is_whole
    assert_restored(site, eager.bootstrap, topic, java_oracle)
    produce_aged(eager.bootstrap, topic, [3_600_000])
    site.back_up(eager.bootstrap, topic, records=1)
    assert bases(site, topic) == [2, 6, 7, 8, 9, 10]
    until_swept(site, eager, topic, {"min-object-age": "24h"})
    assert bases(site, topic) == [2, 6, 7, 8, 9, 10]
    assert site.verify(eager.bootstrap, [topic], against_kafka=True).is_whole
    until_swept(site, eager, topic)
    assert bases(site, topic) == [6, 7, 8, 9, 10]
    assert site.verify(eager.bootstrap, [topic], against_kafka=True).is_whole
