"""By which terms a topic is swept, in each of its lives."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.notes.applied_limits import LimitSource
from archiver.archive.notes.holds import Hold
from archiver.archive.notes.policies import NotedPolicy
from archiver.archive.notes.topics import Branch, Life, TopicFact
from archiver.config.retention import RetentionConfig
from archiver.upkeep.retention.planning.cluster import LiveCluster, LiveTopic
from archiver.upkeep.retention.planning.limits import Limits
from archiver.upkeep.retention.planning.topic_terms import Asked, Judged, KeptTopic, TopicTerms, judge_topic

DAY_MS = 24 * 3600 * 1000
NOW_MS = 100 * DAY_MS
WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "retention.bytes": "-1"}
HOUR = {**WEEK, "retention.ms": "3600000"}
UNTOLD = {"retention.ms": "3600000"}
GONE = {"gone": [{"topics": "t.*", "ms": "30d"}, {"topics": ".*", "ms": "1d"}]}
FIXED = {"fixed": {"ms": "30d"}}
ABSENT = LiveCluster(cluster_id="c", topics={}, untold={}, absent=frozenset({"t"}))


def fact_of(*ids: str, **changed: Any) -> TopicFact:  # noqa: ANN401
    """A topic that was created so many times; the last of these logs was cut back once."""
    lives = [Life(life=number, topic_id=topic_id) for number, topic_id in enumerate(ids)]
    child = Life(life=len(ids), topic_id=ids[-1], parent=len(ids) - 1, branches={0: Branch(offset=5)})
    fact = TopicFact(
        topic="t",
        cluster_id="c",
        partitions=1,
        configs={},
        lives=(*lives, child),
        effective={"cleanup.policy": "delete"},
    )
    return replace(fact, **changed)


def seen(effective: dict[str, str], days_ago: int) -> NotedPolicy:
    return NotedPolicy(topic="t", topic_id="T", effective=effective, since_ms=NOW_MS - days_ago * DAY_MS)


def live(topic_id: str, *, is_agreed: bool = True, effective: Mapping[str, str] = WEEK) -> LiveCluster:
    topic = LiveTopic(topic_id=topic_id, effective=effective, log_starts={0: 7}, is_agreed=is_agreed)
    return LiveCluster(cluster_id="c", topics={"t": topic}, untold={})


def judge(
    fact: TopicFact,
    cluster: LiveCluster | None,
    config: dict[str, Any] | None = None,
    noted: Sequence[NotedPolicy] = (seen(WEEK, 50),),
    **asked: Any,  # noqa: ANN401
) -> list[Judged]:
    known: dict[str, Any] = {"holds": (), "pinned": {}, "store_now_ms": NOW_MS, **asked}
    return judge_topic(
        fact, noted, Asked(config=RetentionConfig.model_validate(config or {}), cluster=cluster, **known)
    )


def whys(judged: list[Judged]) -> dict[str, str]:
    return {one.topic: one.why for one in judged if isinstance(one, KeptTopic)}


def terms_of(judged: list[Judged]) -> dict[str, TopicTerms]:
    return {one.name: one for one in judged if isinstance(one, TopicTerms)}


def only(judged: list[Judged]) -> TopicTerms:
    (terms,) = judged
    assert isinstance(terms, TopicTerms)
    return terms


# --- a topic that the cluster has


def test_what_was_seen_while_configs_did_not_tell_keeps_this_topic_and_stops_no_other() -> None:
    cluster = live("T", effective=HOUR)
    kept = judge(fact_of("T"), cluster, noted=[seen(HOUR, 50), seen(UNTOLD, 2), seen(HOUR, 1)])
    assert whys(kept) == {
        "t": "what it kept within retention.grace is not known: cleanup.policy, retention.bytes is not known"
    }
    assert terms_of(judge(fact_of("T"), cluster, noted=[seen(UNTOLD, 50), seen(HOUR, 20)]))  # long ago


def test_a_shorter_policy_counts_when_its_grace_is_over() -> None:
    cluster = live("T", effective=HOUR)
    assert only(judge(fact_of("T"), cluster, noted=[seen(WEEK, 50)])).limits == Limits(ms=7 * DAY_MS)
    assert only(judge(fact_of("T"), cluster, noted=[seen(WEEK, 50), seen(HOUR, 8)])).limits == Limits(ms=3_600_000)


def test_the_live_topic_is_swept_through_all_lives_of_its_root() -> None:
    terms = only(judge(fact_of("T"), live("T")))
    assert (terms.root, terms.newest, terms.whose, terms.name) == (0, 1, LimitSource.TOPIC, "t")
    assert (terms.log_starts, terms.effective) == ({0: 7}, WEEK)


def test_what_the_first_override_says_counts_and_all_else_is_of_the_section() -> None:
    config = {
        "factor": 2,
        "floor": "1h",
        "grace": "60d",
        "overrides": [{"topics": "other", "factor": 9}, {"topics": "t+", "floor": "3d"}, {"topics": ".*", "factor": 5}],
    }
    noted = [seen(WEEK, 50), seen(HOUR, 40)]
    cluster = live("T", effective=HOUR)
    assert only(judge(fact_of("T"), cluster, config, noted)).limits == Limits(ms=14 * DAY_MS, floor_ms=3 * DAY_MS)
    config["overrides"] = [{"topics": "t", "grace": "1d", "factor": 1}]
    assert only(judge(fact_of("T"), cluster, config, noted)).limits == Limits(ms=3_600_000, floor_ms=3_600_000)
    config["overrides"] = [{"topics": "t.", "floor": "3d"}]  # the whole name must match
    assert only(judge(fact_of("T"), cluster, config, noted)).limits == Limits(ms=14 * DAY_MS, floor_ms=3_600_000)


# --- what keeps a topic in all its lives


@pytest.mark.parametrize(
    ("config", "asked", "why"),
    [
        ({"keep": ["t"]}, {}, "retention.keep names it"),
        ({}, {"pinned": {"t": "back"}}, "restore back reads it, and is not finished"),
        (
            {},
            {"holds": (Hold(name="h", topics="t", reason="r", by="b", added_ms=0),)},
            "it is on hold: h",
        ),
    ],
    ids=["keep", "restore", "hold"],
)
@pytest.mark.parametrize("cluster", [None, ABSENT, live("T"), live("V")], ids=["unasked", "absent", "live", "newer"])
def test_what_keeps_a_topic_keeps_it_by_all_terms(
    config: dict[str, Any], asked: dict[str, Any], why: str, cluster: LiveCluster | None
) -> None:
    assert whys(judge(fact_of("S", "T"), cluster, {**GONE, **FIXED, **config}, **asked)) == {"t": why}
    released = judge(fact_of("S", "T"), cluster, GONE | FIXED)
    assert terms_of(released)


def test_a_hold_of_some_time_holds_in_all_lives() -> None:
    hold = Hold(name="h", topics="t", from_ms=3, until_ms=9, reason="r", by="b", added_ms=0)
    found = terms_of(judge(fact_of("S", "T"), live("T"), GONE, holds=(hold,)))
    assert {name: list(one.holds) for name, one in found.items()} == {"t@0": [(3, 9)], "t": [(3, 9)]}


# --- topics that are gone


def test_a_topic_that_the_cluster_no_longer_has_is_kept_until_the_configuration_says_otherwise() -> None:
    what = "the cluster no longer has it; no entry of retention.gone says how long it is kept then"
    assert whys(judge(fact_of("S", "T"), ABSENT)) == {"t@0": what, "t": what}
    assert whys(judge(fact_of("T"), ABSENT, {"gone": [{"topics": "x.*", "ms": "1d"}]})) == {"t": what}
    found = terms_of(judge(fact_of("S", "T"), ABSENT, GONE | {"floor": "2d", "factor": 5}))
    assert {name: (one.root, one.newest, one.whose) for name, one in found.items()} == {
        "t@0": (0, 0, LimitSource.GONE),
        "t": (1, 2, LimitSource.GONE),
    }
    assert {one.limits for one in found.values()} == {Limits(ms=30 * DAY_MS, floor_ms=2 * DAY_MS)}
    assert {(*one.log_starts, *one.effective) for one in found.values()} == {()}


def test_a_topic_that_was_created_again_goes_by_its_own_policy_and_the_one_before_by_gone() -> None:
    kept = judge(fact_of("S", "T"), live("T"))
    assert whys(kept) == {
        "t@0": "it is of a topic that was created again; no entry of retention.gone says how long it is kept then"
    }
    assert terms_of(kept)["t"].limits == Limits(ms=7 * DAY_MS)
    both = terms_of(judge(fact_of("S", "T"), live("T"), GONE))
    assert {name: (one.whose, one.limits) for name, one in both.items()} == {
        "t@0": (LimitSource.GONE, Limits(ms=30 * DAY_MS)),
        "t": (LimitSource.TOPIC, Limits(ms=7 * DAY_MS)),
    }
    assert {name: dict(one.log_starts) for name, one in both.items()} == {"t@0": {}, "t": {0: 7}}


@pytest.mark.parametrize("cluster", [None, ABSENT, live("T"), live("V")])
def test_positions_of_groups_go_by_no_other_limit_than_their_own(cluster: LiveCluster | None) -> None:
    """And only of the topic that the cluster has: what is gone, or asks no cluster, has no fold that a sweep makes."""
    found = judge(fact_of("S", "T", topic="__consumer_offsets"), cluster, GONE | FIXED)
    assert not terms_of(found)
    assert set(whys(found).values()) <= {
        "it goes by retention.groups, and only while the cluster has it",
        "the cluster did not name it, which proves nothing",
    }


# --- a run that asks no cluster


def test_fixed_limits_keep_one_file_of_kafka_more() -> None:
    config = {"fixed": {"ms": "30d", "bytes": "10GiB"}, "floor": "2h", "factor": 3}
    terms = only(judge(fact_of("T"), None, config, noted=()))
    gibibyte = 1024**3
    assert terms.limits == Limits(ms=37 * DAY_MS, bytes=11 * gibibyte, floor_ms=7_200_000)
    assert (terms.whose, terms.log_starts, terms.effective) == (LimitSource.FIXED, {}, {})
    config = {"fixed": {"bytes": 5, "segment-bytes": 2, "segment-ms": 0}, "overrides": [{"topics": "t", "ms": "1d"}]}
    assert only(judge(fact_of("T"), None, config)).limits == Limits(ms=DAY_MS, bytes=7)
    assert whys(judge(fact_of("T"), None, {"overrides": [{"topics": "x", "ms": "1d"}]})) == {
        "t": "retention.fixed says nothing of it"
    }


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"effective": None}, "the archive does not know its cleanup.policy, and this run asks no cluster"),
        ({"effective": {}}, "the archive does not know its cleanup.policy, and this run asks no cluster"),
        ({"effective": {"cleanup.policy": "compact"}}, "it keeps its records for ever"),
        ({"effective": None, "configs": {"cleanup.policy": "compact"}}, "it keeps its records for ever"),
        ({"effective": {"cleanup.policy": "deleted"}}, "it keeps its records for ever"),
        ({"effective": {"cleanup.policy": "compact, delete"}}, None),
        ({"effective": None, "configs": {"cleanup.policy": "delete"}}, None),
    ],
)
def test_only_what_the_archive_knows_to_delete_goes_by_fixed_limits(known: dict[str, Any], why: str | None) -> None:
    found = judge(fact_of("T", **known), None, FIXED)
    assert whys(found) == ({} if why is None else {"t": why})


# --- all of it at random, against a plain reading of the rules


def draw_fact(rng: random.Random) -> TopicFact:
    ids = [rng.choice(("", "S", "T", "U")) for _ in range(rng.randint(1, 3))]
    effective = rng.choice((None, {}, {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}))
    return fact_of(*ids, effective=effective)


def draw_cluster(rng: random.Random) -> LiveCluster | None:
    if rng.randrange(5) == 0:
        return None
    found = live(rng.choice(("", "S", "T", "U", "V")), is_agreed=rng.randrange(4) > 0)
    if rng.randrange(2):
        found = rng.choice((ABSENT, ABSENT, replace(ABSENT, absent=frozenset())))
    return replace(found, cluster_id=rng.choice(("c", "c", "c", "d")))


def is_proved_gone(topic_id: str, ids: Sequence[str], cluster: LiveCluster) -> bool:
    topic = cluster.topics.get("t")
    if cluster.cluster_id != "c" or topic_id == "":
        return False
    if topic is None:
        return "t" in cluster.absent
    is_behind = topic.topic_id in ids and topic.topic_id != ids[-1]
    return topic.is_agreed and topic.topic_id not in {"", topic_id} and not is_behind


def whose_may_go(fact: TopicFact, cluster: LiveCluster | None, config: RetentionConfig) -> dict[int, LimitSource]:
    """By life: whose limits let something of it go. What is in none stays."""
    roots = [life for life in fact.lives if life.parent is None]
    ids = [life.topic_id for life in roots]
    deletes = (fact.effective or {}).get("cleanup.policy") == "delete"
    if cluster is None:
        return {roots[-1].life: LimitSource.FIXED} if deletes and config.fixed.ms is not None else {}
    gone = [life.life for life in roots if deletes and config.gone and is_proved_gone(life.topic_id, ids, cluster)]
    found = dict.fromkeys(gone, LimitSource.GONE)
    if "t" in cluster.topics and cluster.topics["t"].topic_id == ids[-1] != "" and cluster.cluster_id == "c":
        found[roots[-1].life] = LimitSource.TOPIC
    return found


def test_what_may_go_is_what_the_rules_say(seed: int) -> None:
    rng, met = random.Random(seed), set[LimitSource]()
    for _ in range(5000):
        fact, cluster = draw_fact(rng), draw_cluster(rng)
        written = {**(GONE if rng.randrange(4) else {}), **(FIXED if rng.randrange(4) else {})}
        found = terms_of(judge(fact, cluster, written))
        expected = whose_may_go(fact, cluster, RetentionConfig.model_validate(written))
        assert {one.root: one.whose for one in found.values()} == expected, (fact, cluster, written)
        met.update(expected.values())
        for one in found.values():
            own = [life.life for life in fact.lives if one.root in {life.life, life.parent}]
            assert (one.newest, one.topic_id) == (own[-1], fact.lives[one.root].topic_id)
            assert bool(one.log_starts) is (one.whose is LimitSource.TOPIC)
    assert met == set(LimitSource)
