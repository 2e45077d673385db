"""Classifies librdkafka's errors about a group, for the membership: refusals, late commits, commits to retry."""

from confluent_kafka import KafkaError as ClientError

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.codes import Code, client_error

# The group refuses us. Some reasons may change during retries: an ACL, the limit of the group's size.
REFUSALS = frozenset({
    ClientError.GROUP_AUTHORIZATION_FAILED,
    ClientError.CLUSTER_AUTHORIZATION_FAILED,
    ClientError.INVALID_GROUP_ID,
    ClientError.INVALID_SESSION_TIMEOUT,
    ClientError.INCONSISTENT_GROUP_PROTOCOL,
    ClientError.GROUP_MAX_SIZE_REACHED,
    ClientError.UNSUPPORTED_VERSION,
    ClientError.UNSUPPORTED_ASSIGNOR,
})  # fmt: skip

# The partition has another owner now, or will have one in a moment, who commits its own hints.
TOO_LATE = frozenset({
    ClientError.ILLEGAL_GENERATION,
    ClientError.UNKNOWN_MEMBER_ID,
    ClientError.REBALANCE_IN_PROGRESS,
    ClientError.STALE_MEMBER_EPOCH,
    ClientError.FENCED_MEMBER_EPOCH,
    ClientError.UNKNOWN_TOPIC_OR_PART,
})  # fmt: skip

COMMIT_AGAIN = frozenset(
    {ClientError.REBALANCE_IN_PROGRESS, ClientError.STALE_MEMBER_EPOCH}
)  # codes with which a commit succeeds a moment later


def group_error(cause: ClientError, what: str) -> KafkaError | KafkaTemporaryError:
    """Return the error for a cause. Two causes are final: a consumer that is broken, or has an invalid argument."""
    if cause.code() in {ClientError._FATAL, ClientError._INVALID_ARG}:  # noqa: SLF001 - public
        return KafkaError(f"{what}: {cause.str()}")
    right = "Read on the group" if cause.code() == Code.GROUP_AUTHORIZATION_FAILED else "Describe on the topics"
    return client_error(cause.code(), what, cause.str(), right=right)
