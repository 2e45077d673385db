"""Selects the limits that a sweep applies to a topic, or the reason to keep it. Pure: the caller reads storage and cluster.

The lives of a topic that descend from one without a parent have terms of their own. Those of the cluster's present topic
follow its configs. All others belong to deleted topics, whatever their successor keeps: they stay, unless the
configuration sets a time. A run that asks no cluster knows neither: it uses fixed limits of the configuration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from archiver.archive.notes.applied_limits import LimitSource
from archiver.archive.notes.holds import Hold
from archiver.archive.notes.policies import NotedPolicy
from archiver.archive.notes.topics import TopicFact, cleanup_policy
from archiver.config.retention import RetentionConfig
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.upkeep.retention.planning.cluster import LiveCluster, LiveTopic
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits, limits_of, policy_in_force, says_delete, widened
from archiver.upkeep.retention.planning.partition_verdict import HeldTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTerms:
    """The terms of a sweep for the lives of a topic that descend from one."""

    topic: str
    name: str  # the topic's, or of lives before it was created again, `<topic>@<life>`
    topic_id: str
    root: int  # the first of these lives
    newest: int  # the last of them
    whose: LimitSource
    limits: Limits
    noted: Limits = FOR_EVER  # the longest since the last agreement, as sweeps have noted them
    swept_by: Limits = FOR_EVER  # the longest of these and `limits`: deleting records within them needs an agreement
    log_starts: Mapping[int, int | None] = field(default_factory=dict)  # None: no broker has a log of it
    effective: Mapping[str, str] = field(default_factory=dict)
    holds: Sequence[HeldTimes] = field(default=())
    pinned: Mapping[int, frozenset[str]] = field(default_factory=dict)  # objects that restores read, by partition


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTopic:
    """A topic that is not swept, or one of its lives (`<topic>@<life>`), and why.

    `is_damage`: its notes cannot be read. `stop`: the problem to solve before it is swept; empty: it is kept as it should be.
    """

    topic: str
    why: str
    is_damage: bool = False
    stop: str = ""


Judged = TopicTerms | KeptTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The inputs of the decision. `cluster` None: this run asks none."""

    config: RetentionConfig
    cluster: LiveCluster | None
    holds: Sequence[Hold]
    pinned: Mapping[str, str]  # topics with an unfinished restore whose objects are unknown, by restore
    store_now_ms: int
    pinned_objects: Mapping[str, Mapping[int, frozenset[str]]] = field(default_factory=dict)  # that restores read


def judge_topic(fact: TopicFact, noted: Sequence[NotedPolicy], asked: Asked) -> list[Judged]:
    """Return the terms of a topic's sweep. `noted`: its policies, as seen by earlier sweeps."""
    try:
        _check_topic(fact, asked)
    except _KeptError as kept:
        return [KeptTopic(topic=fact.topic, why=str(kept))]
    found: list[Judged] = []
    for root in [life.life for life in fact.lives if life.parent is None]:
        try:
            found.append(_terms(fact, root, noted, asked))
        except _KeptError as kept:
            found.append(KeptTopic(topic=_name_of(fact, root), why=str(kept)))
    return found


class _KeptError(Exception):
    """Return why a topic is not swept."""


def _check_topic(fact: TopicFact, asked: Asked) -> None:
    """Check the reasons to keep all lives of a topic."""
    name = fact.topic
    if asked.config.keeps(name):
        raise _KeptError("retention.keep names it")
    if name in asked.pinned:
        raise _KeptError(f"restore {asked.pinned[name]} reads it, and is not finished")
    always = next((one.name for one in _holds(fact, asked) if one.from_ms is None and one.until_ms is None), None)
    if always is not None:
        raise _KeptError(f"it is on hold: {always}")
    if asked.cluster is not None:
        _check_told(fact, asked.cluster)


def _check_told(fact: TopicFact, cluster: LiveCluster) -> None:
    """Check that the cluster returned the topic's id, or that it does not exist."""
    name, live = fact.topic, cluster.topics.get(fact.topic)
    if cluster.cluster_id != fact.cluster_id:
        raise _KeptError(f"it was archived of cluster {fact.cluster_id}, and this is {cluster.cluster_id}")
    if live is None:
        if name not in cluster.absent:
            raise _KeptError(cluster.untold.get(name, "the cluster did not name it, which proves nothing"))
        return
    if not live.topic_id:
        raise _KeptError("the cluster has no topic ids: nothing proves that it is the topic that was archived")
    if live.topic_id != fact.current.topic_id and live.topic_id in {life.topic_id for life in fact.lives}:
        raise _KeptError(
            "the cluster tells that it is the topic of an earlier life: a broker that is behind may say so"
        )


def _holds(fact: TopicFact, asked: Asked) -> list[Hold]:
    return [hold for hold in asked.holds if hold.is_in_force and hold.matches(fact.topic)]


def _is_current(fact: TopicFact, root: int) -> bool:
    return root == fact.root(fact.current.life)


def _name_of(fact: TopicFact, root: int) -> str:
    return fact.topic if _is_current(fact, root) else f"{fact.topic}@{root}"


