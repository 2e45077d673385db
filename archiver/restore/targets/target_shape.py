"""Finds why an existing topic cannot be a target, whatever its configs: its partitions, its records, and restores' notes on it."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from archiver.kafka.brokers.cluster import PartitionOffsets, TopicDescription
from archiver.process.output.text import spell_count
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.plan.target_limits import alter_command


def has_shape(topic: TopicPlan, described: TopicDescription) -> bool:
    """Return whether a topic has the wanted number of partitions."""
    return len(described.partitions) == topic.target_partitions


def internal_problem(source: str, target: str) -> str:
    """Return why a topic of Kafka's own is not restored into."""
    return f"target topic {target} is Kafka's own; restore under another name with --rename {source}=NEW"


def begun_problem(name: str, restore_id: str) -> str:
    """Return why a topic that another restore has partly filled is not filled: it would have the records twice."""
    return (
        f"target topic {name} was begun by restore {restore_id}, which is not done: go on with that (the same command that"
        f" began it, or --id {restore_id}), or delete the topic, and restore again"
    )


def unplanned_problem(name: str, restore_id: str) -> str:
    """Return why a topic does not count as this restore's: its plan would be noted before any claim."""
    return (
        f"target topic {name} is claimed for restore {restore_id}, and no plan was noted for it: something else has written"
        f" below control/restores/{restore_id}/{name}/, or deleted there; see who did, and take another --id and an empty target"
    )


def regrown_problems(
    noted: TopicPlan, planned: Mapping[int, int], ends: Mapping[int, int], claimed: Collection[int], restore_id: str
) -> Iterator[str]:
    """Return the partitions that have grown since an earlier run planned to append to them, without a claim.

    The claims may be lost: then the records exist already, and would be appended a second time.
    """
    is_joint = noted.repartition is not None
    notes = f"control/restores/{restore_id}/{noted.target}/"
    wanted = {one.partition for one in noted.partitions if one.parts and not one.problem}
    for number, end in ends.items():
        if number not in claimed and (is_joint or number in wanted) and end > planned.get(number, 0):
            way = f"restore that partition under another name, with --rename {noted.source}=NEW --partitions {number} and another --id"
            if not claimed:  # under another id it would be refused, for this restore has begun the topic
                way = f"delete {notes}, and run the same command again"
            yield (
                f"target topic {noted.target} has grown in partition {number} since restore {restore_id} planned to append to"
                f" it (offset {planned.get(number, 0)} to {end}), and no claim of that restore is noted: its records may be"
                f" there already, and would be there twice. Compare them. If none is there: {way}"
            )


def unverified_problem(name: str, restore_id: str) -> str:
    """Return why a topic is not filled: a finished one belongs to its owner, and was verified before."""
    return (
        f"target topic {name} was noted as finished by restore {restore_id}, and not all of it as verified, which comes first:"
        f" something else has written or deleted below control/restores/{restore_id}/{name}/, or a retention sweep deletes what"
        " is there; see who did, and delete what is not this restore's, or take another --id and an empty target"
    )


def unlike_problem(topic: TopicPlan, restore_id: str, missing: Mapping[str, str], cluster: Sequence[str]) -> str:
    """Return why a topic does not count as begun by this restore: it lacks the `missing` configs of a filling."""
    return (
        f"target topic {topic.target} has records, and not the configs that a restore gives a topic before its first one. So"
        f" restore {restore_id} has not filled it, whatever was noted below control/restores/{restore_id}/{topic.target}/, or"
        f" somebody has changed them since; restore under another name with --rename {topic.source}=NEW and another --id, or, if"
        f" it is to be filled up, set them with `{alter_command(cluster, topic.target, missing)}`"
    )


def misfits(
    topic: TopicPlan, described: TopicDescription, ends: Mapping[int, int], *, is_claimed: bool, is_verified: bool
) -> Iterator[str]:
    """Return why an existing topic cannot be filled, whatever its configs."""
    name = topic.target
    used = [number for number, end in ends.items() if end]
    if described.is_internal:
        yield internal_problem(topic.source, name)
    elif not has_shape(topic, described) and not is_verified:  # later partitions are the user's
        has = len(described.partitions)
        wanted = f"the archive {len(topic.partitions)}" if topic.repartition is None else f"not {topic.repartition}"
        by_key = f", or by key with --repartition {has}" if topic.repartition is None else ""
        yield (
            f"target topic {name} has {spell_count(has, 'partition')}, {wanted}; restore under another name with"
            f" --rename {topic.source}=NEW{by_key}"
        )
    elif used and not topic.appends and not is_claimed:
        yield (
            f"target topic {name} is not empty (partition {', '.join(map(str, used[:5]))}{', ...' if len(used) > 5 else ''});"
            f" restore under another name with --rename {topic.source}=NEW, behind its records with --into-existing, or"
            " in its place with --purge-target, which deletes it"
        )


def open_ends(name: str, offsets: Mapping[int, PartitionOffsets]) -> Iterator[str]:
    """Return partitions that end with an open transaction: records after it cannot be read back, and its marker would be among ours."""
    for number, one in offsets.items():
        if one.last_stable < one.high_watermark:
            yield (
                f"target topic {name} has an open transaction in partition {number}, from offset {one.last_stable} on;"
                " let its producer end it, or abort it with kafka-transactions.sh"
            )
