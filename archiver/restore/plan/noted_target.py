"""Checks whether a restore's note is of the topic that has the target's name now. Used by all readers of these notes."""

from archiver.archive.format.control import Fact


def is_here(fact: Fact, cluster_id: str) -> bool:
    """Return whether a fact is of this cluster; facts of early versions, which do not name a cluster, count as this cluster's."""
    return bool(fact.get("target_cluster_id", cluster_id) == cluster_id)


def is_of(fact: Fact | None, cluster_id: str, topic_id: str) -> bool:
    """Return whether a fact exists, of exactly this topic. Without topic ids, all topics of a name have the empty id."""
    return fact is not None and is_here(fact, cluster_id) and fact.get("target_topic_id") == topic_id
