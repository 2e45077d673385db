"""What a sweep is decided on, and what is asked again before each of its batches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.format.control import FACT_FORMAT, append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.applied_limits import AppliedLimits, LimitSource, change_applied
from archiver.archive.notes.holds import Hold, add_hold, release_hold
from archiver.archive.notes.policies import NotedPolicy, note_policy
from archiver.archive.notes.topic_changes import record_topic
from archiver.config.model import ArchiverConfig
from archiver.store.port import ObjectKind
from archiver.upkeep.retention.planning.cluster import LiveCluster, LiveTopic
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits
from archiver.upkeep.retention.planning.sweep_survey import SweepSurvey
from archiver.upkeep.retention.planning.topic_terms import TopicTerms
from tests.support.memory_store import MemoryStore

LAYOUT = Layout()
HOUR = {"cleanup.policy": "delete", "retention.ms": "3600000", "retention.bytes": "-1"}
WEEK = {**HOUR, "retention.ms": "604800000"}
STORAGE = {"storage": {"url": "s3://bucket"}}
SAYS_ALL = {"gone": [{"topics": ".*", "ms": "1d"}], "fixed": {"ms": "1d"}}
CONFIG = ArchiverConfig.model_validate(STORAGE)


class Site:
    """An archived topic, and what the cluster tells of it."""

    def __init__(self, config: ArchiverConfig = CONFIG, *, asks: bool = True, store: MemoryStore | None = None) -> None:
        self.archive = Archive(store or MemoryStore(), LAYOUT)
        self.record("T")
        self.note(HOUR, 0)
        self.live = LiveTopic(topic_id="T", effective=HOUR, log_starts={0: 60}, is_agreed=True)
        self.is_there = True
        self.is_absent = True  # if it is not there: the brokers say so by name
        self.cluster_id = "c"
        self.asks, self.asked, self.holds = asks, 0, 0
        self.configure(config)

    def configure(self, config: ArchiverConfig) -> None:
        self.survey = SweepSurvey(self.archive, config, lambda _: self.told() if self.asks else None)

    def record(self, topic_id: str) -> None:
        policy = {"cleanup.policy": "delete"}
        record_topic(
            self.archive, topic="t", topic_id=topic_id, cluster_id="c", partitions=1, configs={}, effective=policy
        )

    def put_object(self, life: int, partition: int) -> None:
        key = self.archive.layout.segment_key(SegmentKey(topic="t", life=life, partition=partition, base=0))
        self.archive.store.put_if_absent(key, b"x", {}, kind=ObjectKind.SEGMENT)

    def told(self) -> LiveCluster:
        self.asked += 1
        absent = frozenset({"t"} if self.is_absent and not self.is_there else ())
        topics = {"t": self.live} if self.is_there else {}
        return LiveCluster(cluster_id=self.cluster_id, topics=topics, untold={}, absent=absent)

    def note(self, effective: dict[str, str], since_ms: int) -> None:
        note_policy(self.archive, NotedPolicy(topic="t", topic_id="T", effective=effective, since_ms=since_ms))

    def hold(self) -> None:
        add_hold(self.archive, Hold(name="h", topics="t", from_ms=5, reason="r", by="b", added_ms=0))

    def hold_all(self) -> None:
        self.holds += 1
        add_hold(self.archive, Hold(name=f"all-{self.holds}", topics="t", reason="r", by="b", added_ms=0))

    def release(self) -> None:
        release_hold(self.archive, f"all-{self.holds}", by="b", now_ms=0)

    def plan_restore(self, restore_id: str, base: object = 5) -> frozenset[str]:
        """Note the plan of a restore. Returns the key of the one object that it names."""
        key = LAYOUT.segment_key(SegmentKey(topic="t", life=0, partition=0, base=base if isinstance(base, int) else 0))
        row = [key, base, None, None, None]
        plan = {"format": FACT_FORMAT, "source": "t", "partitions": [{"partition": 0, "parts": [row]}]}
        append_fact(self.archive, f"restores/{restore_id}/back/plan", lambda _: plan)
        return frozenset({key})

    def keep_more_for_a_while(self) -> None:
        now_ms = self.survey.survey().store_now_ms
        self.note(WEEK, now_ms)
        self.note(HOUR, now_ms)


def note_applied(archive: Archive, applied: AppliedLimits) -> None:
    change_applied(archive, applied.stream, lambda _: applied)


def become(**changed: Any) -> Callable[[Site], None]:  # noqa: ANN401
    def change(site: Site) -> None:
        site.live = replace(site.live, **changed)

    return change


def come_back(topic_id: str) -> Callable[[Site], None]:
    def change(site: Site) -> None:
        site.is_there = True
        become(topic_id=topic_id)(site)

    return change


def be_unproven(site: Site) -> None:
    site.is_absent = False


def be_gone(site: Site) -> None:
    site.is_there = False


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


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda site: site.plan_restore("first"), ""),  # known before
        (Site.hold, "a hold was added"),
        (lambda site: site.plan_restore("second", base=7), "a restore of it has begun"),
        (
            lambda site: site.plan_restore("second", base="?"),
            "a restore has begun, of which it is not known what it reads",
        ),
        (become(effective=WEEK), ""),
    ],
    ids=["nothing", "hold", "restore", "unreadable", "not asked"],
)
def test_right_before_a_delete_holds_and_restores_are_read_and_no_cluster_is_asked(
    change: Callable[[Site], object], why: str
) -> None:
    site = Site()
    site.plan_restore("first")
    (terms,) = site.survey.survey().terms
    change(site)
    asked = site.asked
    assert site.survey.look(terms) == why
    assert site.asked == asked


def test_a_partition_whose_leader_does_not_tell_is_kept_and_told() -> None:
    site = Site()
    site.live = replace(site.live, log_starts={})
    found = site.survey.survey()
    assert [(one.topic, one.why) for one in found.kept] == [("t-0", "its leader did not tell where its log begins")]


def test_a_cluster_that_no_topic_of_the_archive_is_of_stops_the_sweep() -> None:
    """As after a disaster, with the address of the new one. A topic that is kept in any case counts as well."""
    site = Site()
    record_topic(site.archive, topic="u", topic_id="U", cluster_id="c", partitions=1, configs={})
    site.hold_all()
    assert [one.stop for one in site.survey.survey().kept] == ["", ""]
    site.cluster_id = "d"
    found = site.survey.survey()
    assert {one.topic: one.stop[:83] for one in found.kept} == dict.fromkeys(
        ("t", "u"), "no topic of the archive is of cluster d, which was asked: they are of c; set kafka."
    )
    assert (found.terms, found.news) == ([], [])


def test_a_topic_of_another_cluster_than_the_others_is_kept() -> None:
    site = Site()
    record_topic(site.archive, topic="u", topic_id="U", cluster_id="d", partitions=1, configs={})
    found = site.survey.survey()
    assert [(one.topic, one.stop) for one in found.kept] == [("u", "")]
    assert [one.topic for one in found.terms] == ["t"]


def test_a_restore_that_has_begun_since_stops_a_sweep() -> None:
    """What its plan names was not pinned when the sweep was planned. What was pinned then, the plan has left out."""
    site = Site()
    pinned = site.plan_restore("first")
    seen = site.survey.survey()
    (terms,) = seen.terms
    assert terms.pinned == {0: pinned}
    assert site.survey.change_of(terms, seen.facts["t"]) == ""
    site.plan_restore("second", base=7)
    assert site.survey.change_of(terms, seen.facts["t"]) == "a restore of it has begun"


def test_a_restore_whose_plan_cannot_be_read_keeps_the_topic() -> None:
    site = Site()
    site.plan_restore("mine", base="seven")
    (kept,) = site.survey.survey().kept
    assert kept.why.startswith("restore mine (control/restores/mine/back/plan does not tell what of it: ")
    assert kept.why.endswith(") reads it, and is not finished")
    key = LAYOUT.fact_key("restores/other/back/plan", 0)
    site.archive.store.put_if_absent(key, b"{", {}, kind=ObjectKind.FACT)  # which may be of any topic
    record_topic(site.archive, topic="u", topic_id="U", cluster_id="c", partitions=1, configs={})
    assert [one.topic for one in site.survey.survey().kept] == ["t", "u"]


def terms_of(site: Site) -> dict[str, TopicTerms]:
    return {one.name: one for one in site.survey.survey().terms}


def test_partitions_of_lives_that_are_gone_are_those_of_the_archive() -> None:
    site = Site(ArchiverConfig.model_validate({**STORAGE, "retention": SAYS_ALL}))
    site.record("U")
    for life, partition in ((0, 0), (0, 7), (1, 0), (1, 3)):
        site.put_object(life, partition)
    site.archive.store.put_if_absent("topics/t/partition=x/y", b"x", {}, kind=ObjectKind.SEGMENT)
    become(topic_id="U")(site)
    site.note(HOUR, 0)
    note_policy(site.archive, NotedPolicy(topic="t", topic_id="U", effective=HOUR, since_ms=0))
    found = terms_of(site)
    assert {name: (one.whose, one.log_starts) for name, one in found.items()} == {
        "t@0": (LimitSource.GONE, {0: None, 7: None}),
        "t": (LimitSource.TOPIC, {0: 60}),
    }
    site.is_there = False
    assert {name: one.log_starts for name, one in terms_of(site).items()} == {
        "t@0": {0: None, 7: None},
        "t": {0: None, 3: None},
    }


def test_each_kind_of_limits_has_a_memory_of_its_own() -> None:
    site = Site(ArchiverConfig.model_validate({**STORAGE, "retention": SAYS_ALL}))
    applied = AppliedLimits(topic="t", life=0, whose=LimitSource.TOPIC, ms=5, bytes=6, floor_ms=7)
    note_applied(site.archive, applied)
    assert terms_of(site)["t"].noted == Limits(ms=5, bytes=6, floor_ms=7)
    site.is_there = False
    assert terms_of(site)["t"].noted == FOR_EVER
    note_applied(site.archive, replace(applied, whose=LimitSource.GONE, ms=9))
    assert terms_of(site)["t"].noted == Limits(ms=9, bytes=6, floor_ms=7)
    site.record("U")  # another topic of that name was seen, and went
    assert {name: one.noted.ms for name, one in terms_of(site).items()} == {"t@0": 9, "t": None}


def test_a_run_that_asks_no_cluster_notes_no_policy() -> None:
    site = Site(ArchiverConfig.model_validate({**STORAGE, "retention": SAYS_ALL}), asks=False)
    site.put_object(0, 2)
    found = site.survey.survey()
    assert found.news == []
    assert [(one.whose, one.log_starts) for one in found.terms] == [(LimitSource.FIXED, {2: None})]
    assert found.kept == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: None, ""),
        (Site.hold, "a hold was added"),
        (come_back("T"), "the cluster tells otherwise whether it has the topic"),
        (come_back("U"), ""),  # the one that was archived is gone all the same
        (come_back(""), "the cluster has no topic ids: nothing proves that it is the topic that was archived"),
        (be_unproven, "the cluster did not name it, which proves nothing"),
        (other_cluster, "it was archived of cluster c, and this is d"),
    ],
    ids=["nothing", "hold", "back", "another", "no-ids", "unproven", "cluster"],
)
def test_that_a_topic_is_gone_is_proved_again_before_a_batch(change: Callable[[Site], None], why: str) -> None:
    site = Site(ArchiverConfig.model_validate({**STORAGE, "retention": SAYS_ALL}))
    be_gone(site)
    seen = site.survey.survey()
    (terms,) = seen.terms
    change(site)
    assert site.survey.change_of(terms, seen.facts["t"]) == why


@pytest.mark.parametrize(
    ("change", "why"),
    [(lambda _: None, ""), (Site.hold, "a hold was added"), (be_gone, ""), (other_cluster, "")],
    ids=["nothing", "hold", "gone", "cluster"],
)
def test_a_run_that_asks_no_cluster_asks_storage_again_before_a_batch(change: Callable[[Site], None], why: str) -> None:
    site = Site(ArchiverConfig.model_validate({**STORAGE, "retention": SAYS_ALL}), asks=False)
    seen = site.survey.survey()
    change(site)
    assert site.survey.change_of(seen.terms[0], seen.facts["t"]) == why
