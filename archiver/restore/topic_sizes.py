"""How many bytes a target holds already where records go behind its own: asked for only if `retention.bytes` limits that target."""

from collections.abc import Mapping

from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import PartitionOffsets, TopicDescription
from archiver.kafka.log_dirs import LogSizes, log_sizes
from archiver.restore.target_limits import is_limited

_TIERS = ("remote.storage.enable", "confluent.tier.enable")
_IN_PART = "a part of it is in the remote tier, of which the brokers tell nothing"


async def held_bytes(
    client: KafkaClient,
    found: Mapping[str, TopicDescription],
    configs: Mapping[str, Mapping[str, str]],
    offsets: Mapping[str, Mapping[int, PartitionOffsets]],
) -> dict[str, LogSizes]:
    """Return by topic how many bytes its partitions hold; only topics of `configs` that have records, and a limit of bytes, are asked for."""
    limited = {
        name: found[name]
        for name, effective in configs.items()
        if is_limited(effective) and any(one.high_watermark > one.log_start for one in offsets[name].values())
    }
    tiered = {name for name in limited if any(configs[name].get(switch) == "true" for switch in _TIERS)}
    sizes = await log_sizes(client, limited)
    return {name: LogSizes(one.bytes, _IN_PART) if name in tiered else one for name, one in sizes.items()}
