"""Which rights this user lacks on the targets of a restore, to purge, fill and read them back: asked before anything is changed."""

from collections.abc import Collection

from archiver.kafka.client import KafkaClient
from archiver.kafka.rights import Operation, missing_rights

_TO_FILL = (Operation.READ, Operation.WRITE)
_TO_PURGE = (*_TO_FILL, Operation.DELETE)


async def rights_problems(client: KafkaClient, filled: Collection[str], purged: Collection[str]) -> list[str]:
    """Return which rights are missing on topics that are to be filled, some of them purged before, a line for each topic.

    Create and AlterConfigs are not among these rights: brokers check them when topics are validated (fill_terms).
    """
    missing = await missing_rights(client, {name: _TO_PURGE if name in purged else _TO_FILL for name in filled})
    return [
        f"target topic {name} {'is not purged' if name in purged else 'cannot be filled'}: grant this user"
        f" {' and '.join(one.right for one in some)} on topic {name}"
        for name, some in sorted(missing.items())
    ]
