"""Which lives a sweep walks together; and whether what it goes by is noted: later sweeps that take no more ask nobody."""

from dataclasses import replace

from archiver.archive.notes.applied_limits import LimitSource
from archiver.archive.notes.policies import NotedPolicy
from archiver.archive.notes.topics import Branch, Life, TopicFact
from archiver.config.model import ArchiverConfig
from archiver.config.retention import RetentionConfig
from archiver.upkeep.retention.planning.cluster import LiveCluster, LiveTopic
from archiver.upkeep.retention.planning.limits import Limits
from archiver.upkeep.retention.planning.partition_verdict import AskedItem, Going, GoingItem, ListedItem
from archiver.upkeep.retention.planning.survey import PartitionSweep
from archiver.upkeep.retention.planning.sweep_plan import TopicSweep
from archiver.upkeep.retention.planning.sweep_survey import SurveyedTopics
from archiver.upkeep.retention.planning.topic_terms import Asked, TopicTerms, judge_topic
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest, _tasks, goes_by_policy

TERMS = TopicTerms(topic="t", name="t", topic_id="T", root=0, newest=0, whose=LimitSource.TOPIC, limits=Limits(ms=1))


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


def test_each_topic_of_a_name_is_walked_through_its_own_lives() -> None:
    """Two topics of one name; each had the log of a partition cut back."""
    lives = (
        Life(life=0, topic_id="S"),
        Life(life=1, topic_id="S", parent=0, branches={0: Branch(offset=30)}),
        Life(life=2, topic_id="T"),
        Life(life=3, topic_id="T", parent=2, branches={1: Branch(offset=7)}),
    )
    configs = {"cleanup.policy": "delete"}
    fact = TopicFact(topic="t", cluster_id="c", partitions=2, configs=configs, lives=lives)
    known = LiveTopic(
        topic_id="T",
        effective={"cleanup.policy": "delete", "retention.ms": "5", "retention.bytes": "-1"},
        log_starts={0: 3, 1: 9},
        is_agreed=True,
    )
    asked = Asked(
        config=RetentionConfig.model_validate({"gone": [{"topics": "t", "ms": "1d"}]}),
        cluster=LiveCluster(cluster_id="c", topics={"t": known}, untold={}),
        holds=(),
        pinned={},
        store_now_ms=100,
    )
    noted = NotedPolicy(topic="t", topic_id="T", effective=known.effective, since_ms=0)
    former, current = (one for one in judge_topic(fact, [noted], asked) if isinstance(one, TopicTerms))
    former = replace(former, log_starts={0: None, 1: None, 5: None})  # which the archive has of it
    seen = SurveyedTopics(store_now_ms=100, facts={"t": fact}, terms=[former, current], kept=(), news=(), swept={})
    config = ArchiverConfig.model_validate({"storage": {"url": "s3://bucket"}})
    walked = {
        (task.root, task.partition): (list(task.lineage), task.terms.log_start, task.terms.limits.ms)
        for terms in seen.terms
        for task in _tasks(config, terms, seen, 100)
    }
    day_ms = 24 * 3600 * 1000
    assert walked == {
        (0, 0): ([(0, 0, 30), (1, 30, None)], None, day_ms),
        (0, 1): ([(0, 0, None)], None, day_ms),
        (0, 5): ([(0, 0, None)], None, day_ms),
        (2, 0): ([(2, 0, None)], 3, 5),
        (2, 1): ([(2, 0, 7), (3, 7, None)], 9, 5),
    }
