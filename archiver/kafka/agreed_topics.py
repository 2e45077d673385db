"""Which topic has a name, or that none has it, where all brokers that are up say the same: one alone may be behind."""

import asyncio
from collections.abc import Collection, Mapping

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka import calls
from archiver.kafka.client import KafkaClient
from archiver.kafka.codes import Code


async def agreed_topics(client: KafkaClient, names: Collection[str], cluster_id: str) -> dict[str, str | None]:
    """Return topic ids by name; None: each broker was asked for that name, and said that there is no such topic.

    Names are left out on which brokers do not agree, or which one of them may not tell. All are, when a broker does not
    answer, is of another cluster, or knows of no broker yet: such a one has just started, and knows no topic either.
    """
    nodes = sorted(await client.brokers())
    try:
        answers = await asyncio.gather(*(client.send(node, calls.MetadataCall(sorted(set(names)))) for node in nodes))
    except (KafkaError, KafkaTemporaryError):
        return {}
    if any(one.cluster_id != cluster_id or not one.brokers for one in answers):
        return {}
    told = [_told(one) for one in answers]
    first = told[0] if told else {}
    return {name: found for name, found in first.items() if all(name in one and one[name] == found for one in told)}


def _told(answer: calls.Metadata) -> Mapping[str, str | None]:
    return {
        topic.name: topic.topic_id if topic.error_code == Code.NONE else None
        for topic in answer.topics
        if topic.error_code in {Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION}
    }
