"""Finds topics with a message format before Kafka 0.11: records without headers, batches without a producer id. Restores use it."""

from collections.abc import Mapping

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.epochs import end_of_epoch

FORMAT_KEY = "message.format.version"
_OLD = ("0.8", "0.9", "0.10")


def has_old_format(configs: Mapping[str, str]) -> bool:
    """Return whether a topic's configs select such a format."""
    return configs.get(FORMAT_KEY, "").startswith(_OLD)


async def without_ignored_format(client: KafkaClient, topic: str, configs: Mapping[str, str]) -> Mapping[str, str]:
    """Leave the format out of a topic's configs where brokers ignore it: since 3.0 they may ignore it, but still list the config.

    The proof is an epoch end known to the leader: only batches since 0.11 have epochs.
    """
    if not has_old_format(configs):
        return configs
    offsets = await client.offsets([(topic, 0)])
    end = await end_of_epoch(client, topic, 0, offsets[topic, 0].leader_epoch)
    return configs if end.leader_epoch < 0 else {name: value for name, value in configs.items() if name != FORMAT_KEY}
