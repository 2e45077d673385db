"""What this user may do with topics, as the brokers tell: also with those that are not there yet."""

from collections.abc import Collection, Mapping
from enum import IntEnum

from archiver.kafka import calls
from archiver.kafka.client import KafkaClient

_UNTOLD = -(2**31)


class Operation(IntEnum):
    """What nothing can ask for without doing it; brokers tell a bit of each."""

    READ = 3
    WRITE = 4
    DELETE = 6

    @property
    def right(self) -> str:
        """As ACLs name it."""
        return self.name.capitalize()


async def missing_rights(
    client: KafkaClient, wanted: Mapping[str, Collection[Operation]]
) -> dict[str, list[Operation]]:
    """Return which of the wanted operations on topics this user may not do. Where brokers do not tell, none is missing."""
    if not wanted:
        return {}
    metadata = await client.send_any(calls.MetadataCall(sorted(wanted), tells_operations=True))
    missing = {topic.name: missing_among(wanted[topic.name], topic.operations) for topic in metadata.topics}
    return {name: some for name, some in missing.items() if some}


def missing_among(wanted: Collection[Operation], told: int) -> list[Operation]:
    """Return the operations whose bits were not told."""
    return [] if told == _UNTOLD else [one for one in sorted(wanted) if not told >> one & 1]
