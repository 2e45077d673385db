"""Whether what a sweep goes by is noted: later sweeps that take no more ask nobody."""

from archiver.archive.applied_limits import Whose
from archiver.spark.retention import SweepRequest, goes_by_policy
from archiver.upkeep.retention.limits import Limits
from archiver.upkeep.retention.partition_plan import AskedItem, Going, GoingItem, ListedItem
from archiver.upkeep.retention.plan import TopicSweep
from archiver.upkeep.retention.survey import PartitionSweep
from archiver.upkeep.retention.topic_terms import TopicTerms

TERMS = TopicTerms(topic="t", name="t", topic_id="T", root=0, newest=0, whose=Whose.TOPIC, limits=Limits(ms=1))


def going(count: int) -> TopicSweep:
    told = AskedItem(next=1, min_timestamp=0, max_timestamp=0, source_bytes=1, records=1)
    item = ListedItem(life=0, key="k", base=0, put_ms=0)
    gone = (GoingItem(item=item, told=told, why=Going.TIME),) * count
    return TopicSweep(terms=TERMS, partitions=[PartitionSweep(topic="t", partition=0, going=gone)])


def test_what_goes_by_the_limits_is_foreseen() -> None:
    assert goes_by_policy(SweepRequest(), going(10), going(10))
    assert goes_by_policy(SweepRequest(without_kafka=True), going(10), going(10))


def test_a_part_that_was_agreed_on_foresees_no_more() -> None:
    assert not goes_by_policy(SweepRequest(now_ms=1), going(10), going(10))
    assert not goes_by_policy(SweepRequest(digest="d"), going(10), going(7))
    assert not goes_by_policy(SweepRequest(), going(10), going(0))
    assert not goes_by_policy(SweepRequest(), going(0), going(0))
    assert goes_by_policy(SweepRequest(digest="d"), going(10), going(8))  # some became old since it was shown
