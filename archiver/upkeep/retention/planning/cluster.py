"""Reads the state of topics in the cluster: existence, retention, log starts. Missing answers are reported as such."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.kafka.topics.agreed_topics import agreed_topics
from archiver.kafka.topics.configs import topic_configs_each
from archiver.upkeep.retention.planning.limits import DECIDING, RETENTION_GROUPS, spell_groups_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTopic:
    """A topic as the cluster has it. `log_starts` lacks partitions whose leader did not return the start of their log.

    `is_agreed`: each live broker returned this topic id.
    """

    topic_id: str
    effective: Mapping[str, str]  # the effective retention configs
    log_starts: Mapping[int, int]
    is_agreed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """The cluster's answers. `untold`: why a topic's state is unknown; `absent`: topics that each live broker reported as missing.

    A topic in none of these was in no answer, which proves nothing.
    """

    cluster_id: str
    topics: Mapping[str, LiveTopic]
    untold: Mapping[str, str]
    absent: frozenset[str] = frozenset()


def with_groups_limit(cluster: LiveCluster, groups_ms: int | None) -> LiveCluster:
    """Add the setting that decides on the offsets topic: its own configs keep it forever."""
    live = cluster.topics.get(OFFSETS_TOPIC)
    if live is None:
        return cluster
    effective = {**live.effective, RETENTION_GROUPS: spell_groups_limit(groups_ms)}
    return replace(cluster, topics={**cluster.topics, OFFSETS_TOPIC: replace(live, effective=effective)})


async def ask_cluster(client: KafkaClient, names: Collection[str]) -> LiveCluster:
    """Ask for topics by name. The topic id is read again at the end: no answer in between was of another topic."""
    cluster_id = await client.cluster_id()
    before, refused = await client.describe_each(names)
    configs, unread = await topic_configs_each(client, before)
    offsets, _ = await client.offsets_each(
        (name, number) for name, topic in before.items() for number in topic.partitions
    )
    agreed = await agreed_topics(client, names, cluster_id)
    after, refused_later = await client.describe_each(names)
    untold = {name: str(error) for name, error in {**refused, **unread, **refused_later}.items()}
    topics: dict[str, LiveTopic] = {}
    for name, topic in before.items():
        if name in untold or name not in configs:
            continue
        if name not in after or after[name].topic_id != topic.topic_id:
            untold[name] = "it was created again, or was gone, while it was asked about"
            continue
        topics[name] = LiveTopic(
            topic_id=topic.topic_id,
            effective={key: value for key, value in configs[name].effective.items() if key in DECIDING},
            log_starts={
                number: offsets[name, number].log_start for number in topic.partitions if (name, number) in offsets
            },
            is_agreed=agreed.get(name) == topic.topic_id,
        )
    told = {*before, *after, *untold}
    absent = frozenset(name for name, topic_id in agreed.items() if topic_id is None and name not in told)
    return LiveCluster(cluster_id=cluster_id, topics=topics, untold=untold, absent=absent)
