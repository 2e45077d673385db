"""What is asked again before each batch of a sweep."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.handle import Archive
from archiver.archive.holds import Hold, add_hold
from archiver.archive.layout import Layout
from archiver.archive.policies import NotedPolicy, note_policy
from archiver.archive.topics import record_topic
from archiver.config.model import ArchiverConfig
from archiver.upkeep.retention.cluster import LiveCluster, LiveTopic
from archiver.upkeep.retention.sweep_survey import SweepSurvey
from tests.support.memory_store import MemoryStore

HOUR = {"cleanup.policy": "delete", "retention.ms": "3600000", "retention.bytes": "-1"}
WEEK = {**HOUR, "retention.ms": "604800000"}
CONFIG = ArchiverConfig.model_validate({"storage": {"url": "s3://bucket"}})


class Site:
    """An archived topic, and what the cluster tells of it."""

    def __init__(self) -> None:
        self.archive = Archive(MemoryStore(), Layout())
        record_topic(self.archive, topic="t", topic_id="T", cluster_id="c", partitions=1, configs={})
        self.note(HOUR, 0)
        self.live = LiveTopic(topic_id="T", effective=HOUR, log_starts={0: 60})
        self.cluster_id = "c"
        self.survey = SweepSurvey(self.archive, CONFIG, lambda _: self.told())

    def told(self) -> LiveCluster:
        return LiveCluster(cluster_id=self.cluster_id, topics={"t": self.live}, untold={})

    def note(self, effective: dict[str, str], since_ms: int) -> None:
        note_policy(self.archive, NotedPolicy(topic="t", topic_id="T", effective=effective, since_ms=since_ms))

    def hold(self) -> None:
        add_hold(self.archive, Hold(name="h", topics="t", from_ms=5, reason="r", by="b", added_ms=0))

    def keep_more_for_a_while(self) -> None:
        now_ms = self.survey.survey().store_now_ms
        self.note(WEEK, now_ms)
        self.note(HOUR, now_ms)


def become(**changed: Any) -> Callable[[Site], None]:  # noqa: ANN401
    def change(site: Site) -> None:
        site.live = replace(site.live, **changed)

    return change


def other_cluster(site: Site) -> None:
    site.cluster_id = "d"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: None, ""),
        (Site.hold, "a hold was added"),
        (Site.keep_more_for_a_while, "another sweep has noted that the topic kept more"),
        (become(effective=WEEK), "what the topic keeps was changed"),
        (
            become(topic_id="U"),
            "it was created again, and no backup has seen the new one yet; no entry of retention.gone says how long it is kept then",
        ),
        (become(log_starts={0: 61}), ""),
        (become(log_starts={0: 59}), "the log of partition 0 does not begin where it did"),
        (become(log_starts={}), "the log of partition 0 does not begin where it did"),
        (other_cluster, "it was archived of cluster c, and this is d"),
    ],
    ids=[
        "nothing",
        "hold",
        "noted",
        "configs",
        "id",
        "log-start-later",
        "log-start-earlier",
        "no-log-start",
        "cluster",
    ],
)
def test_what_has_changed_is_found_before_a_batch(change: Callable[[Site], None], why: str) -> None:
    site = Site()
    seen = site.survey.survey()
    (terms,) = seen.terms
    change(site)
    assert site.survey.change_of(terms, seen.facts["t"]) == why


def test_a_partition_whose_leader_does_not_tell_is_kept_and_told() -> None:
    site = Site()
    site.live = replace(site.live, log_starts={})
    found = site.survey.survey()
    assert [(one.topic, one.why) for one in found.kept] == [("t-0", "its leader did not tell where its log begins")]