def _terms(fact: TopicFact, root: int, noted: Sequence[NotedPolicy], asked: Asked) -> TopicTerms:
    config, topic_id = asked.config.of_topic(fact.topic), fact.lives[root].topic_id
    live = None if asked.cluster is None else asked.cluster.topics.get(fact.topic)
    is_live = live is not None and live.topic_id == topic_id and _is_current(fact, root)
    if fact.topic == OFFSETS_TOPIC and not is_live:
        raise _KeptError("it goes by retention.groups, and only while the cluster has it")
    if asked.cluster is None:
        whose, limits = LimitSource.FIXED, _fixed_limits(fact, root, config)
    elif live is not None and is_live:
        whose, limits = LimitSource.TOPIC, _own_limits(fact, noted, live, config, asked.store_now_ms)
    else:
        whose, limits = LimitSource.GONE, _limits_of_gone(fact, root, config, live)
    return TopicTerms(
        topic=fact.topic,
        name=_name_of(fact, root),
        topic_id=topic_id,
        root=root,
        newest=fact.lives_of(root)[-1],
        whose=whose,
        limits=replace(limits, floor_ms=config.floor_ms),
        log_starts=live.log_starts if live is not None and is_live else {},
        effective=live.effective if live is not None and is_live else {},
        holds=tuple(HeldTimes(hold.from_ms, hold.until_ms) for hold in _holds(fact, asked)),
        pinned=asked.pinned_objects.get(fact.topic, {}),
    )


def policy_news(fact: TopicFact, noted: Sequence[NotedPolicy], live: LiveTopic, now_ms: int) -> list[NotedPolicy]:
    """Return the policy to note now: none if it is unchanged."""
    if noted and noted[-1].effective == live.effective:
        return []
    return [NotedPolicy(topic=fact.topic, topic_id=live.topic_id, effective=live.effective, since_ms=now_ms)]


def kept_by_policy(policy: NotedPolicy, config: RetentionConfig) -> Limits:
    """Return the limits of a policy, with the factor. A policy without limits keeps everything."""
    try:
        return widened(limits_of(policy.effective), config.factor)
    except ValueError:
        return FOR_EVER


def _own_limits(
    fact: TopicFact, noted: Sequence[NotedPolicy], live: LiveTopic, config: RetentionConfig, now_ms: int
) -> Limits:
    """Return the limits of the topic's own configs: the longest within the time of grace."""
    try:
        now = limits_of(live.effective)
    except ValueError as error:
        raise _KeptError(f"what it keeps is not known: {error}") from error
    if fact.topic == OFFSETS_TOPIC and now.keeps_all:
        raise _KeptError("it is kept for ever: it tells where groups stood as of any time (retention.groups)")
    if not noted:
        raise _KeptError(
            "what it keeps was never noted before; a sweep that is no dry run notes it, and the next one goes by it"
        )
    try:
        in_force = policy_in_force([*noted, *policy_news(fact, noted, live, now_ms)], now_ms, config.grace_ms)
    except ValueError as error:  # it was seen while its configs were unreadable
        raise _KeptError(f"what it kept within retention.grace is not known: {error}") from error
    if now.keeps_all or in_force.keeps_all:
        raise _KeptError(
            "it keeps its records for ever" if now.keeps_all else "it kept its records for ever within retention.grace"
        )
    return widened(in_force, config.factor)


def _limits_of_gone(fact: TopicFact, root: int, config: RetentionConfig, live: LiveTopic | None) -> Limits:
    """Return how long lives are kept whose topic the cluster does not have; names and topic ids alone prove that."""
    ms = config.gone_ms_of(fact.topic)
    if live is None:
        what = "the cluster no longer has it"
    elif _is_current(fact, root):
        what = "it was created again, and no backup has seen the new one yet"
    else:
        what = "it is of a topic that was created again"
    if ms is None:
        raise _KeptError(f"{what}; no entry of retention.gone says how long it is kept then")
    if fact.lives[root].topic_id in {"", None if live is None else live.topic_id}:
        raise _KeptError("its topic id does not prove that the cluster no longer has it")
    if live is not None and not live.is_agreed:
        raise _KeptError("not every broker told which topic has its name now")
    policy = cleanup_policy(fact)
    if policy is None:
        raise _KeptError(f"{what}, and the archive does not know its cleanup.policy")
    if not says_delete(policy):  # the age of a key's only value means nothing
        raise _KeptError(f"{what}, and as the last backup saw its cleanup.policy, it keeps its records for ever")
    return Limits(ms=ms)


def _fixed_limits(fact: TopicFact, root: int, config: RetentionConfig) -> Limits:
    """Return the configured limits, and one file more, as Kafka would have kept. The newest backup knows whether the topic deletes."""
    if not _is_current(fact, root):
        raise _KeptError("it is of a topic that was created again: only a run that asks the cluster lets that go")
    policy, fixed = cleanup_policy(fact), config.fixed
    if policy is None:
        raise _KeptError("the archive does not know its cleanup.policy, and this run asks no cluster")
    if not says_delete(policy):
        raise _KeptError("it keeps its records for ever")
    if fixed.ms is None and fixed.bytes is None:
        raise _KeptError("retention.fixed says nothing of it")
    return Limits(
        ms=None if fixed.ms is None else fixed.ms + fixed.segment_ms,
        bytes=None if fixed.bytes is None else fixed.bytes + fixed.segment_bytes,
    )
