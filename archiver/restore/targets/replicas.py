"""Checks that targets can have their replicas, and enough of them in sync for brokers to take a record."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from archiver.kafka.brokers.calls import ApiVersionsCall
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Replicas
from archiver.kafka.records.produce import ProduceCall
from archiver.process.output.text import spell_count
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.plan.target_limits import alter_command

KEY = "min.insync.replicas"
_ASKS_FOR_NO_MORE = 10  # the version of Produce since Kafka 3.7: brokers require at most as many in sync as exist


class TargetReplicas(NamedTuple):
    """The configs and replicas that a target has, or would have if it were created."""

    configs: Mapping[str, str]
    replicas: Replicas
    is_new: bool = False

    @property
    def wanted(self) -> int:
        return int(self.configs.get(KEY, 1))


async def unmet_in_the_end(
    client: KafkaClient, changes: Mapping[str, Mapping[str, str | None]], replicas: Mapping[str, int]
) -> dict[str, str]:
    """Return the topics that would take no record with acks=all, with their final configs and so many replicas."""
    unmet = {name: wanted_in_the_end(changes[name]) for name, count in replicas.items()}
    unmet = {name: wanted for name, wanted in unmet.items() if wanted > replicas[name]}
    if not unmet or await _wants_no_more_than_there_are(client):
        return {}
    return {
        name: f"{KEY}={wanted} is more than the {spell_count(replicas[name], 'replica')} of a partition: these"
        " brokers would take no record with acks=all; it is left out in the end"
        for name, wanted in sorted(unmet.items())
    }


def wanted_in_the_end(changes: Mapping[str, str | None]) -> int:
    """Return the required number of replicas in sync with these changes; 1, Kafka's default, if they do not set it."""
    value = changes.get(KEY) or ""
    return int(value) if value.isdecimal() else 1


async def in_sync_problems(
    client: KafkaClient, plans: Mapping[str, TopicPlan], found: Mapping[str, TargetReplicas], cluster: Sequence[str]
) -> list[str]:
    """Return why some targets would take no record. `cluster`: the connection options of Kafka's own tools."""
    short = {
        name: copies
        for name, copies in sorted(found.items())
        if plans[name].records and copies.replicas.in_sync < copies.wanted
    }
    if not short:
        return []
    is_lenient = await _wants_no_more_than_there_are(client)
    problems = (_problem(plans[name], copies, cluster, is_lenient=is_lenient) for name, copies in short.items())
    return list(filter(None, problems))


async def _wants_no_more_than_there_are(client: KafkaClient) -> bool:
    for node in sorted(await client.brokers()):
        newest = await client.persist(partial(client.send, node, ApiVersionsCall()))
        if newest.get(ProduceCall.api_key, 0) < _ASKS_FOR_NO_MORE:
            return False
    return True


def _problem(plan: TopicPlan, copies: TargetReplicas, cluster: Sequence[str], *, is_lenient: bool) -> str:
    in_sync, assigned, partition = copies.replicas
    told = f"{plan.target}: {KEY}={copies.wanted}"
    has = f"{spell_count(assigned, 'replica')}"
    if assigned < copies.wanted and not is_lenient:
        if copies.is_new:
            return (
                f"{told}, and it would have {has}: these brokers would take no record; give --replication-factor"
                f" {copies.wanted}, or create the topic first, with {KEY}={assigned}, and restore into it"
            )
        return (
            f"{told}, and partition {partition} has {has}: these brokers take no record; change it first, such as with"
            f" `{alter_command(cluster, plan.target, {KEY: str(assigned)})}`, or restore into another topic with"
            f" --rename {plan.source}=NEW"
        )
    if in_sync < min(copies.wanted, assigned):
        return (
            f"{told}, and {in_sync} of {has} of partition {partition} {'is' if in_sync == 1 else 'are'} in sync: its"
            " brokers take no record until others are; bring those brokers back, and run the same command again"
        )
    return ""


async def asked_problems(client: KafkaClient, asked: int | None) -> list[str]:
    """Return why topics cannot get the requested number of replicas; None: none was requested."""
    brokers = len(await client.brokers()) if asked else 0
    return [f"--replication-factor {asked}: only {_up(brokers)}; give a lower one"] if asked and asked > brokers else []


async def kept_problems(client: KafkaClient, kept: Mapping[str, int], purged: Collection[str]) -> dict[str, str]:
    """Return the topics, purged now or by an earlier run, that cannot get as many replicas as they had."""
    brokers = len(await client.brokers()) if kept else 0
    return {
        name: f"target topic {name} is {'not purged: it has' if name in purged else 'not created again: it had'} {count}"
        f" replicas, and only {_up(brokers)}; bring the others back, or give --replication-factor {brokers}"
        for name, count in sorted(kept.items())
        if count > brokers
    }


def _up(brokers: int) -> str:
    return spell_count(brokers, "broker of the target cluster is up", "brokers of the target cluster are up")
