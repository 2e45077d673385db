"""Asks leaders for the ends of leader epochs in their logs."""

from collections.abc import Mapping, Sequence

from archiver.errors import KafkaError
from archiver.kafka.brokers.calls import EpochEnd, OffsetForLeaderEpochCall
from archiver.kafka.brokers.client import Answers, KafkaClient
from archiver.kafka.brokers.cluster import Refusal, TopicPartition
from archiver.kafka.brokers.codes import broker_error


async def end_of_epoch(client: KafkaClient, topic: str, partition: int, epoch: int) -> EpochEnd:
    """Ask the leader for the end of an epoch in its log, or of the last epoch before."""
    found, refused = await ends_of_epochs(client, {(topic, partition): epoch})
    for error in refused.values():
        raise error
    return found[topic, partition]


async def ends_of_epochs(client: KafkaClient, epochs: Mapping[TopicPartition, int]) -> Answers[EpochEnd]:
    """Return the end of one epoch of each partition, in one request for each leader; and the refusals."""

    async def ask(node_id: int, wanted: Sequence[TopicPartition]) -> Answers[EpochEnd]:
        found: dict[TopicPartition, EpochEnd] = {}
        refused: dict[TopicPartition, Refusal] = {}
        answers = await client.send(node_id, OffsetForLeaderEpochCall({which: epochs[which] for which in wanted}))
        told = {(answer.topic, answer.partition): answer for answer in answers}
        for which in wanted:
            answer, doing = told.get(which), f"epoch {epochs[which]} of {which[0]}[{which[1]}] from broker {node_id}"
            if answer is None:
                refused[which] = KafkaError(f"{doing}: it was left out of the answer")
            elif answer.error_code:
                refused[which] = broker_error(answer.error_code, doing, right=f"Describe on topic {which[0]}")
            else:
                found[which] = answer
        return found, refused

    return await client.ask_leaders(epochs, ask)
