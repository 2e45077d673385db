"""By which terms a topic is swept, or why it is not. Pure: what storage and cluster say comes from the caller."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from archiver.archive.holds import Hold
from archiver.archive.policies import NotedPolicy
from archiver.archive.topics import TopicFact
from archiver.config.retention import RetentionConfig
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.upkeep.retention.cluster import LiveCluster, LiveTopic
from archiver.upkeep.retention.limits import FOR_EVER, Limits, limits_of, widened
from archiver.upkeep.retention.partition_plan import HeldTimes
from archiver.upkeep.retention.policy import policy_in_force


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTerms:
    """By what a topic is swept: the lives with the topic id that is live."""

    topic: str
    topic_id: str
    root: int  # the first life with this id
    limits: Limits
    swept_by: Limits  # those of the last sweep that deleted
    log_starts: Mapping[int, int]
    effective: Mapping[str, str]
    holds: Sequence[HeldTimes] = field(default=())
    is_in_grace: bool = False  # the topic keeps less by now than it is swept by

    @property
    def policy_key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What must still hold before each delete."""
        return self.topic_id, tuple(sorted(self.effective.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTopic:
    """A topic of which nothing goes, and why."""

    topic: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """All that decides about topics."""

    config: RetentionConfig
    cluster: LiveCluster
    holds: Sequence[Hold]
    pinned: Mapping[str, str]  # topics that an unfinished restore reads, by which restore
    store_now_ms: int


def judge_topic(fact: TopicFact, noted: Sequence[NotedPolicy], asked: Asked) -> TopicTerms | KeptTopic:
    """Say by which terms a topic is swept. `noted`: its policies, as sweeps saw them before this one."""
    try:
        return _terms(fact, noted, asked)
    except _KeptError as kept:
        return KeptTopic(topic=fact.topic, why=str(kept))


class _KeptError(Exception):
    """Why nothing of a topic goes."""


def _terms(fact: TopicFact, noted: Sequence[NotedPolicy], asked: Asked) -> TopicTerms:
    name, live = fact.topic, asked.cluster.topics.get(fact.topic)
    if asked.config.keeps(name):
        raise _KeptError("retention.keep names it")
    if name in asked.pinned:
        raise _KeptError(f"restore {asked.pinned[name]} reads it, and is not finished")
    if asked.cluster.cluster_id != fact.cluster_id:
        raise _KeptError(f"it was archived of cluster {fact.cluster_id}, and this is {asked.cluster.cluster_id}")
    if live is None:
        raise _KeptError(asked.cluster.untold.get(name, "the cluster did not name it, which proves nothing"))
    if not live.topic_id:
        raise _KeptError("the cluster has no topic ids: nothing proves that it is the topic that was archived")
    if live.topic_id != fact.current.topic_id:
        raise _KeptError("it was created again, and no backup has seen the new one yet")
    holds = [hold for hold in asked.holds if hold.is_in_force and hold.matches(name)]
    always = next((hold.name for hold in holds if hold.from_ms is None and hold.until_ms is None), None)
    if always is not None:
        raise _KeptError(f"it is on hold: {always}")
    limits, swept_by = _limits(fact, noted, live, asked)
    return TopicTerms(
        topic=name,
        topic_id=live.topic_id,
        root=fact.root(fact.current.life),
        limits=limits,
        swept_by=swept_by,
        log_starts=live.log_starts,
        effective=live.effective,
        holds=tuple(HeldTimes(hold.from_ms, hold.until_ms) for hold in holds),
        is_in_grace=limits != widened(limits_of(live.effective), asked.config.factor),
    )


def policy_news(fact: TopicFact, noted: Sequence[NotedPolicy], live: LiveTopic, now_ms: int) -> list[NotedPolicy]:
    """Return what is to be noted of a topic now: nothing, if it keeps what it kept before."""
    last = noted[-1] if noted else None
    if last is not None and last.effective == live.effective:
        return []
    return [
        NotedPolicy(
            topic=fact.topic,
            topic_id=live.topic_id,
            effective=live.effective,
            since_ms=now_ms,
            swept_by=None if last is None else last.swept_by,
        )
    ]


def _limits(fact: TopicFact, noted: Sequence[NotedPolicy], live: LiveTopic, asked: Asked) -> tuple[Limits, Limits]:
    """Return the limits to go by, and those that the last sweep went by that deleted."""
    try:
        now = limits_of(live.effective)
    except ValueError as error:
        raise _KeptError(f"what it keeps is not known: {error}") from error
    if fact.topic == OFFSETS_TOPIC and now.keeps_all:
        raise _KeptError("it is kept for ever: it tells where groups stood as of any time (retention.groups)")
    if not noted:
        raise _KeptError("what it keeps was never noted before; this run notes it, and the next one goes by it")
    seen = [*noted, *policy_news(fact, noted, live, asked.store_now_ms)]
    try:
        in_force = policy_in_force(seen, asked.store_now_ms, asked.config.grace_ms)
    except ValueError as error:  # it was seen while its configs did not tell
        raise _KeptError(f"what it kept within retention.grace is not known: {error}") from error
    limits = widened(in_force.limits, asked.config.factor)
    if now.keeps_all or limits == FOR_EVER:
        raise _KeptError(
            "it keeps its records for ever" if now.keeps_all else "it kept its records for ever within retention.grace"
        )
    return limits, widened(in_force.swept_by, asked.config.factor)
