"""From where on a partition is compared with Kafka: a hole that an object tells does not excuse what Kafka still has."""

from dataclasses import replace

import pytest

from archiver.archive.format.layout import SegmentKey
from archiver.archive.format.store_clock import from_epoch_ms
from archiver.archive.index.inventory import arrange
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.segment_facts import Hole, HoleCause
from archiver.upkeep.compare import first_compared
from tests.support.segments import facts_of


def begin(cause: HoleCause, *, begun_late: bool) -> int:
    """Where the comparison begins. The first object says that it could not read offsets 0 to 39."""
    hole = Hole(first_offset=0, last_offset=39, cause=cause)
    facts = replace(facts_of(0, 50), first=40, holes=(hole,), records=10)
    segment = Segment(
        key=SegmentKey(topic="t", partition=0, base=0),
        object_key="topics/t/partition=0/t+0-00000000000000000000.data",
        size=1,
        etag="e",
        put_at=from_epoch_ms(0),
        facts=facts,
    )
    return first_compared(arrange([segment]).readable, begun_late=begun_late)


def test_a_backup_that_began_late_is_compared_from_there() -> None:
    assert begin(HoleCause.BEFORE_START, begun_late=True) == 40


@pytest.mark.parametrize(
    ("cause", "begun_late"), [(HoleCause.BEFORE_START, False), (HoleCause.EXPIRED, True), (HoleCause.EXPIRED, False)]
)
def test_no_other_hole_excuses_what_kafka_still_has(cause: HoleCause, begun_late: bool) -> None:
    assert begin(cause, begun_late=begun_late) == 0
