"""Where the log of a leader epoch ends, as the broker knows it."""

from archiver.kafka.calls import EpochEnd, OffsetForLeaderEpochCall
from archiver.kafka.client import KafkaClient
from archiver.kafka.codes import broker_error


async def end_of_epoch(client: KafkaClient, topic: str, partition: int, epoch: int) -> EpochEnd:
    """Ask the leader for the end of an epoch in its log, or of the last epoch before."""

    async def once() -> EpochEnd:
        node_id = await client.leader(topic, partition)
        (answer,) = await client.send(node_id, OffsetForLeaderEpochCall({(topic, partition): epoch}))
        if answer.error_code:
            client.forget_leaders(topic)
            doing = f"epoch {epoch} of {topic}[{partition}] from broker {node_id}"
            raise broker_error(answer.error_code, doing, right=f"Describe on topic {topic}")
        return answer

    return await client.persist(once)
