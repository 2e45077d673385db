"""Whether as many brokers are up as topics are to have replicas: KRaft creates them also while some are away."""

from collections.abc import Collection, Mapping

from archiver.kafka.client import KafkaClient
from archiver.process.text import spell_count


async def asked_problems(client: KafkaClient, asked: int | None) -> list[str]:
    """Return why topics cannot get the requested number of replicas; None: none was requested."""
    brokers = len(await client.brokers()) if asked else 0
    return [f"--replication-factor {asked}: only {_up(brokers)}; give a lower one"] if asked and asked > brokers else []


async def kept_problems(client: KafkaClient, kept: Mapping[str, int], purged: Collection[str]) -> dict[str, str]:
    """Return which topics cannot get as many replicas as they had: those that are purged, now or by an earlier run."""
    brokers = len(await client.brokers()) if kept else 0
    return {
        name: f"target topic {name} is {'not purged: it has' if name in purged else 'not created again: it had'} {count}"
        f" replicas, and only {_up(brokers)}; bring the others back, or give --replication-factor {brokers}"
        for name, count in sorted(kept.items())
        if count > brokers
    }


def _up(brokers: int) -> str:
    return spell_count(brokers, "broker of the target cluster is up", "brokers of the target cluster are up")
