"""Proves with the leader that a log is empty behind an offset. An answer without records proves nothing (decision 24)."""

from dataclasses import dataclass, replace

from archiver.kafka.brokers.broker_requests import Lane
from archiver.kafka.brokers.calls import (
    EARLIEST_LOCAL_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    UNKNOWN_EPOCH,
    ListedOffset,
    ListOffsetsCall,
)
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import broker_error
from archiver.kafka.records.fetch import FetchTarget, fetch
from archiver.kafka.topics.configs import topic_configs_each

_OTHER_TIERS = ("confluent.tier.enable", "redpanda.remote.read")  # configs of topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptiness:
    """The proof that a log has no batch after an offset whose fetch returned nothing."""

    reaches: int  # no batch exists from the offset up to this one; equal to the offset: nothing is proved
    local_start: int  # below this offset the log is in the remote tier
    unknown: str = ""  # why nothing could be proved; empty: no such reason

    def advice(self, offset: int) -> str:
        """Advice for a missing proof."""
        if self.unknown:
            return self.unknown
        if offset < self.local_start:
            return (
                f"it lies in the remote tier, below offset {self.local_start}: look at that store, and raise"
                " remote.fetch.max.wait.ms on the brokers where its reads take longer"
            )
        return "look at its leader"


async def prove_empty(client: KafkaClient, target: FetchTarget) -> Emptiness:
    """Ask the leader for a proof that no batch exists from an offset up to its last stable offset.

    A fetch from a log on the leader's own disk returns the next batch, however large, if one exists. One from the remote
    tier returns nothing if it takes long. So the offset has to be still on that disk when the fetch was answered, and the
    broker must be the leader all the time. Raises KafkaError or KafkaTemporaryError.
    """
    node = await client.leader(target.topic, target.partition)
    (leader, _) = await _list_offset(client, node, target, LATEST_TIMESTAMP)
    (local, knows_local_start) = await _list_offset(client, node, target, EARLIEST_LOCAL_TIMESTAMP, leader.leader_epoch)
    unproved = Emptiness(reaches=target.offset, local_start=local.offset)
    if target.offset < local.offset:
        return unproved
    if unknown := await _other_tier(client, target.topic, knows_local_start=knows_local_start):
        return replace(unproved, unknown=unknown)
    (answer,) = await fetch(
        client, node, [target], max_bytes=1, partition_bytes=1, max_wait_ms=0, min_bytes=1, lane=Lane.FETCH_ALONE
    )
    (local, _) = await _list_offset(client, node, target, EARLIEST_LOCAL_TIMESTAMP, leader.leader_epoch)
    if answer.error is not None or len(answer.records) or target.offset < local.offset:
        return unproved
    return Emptiness(reaches=max(answer.last_stable_offset, target.offset), local_start=local.offset)


async def _list_offset(
    client: KafkaClient, node: int, target: FetchTarget, timestamp: int, leader_epoch: int = UNKNOWN_EPOCH
) -> tuple[ListedOffset, bool]:
    """Return the leader's answer, and whether its version knows of a local start at all."""
    call = ListOffsetsCall(
        {target.topic: [target.partition]},
        timestamp=timestamp,
        isolation_level=READ_COMMITTED,
        leader_epoch=leader_epoch,
    )
    (listed,) = await client.send(node, call)
    if listed.error_code:
        client.forget_leaders(target.topic)
        doing = f"offsets of {target.topic}[{target.partition}] from broker {node}"
        raise broker_error(listed.error_code, doing, right=f"Describe on topic {target.topic}")
    return listed, call.knows_local_start


async def _other_tier(client: KafkaClient, topic: str, *, knows_local_start: bool) -> str:
    """Describe a remote tier that the local start does not show (other vendors, or before KIP-405); empty: none."""
    found, refused = await topic_configs_each(client, [topic])
    if topic not in found:
        why = refused.get(topic, "no broker tells its configs")
        return f"whether it is in a remote tier, its configs would tell: {why}"
    switches = _OTHER_TIERS if knows_local_start else (*_OTHER_TIERS, "remote.storage.enable")
    used = [switch for switch in switches if found[topic].effective.get(switch) == "true"]
    return f"it may lie in a remote tier ({used[0]}) that is slower than the brokers wait for it" if used else ""
