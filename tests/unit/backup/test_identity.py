"""What a log is to an archive of which it has no record: where it begins and ends, and its epoch, must tell."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from archiver.backup.cut_back import Archived
from archiver.backup.identity import Identity, Kin, Place
from archiver.backup.segment_sink import SegmentSink
from archiver.config.model import UnprovenPolicy
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import PartitionOffsets
from archiver.process.workers import Workers

PLACE = Place("orders", "", 0, 0, ())


@pytest.mark.parametrize(
    ("log_start", "end", "epoch", "kin"),
    [
        (120, 150, 3, Kin.UNKNOWN),
        (120, 150, 4, Kin.UNKNOWN),
        (120, 150, -1, Kin.UNKNOWN),  # the brokers do not tell it
        (120, 150, 2, Kin.OTHER),  # a topic's epochs never sink
        (120, 120, 0, Kin.OTHER),
        (100, 100, 3, Kin.ADJOINS),
        (100, 150, 3, Kin.ADJOINS),
        (100, 100, 2, Kin.OTHER),
        (50, 50, 3, Kin.SHORTER),
        (0, 0, 0, Kin.SHORTER),
    ],
)
def test_a_log_without_any_archived_record(log_start: int, end: int, epoch: int, kin: Kin) -> None:
    """Offsets 0 to 99 are archived, the last of them in epoch 3. No broker is asked."""
    facts = SimpleNamespace(first=0, last=99, next=100, leader_epoch=3)
    archived = Archived("key", 1000, cast("object", facts), 100)  # type: ignore[arg-type]
    nobody = None
    identity = Identity(
        cast("KafkaClient", nobody), cast("SegmentSink", nobody), cast("Workers", nobody), UnprovenPolicy.REFUSE
    )
    at = PartitionOffsets(log_start=log_start, high_watermark=end, last_stable=end, leader_epoch=epoch)
    assert asyncio.run(identity.kin(PLACE, archived, at)) is kin
