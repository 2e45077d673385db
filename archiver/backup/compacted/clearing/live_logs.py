"""Reads the log bounds of compacted partitions from the cluster, for clearing and `status`."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import POLICY, TopicFact, read_cluster, read_newest_topic_facts
from archiver.backup.compacted.clearing.clearing_rules import NO_LOG, LogBounds
from archiver.backup.compacted.clearing.clearing_survey import AskLogs
from archiver.errors import ArchiverError, StrangerError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicDescription
from archiver.kafka.login.settings import KafkaSettings

_Described = Mapping[str, TopicDescription]
_NO_LIFE: Final = -1


async def ask_logs(
    client: KafkaClient,
    facts: Mapping[str, TopicFact],
    places: Collection[RolePlace],
    report_refusal: Callable[[ArchiverError], None] = lambda _: None,
) -> dict[RolePlace, LogBounds]:
    """Return the bounds of logs. Missing answers are left out: a hidden topic may still exist.

    The policy is the one archived with the topic. A life before the cluster's one has ended: NO_LOG.
    """
    described, refused = await client.describe_each({place.topic for place in places})
    lives = {place: _life_now(described, facts, place) for place in places}
    live = [place for place, life in lives.items() if place.life == life]
    offsets, untold = await client.offsets_each((place.topic, place.partition) for place in live)
    for error in (*refused.values(), *untold.values()):
        report_refusal(error)
    ended = {place: NO_LOG for place, life in lives.items() if place.life < life}
    return ended | {
        place: LogBounds(log_start=found.log_start, log_end=found.high_watermark, policy=policy_of(facts[place.topic]))
        for place in live
        if (found := offsets.get((place.topic, place.partition))) is not None
    }


def asker_of(archive: Archive, settings: KafkaSettings, report_refusal: Callable[[ArchiverError], None]) -> AskLogs:
    """Return a function that reads log bounds, through a new client at each call. Raises StrangerError.

    `report_refusal` is called with the reason for each topic without an answer.
    """

    async def ask(places: Collection[RolePlace]) -> Mapping[RolePlace, LogBounds]:
        names = {place.topic for place in places}
        facts = {
            name: fact
            for name, fact in read_newest_topic_facts(archive, names.__contains__).items()
            if isinstance(fact, TopicFact)
        }
        async with KafkaClient(settings) as client:
            archived_of, cluster_id = read_cluster(archive), await client.cluster_id()
            if archived_of not in {None, cluster_id}:
                raise StrangerError(
                    f"kafka.bootstrap.servers leads to cluster {cluster_id}, and this archive belongs to {archived_of}"
                )
            return await ask_logs(client, facts, places, report_refusal)

    return lambda places: asyncio.run(ask(places))


def policy_of(fact: TopicFact) -> str | None:
    """Return the archived effective cleanup.policy; None if unknown."""
    return (fact.effective or {}).get(POLICY, fact.configs.get(POLICY))


def _life_now(described: _Described, facts: Mapping[str, TopicFact], place: RolePlace) -> int:
    topic, fact = described.get(place.topic), facts.get(place.topic)
    if topic is None or fact is None or not topic.topic_id:
        return _NO_LIFE
    try:
        return fact.life_of_partition(topic.topic_id, place.partition).life
    except KeyError:  # recreated since its recording
        return _NO_LIFE
