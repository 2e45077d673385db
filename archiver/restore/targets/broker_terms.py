"""Reads the brokers' own configs that limit a restore: topic deletion and creation, and request size."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.topics.configs import broker_configs
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.plan.target_limits import largest_request

_DELETES, _CREATES = "delete.topic.enable", "auto.create.topics.enable"
_REQUEST_BYTES = "socket.request.max.bytes"


@dataclass(frozen=True, slots=True)
class BrokerTerms:
    """The limits of all brokers, as far as their configs are readable."""

    undeleting: int | None = None  # a broker that deletes no topics
    creating: int | None = None  # a broker that creates a topic for any client that asks for it
    request_bytes: int | None = None  # the smallest limit of any broker
    strictest: int = 0  # the broker with that limit
    silent: int | None = None  # a broker with unreadable configs

    def keeps(self, plan: TopicPlan) -> str:
        """Return why a target cannot be purged; empty: it can be."""
        if self.undeleting is None:
            return ""
        return (
            f"target topic {plan.target} is not purged: broker {self.undeleting} has {_DELETES}=false; have it set to true,"
            f" or restore under another name with --rename {plan.source}=NEW"
        )

    def notes(self) -> Iterator[str]:
        """Return the unknown limits, if a broker's configs are unreadable."""
        if self.silent is not None:
            yield (
                f"broker {self.silent} does not tell its configs; whether it deletes topics, and how large a request it takes,"
                " shows only when it refuses that; grant this user DescribeConfigs on the cluster"
            )

    def warnings(self, purged: Collection[str]) -> Iterator[str]:
        """Return the dangers between the deletion of a topic and its creation."""
        if purged and self.creating is not None:
            yield (
                f"broker {self.creating} has {_CREATES}=true: stop all clients of the topics that are purged, or they have them"
                " created again as brokers make any topic, with another number of replicas, and may write to them first"
            )

    def harms(self, plan: TopicPlan) -> str:
        """Return why a target cannot be filled; empty: it can be."""
        largest, needed = largest_request(plan)
        if self.request_bytes is None or needed <= self.request_bytes:
            return ""
        return (
            f"{plan.target}: broker {self.strictest} has {_REQUEST_BYTES}={self.request_bytes}, and closes the connection at"
            f" a larger request; the largest {'of the chosen records' if plan.is_chosen else 'record'} has {largest:,} bytes;"
            f" have it set to {needed} or more"
        )


async def broker_terms(client: KafkaClient) -> BrokerTerms:
    """Read the configs of each broker."""
    told = await broker_configs(client, (_DELETES, _CREATES, _REQUEST_BYTES))
    limits = {int(configs[_REQUEST_BYTES]): node for node, configs in told.items() if _REQUEST_BYTES in configs}
    least = min(limits, default=None)
    return BrokerTerms(
        undeleting=next((node for node, configs in told.items() if configs.get(_DELETES) == "false"), None),
        creating=next((node for node, configs in told.items() if configs.get(_CREATES) == "true"), None),
        request_bytes=least,
        strictest=0 if least is None else limits[least],
        silent=next((node for node, configs in told.items() if not configs), None),
    )
