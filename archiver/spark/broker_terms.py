"""What brokers themselves allow, whatever a topic's configs are: whether topics are deleted, and how large a request may be."""

from dataclasses import dataclass

from archiver.kafka.client import KafkaClient
from archiver.kafka.configs import broker_configs
from archiver.restore import TopicPlan
from archiver.target_limits import largest_request

_DELETES, _REQUEST_BYTES = "delete.topic.enable", "socket.request.max.bytes"


@dataclass(frozen=True, slots=True)
class BrokerTerms:
    """Of all brokers that tell."""

    undeleting: int | None = None  # a broker that deletes no topics
    request_bytes: int | None = None  # the least that one of them takes
    strictest: int = 0  # that one

    def keeps(self, plan: TopicPlan) -> str:
        """Tell why a target cannot be purged; empty: it can be."""
        if self.undeleting is None:
            return ""
        return (
            f"target topic {plan.target} is not purged: broker {self.undeleting} has {_DELETES}=false; have it set to true,"
            f" or restore under another name with --rename {plan.source}=NEW"
        )

    def harms(self, plan: TopicPlan) -> str:
        """Tell why a target cannot be filled; empty: it can be."""
        largest, needed = largest_request(plan)
        if self.request_bytes is None or needed <= self.request_bytes:
            return ""
        return (
            f"{plan.target}: broker {self.strictest} has {_REQUEST_BYTES}={self.request_bytes}, and closes the connection at"
            f" a larger request; the largest {'of the chosen records' if plan.is_chosen else 'record'} has {largest:,} bytes;"
            f" have it set to {needed} or more"
        )


async def broker_terms(client: KafkaClient) -> BrokerTerms:
    """Ask each broker."""
    told = await broker_configs(client, (_DELETES, _REQUEST_BYTES))
    limits = {int(configs[_REQUEST_BYTES]): node for node, configs in told.items() if _REQUEST_BYTES in configs}
    least = min(limits, default=None)
    return BrokerTerms(
        undeleting=next((node for node, configs in told.items() if configs.get(_DELETES) == "false"), None),
        request_bytes=least,
        strictest=0 if least is None else limits[least],
    )
