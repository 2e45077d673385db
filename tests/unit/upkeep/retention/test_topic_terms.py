"""By which terms a topic is swept."""

from collections.abc import Sequence

from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.archive.policies import NotedPolicy
from archiver.archive.topics import TopicFact, read_newest_topic_facts, record_topic
from archiver.config.retention import RetentionConfig
from archiver.upkeep.retention.cluster import LiveCluster, LiveTopic
from archiver.upkeep.retention.limits import Limits
from archiver.upkeep.retention.topic_terms import Asked, KeptTopic, TopicTerms, judge_topic
from tests.support.memory_store import MemoryStore

DAY_MS = 24 * 3600 * 1000
NOW_MS = 100 * DAY_MS
WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "retention.bytes": "-1"}
HOUR = {**WEEK, "retention.ms": "3600000"}
UNTOLD = {"retention.ms": "3600000"}


def topic_fact() -> TopicFact:
    archive = Archive(MemoryStore(), Layout())
    record_topic(archive, topic="t", topic_id="T", cluster_id="c", partitions=1, configs={})
    fact = read_newest_topic_facts(archive)["t"]
    assert isinstance(fact, TopicFact)
    return fact


def seen(effective: dict[str, str], days_ago: int, swept_by: dict[str, str] | None = None) -> NotedPolicy:
    since_ms = NOW_MS - days_ago * DAY_MS
    return NotedPolicy(topic="t", topic_id="T", effective=effective, since_ms=since_ms, swept_by=swept_by)


def judge(noted: Sequence[NotedPolicy], effective: dict[str, str]) -> TopicTerms | KeptTopic:
    live = LiveTopic(topic_id="T", effective=effective, log_starts={0: 0})
    cluster = LiveCluster(cluster_id="c", topics={"t": live}, untold={})
    asked = Asked(config=RetentionConfig(), cluster=cluster, holds=(), pinned={}, store_now_ms=NOW_MS)
    return judge_topic(topic_fact(), noted, asked)


def test_what_was_seen_while_configs_did_not_tell_keeps_this_topic_and_stops_no_other() -> None:
    kept = judge([seen(HOUR, 50), seen(UNTOLD, 2), seen(HOUR, 1)], HOUR)
    assert isinstance(kept, KeptTopic)
    assert kept.why == "what it kept within retention.grace is not known: cleanup.policy, retention.bytes is not known"
    assert isinstance(judge([seen(UNTOLD, 50), seen(HOUR, 20)], HOUR), TopicTerms)  # long ago


def test_a_topic_is_in_grace_as_long_as_it_is_swept_by_more_than_it_keeps() -> None:
    terms = judge([seen(WEEK, 50, WEEK)], HOUR)
    assert isinstance(terms, TopicTerms)
    assert (terms.limits, terms.is_in_grace) == (Limits(ms=7 * DAY_MS), True)
    terms = judge([seen(WEEK, 50, WEEK), seen(HOUR, 8, WEEK)], HOUR)
    assert isinstance(terms, TopicTerms)
    assert (terms.limits, terms.is_in_grace) == (Limits(ms=3_600_000), False)
    assert terms.swept_by == Limits(ms=7 * DAY_MS)
