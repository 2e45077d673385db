"""Records of one source partition on their way to many, without a broker."""

import random
from collections.abc import Iterator

from archiver.archive.segments.record_counts import Count
from archiver.codec.frame import Frame
from archiver.codec.selection import ALL_RECORDS
from archiver.codec.tally import Tally
from archiver.config.model import StorageConfig
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.records.produce import ProducerIdentity
from archiver.restore.fill.repartition_source import SourceTask, _encode
from archiver.restore.plan.request import BATCH_BYTES, SENT_BATCH_BYTES
from archiver.restore.plan.task import FillMode, Origin, RestoreTask, SendLimits
from tests.support.frames import frame_of
from tests.support.records import Rec

PARTITIONS = 50


def task_of(partitions: int) -> SourceTask:
    source = RestoreTask(
        restore_id="r",
        storage=StorageConfig(url="s3://bucket"),
        kafka=KafkaSettings.parse({"bootstrap.servers": "127.0.0.1:1"}),
        origin=Origin("t", 0),
        target_topic="t",
        target_topic_id="",
        target_cluster_id="",
        partition=0,
        parts=(),
        selection=ALL_RECORDS,
        selection_digest="",
        wanted=Count(0, 0),
        mode=FillMode(skips_damage=False, reads_again=False, appends=False),
        first_offset=0,
        limits=SendLimits(batch_bytes=BATCH_BYTES, sent_bytes=SENT_BATCH_BYTES, rate_bytes=0),
    )
    identity = ProducerIdentity(producer_id=1, epoch=0)
    return SourceTask(source=source, identity=identity, already_there=(0,) * partitions)


def test_a_record_that_fills_a_batch_does_not_wait_for_the_next_one() -> None:
    """Of records of 8 MB, one for each of 64 partitions took 557 MB."""
    value = random.Random(1).randbytes(2_000_000)
    given = 0

    def frames() -> Iterator[Frame]:
        nonlocal given
        for at in range(2 * PARTITIONS):
            given += 1
            yield frame_of([Rec(at, 0, 0, b"%d" % at, value)])

    dealt = 0
    for _, batch in _encode(frames(), task_of(PARTITIONS), [0] * PARTITIONS, [Tally() for _ in range(PARTITIONS)]):
        dealt += batch.records
        assert dealt == given
    assert dealt == 2 * PARTITIONS
