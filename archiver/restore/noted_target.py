"""Whether what a run of a restore has noted is of the topic that has the target's name now."""

from archiver.archive.control import Fact


def is_here(fact: Fact, cluster_id: str) -> bool:
    """Tell whether a fact is of this cluster; those that were written before they told which it was count as if they were."""
    return bool(fact.get("target_cluster_id", cluster_id) == cluster_id)


def is_of(fact: Fact | None, cluster_id: str, topic_id: str) -> bool:
    """Tell whether there is a fact, and of this very topic. Where brokers give no ids, all topics of a name have one: none."""
    return fact is not None and is_here(fact, cluster_id) and fact.get("target_topic_id") == topic_id
