"""Resolves topic names to ids if all live brokers agree, because a single broker may be behind."""

import asyncio
from collections.abc import Collection, Mapping

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers import calls
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import Code


async def agreed_topics(client: KafkaClient, names: Collection[str], cluster_id: str) -> dict[str, str | None]:
    """Return topic ids by name; None: each broker answered that the topic does not exist.

    Names without agreement, or hidden by a broker, are left out. All names are, if a broker does not
    answer, is of another cluster, or knows of no broker yet: such a broker has just started, and knows no topic either.
    """
    wanted = sorted(set(names))

    async def ask(node: int) -> calls.Metadata | None:
        try:
            answer = await client.send(node, calls.MetadataCall(wanted))
        except (KafkaError, KafkaTemporaryError):
            return None
        return answer if answer.cluster_id == cluster_id and answer.brokers else None

    answers = await asyncio.gather(*(ask(node) for node in sorted(await client.brokers())))
    known = [one for one in answers if one is not None]
    if not known or len(known) < len(answers):
        return {}
    first, *others = map(_told, known)
    return {name: found for name, found in first.items() if all(name in one and one[name] == found for one in others)}


def _told(answer: calls.Metadata) -> Mapping[str, str | None]:
    return {
        topic.name: topic.topic_id if topic.error_code == Code.NONE else None
        for topic in answer.topics
        if topic.error_code in {Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION}
    }
