"""Asks leaders for the ends of leader epochs in their logs."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.calls import EpochEnd, OffsetForLeaderEpochCall
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, TopicPartition
from archiver.kafka.brokers.codes import broker_error

_Answers = tuple[dict[TopicPartition, EpochEnd], dict[TopicPartition, Refusal]]


async def end_of_epoch(client: KafkaClient, topic: str, partition: int, epoch: int) -> EpochEnd:
    """Ask the leader for the end of an epoch in its log, or of the last epoch before."""

    async def once() -> EpochEnd:
        which = topic, partition
        found, refused = await _ask(client, await client.leader(topic, partition), {which: epoch})
        for error in refused.values():
            raise error
        return found[which]

    return await client.persist(once)


async def ends_of_epochs(client: KafkaClient, epochs: Mapping[TopicPartition, int]) -> _Answers:
    """Return the end of one epoch of each partition, in one request for each leader; and the refusals."""
    found: dict[TopicPartition, EpochEnd] = {}
    refused: dict[TopicPartition, Refusal] = {}

    async def once() -> None:
        refused.clear()
        left = {which: epoch for which, epoch in epochs.items() if which not in found}
        refused.update(await client.learn_leaders(left))
        by_node: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for which, epoch in left.items():
            if which not in refused:
                by_node[await client.leader(*which)][which] = epoch
        for some, refused_now in await asyncio.gather(*(_ask_kindly(client, *asked) for asked in by_node.items())):
            found.update(some)
            refused.update(refused_now)
        for error in refused.values():
            if isinstance(error, KafkaTemporaryError):
                raise error

    # `refused` has the refusals of the last attempt.
    with contextlib.suppress(KafkaError, KafkaTemporaryError):
        await client.persist(once)
    return found, refused


async def _ask_kindly(client: KafkaClient, node_id: int, epochs: Mapping[TopicPartition, int]) -> _Answers:
    try:
        return await _ask(client, node_id, epochs)
    except (KafkaError, KafkaTemporaryError) as error:
        for topic, _ in epochs:
            client.forget_leaders(topic)
        return {}, dict.fromkeys(epochs, error)


async def _ask(client: KafkaClient, node_id: int, epochs: Mapping[TopicPartition, int]) -> _Answers:
    found: dict[TopicPartition, EpochEnd] = {}
    refused: dict[TopicPartition, Refusal] = {}
    for answer in await client.send(node_id, OffsetForLeaderEpochCall(epochs)):
        which = topic, partition = answer.topic, answer.partition
        if which not in epochs:
            raise KafkaError(f"broker {node_id} told an epoch of {topic}[{partition}], for which nobody asked")
        if not answer.error_code:
            found[which] = answer
            continue
        client.forget_leaders(topic)
        doing = f"epoch {epochs[which]} of {topic}[{partition}] from broker {node_id}"
        refused[which] = broker_error(answer.error_code, doing, right=f"Describe on topic {topic}")
    for topic, partition in epochs.keys() - found.keys() - refused.keys():
        refused[topic, partition] = KafkaError(f"broker {node_id} left out the epochs of {topic}[{partition}]")
    return found, refused
