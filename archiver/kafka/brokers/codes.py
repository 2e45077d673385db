"""Maps Kafka's error codes to the archiver's errors."""

from enum import IntEnum

from archiver.errors import KafkaError, KafkaTemporaryError


class Code(IntEnum):
    """The codes that we act on or that a user may meet; names as in Kafka's protocol guide."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FENCED_MEMBER_EPOCH = 110
    STALE_MEMBER_EPOCH = 113


_KNOWN = frozenset(Code)

# librdkafka's codes for a broker that does not let us in, or that we do not trust: _AUTHENTICATION and _SSL.
NOT_LET_IN = frozenset({-169, -181})

# Another broker than the one that was asked leads the partition, or the leader is just changing.
LEADER_MOVED = frozenset({
    Code.LEADER_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.REPLICA_NOT_AVAILABLE,
    Code.KAFKA_STORAGE_ERROR,
    Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH,
})  # fmt: skip

TEMPORARY = LEADER_MOVED | {
    Code.UNKNOWN_SERVER_ERROR,
    Code.REQUEST_TIMED_OUT,
    Code.BROKER_NOT_AVAILABLE,
    Code.NETWORK_EXCEPTION,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.NOT_CONTROLLER,
    Code.OFFSET_NOT_AVAILABLE,
    Code.UNSTABLE_OFFSET_COMMIT,
    Code.THROTTLING_QUOTA_EXCEEDED,
}

DENIED = frozenset({
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
})  # fmt: skip

_NEXT_STEP = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: "does the topic exist, and may this user describe it?",
    Code.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes",
    Code.OFFSET_METADATA_TOO_LARGE: "raise the brokers' offset.metadata.max.bytes",
    Code.RECORD_LIST_TOO_LARGE: "raise the topic's segment.bytes",
    Code.INVALID_TOPIC_EXCEPTION: "choose another name",
    Code.TOPIC_AUTHORIZATION_FAILED: "grant this user the operation on the topic",
    Code.GROUP_AUTHORIZATION_FAILED: "grant this user the operation on the group",
    Code.CLUSTER_AUTHORIZATION_FAILED: "grant this user the operation on the cluster",
    Code.INVALID_GROUP_ID: "Kafka deletes no positions of a group without a name, they expire",
    Code.INVALID_COMMIT_OFFSET_SIZE: "raise max.message.bytes of topic __consumer_offsets",
    Code.INVALID_TIMESTAMP: "the topic's message.timestamp.before.max.ms or after.max.ms forbids it",
    Code.INVALID_REPLICATION_FACTOR: "fewer brokers are up than it needs; bring them back, or give --replication-factor",
    Code.POLICY_VIOLATION: "a policy of the cluster's administrators forbids it",
    Code.SECURITY_DISABLED: "set authorizer.class.name on the brokers",
    Code.UNSUPPORTED_VERSION: "brokers from 2.8 are supported",
    Code.TOPIC_DELETION_DISABLED: "the brokers have delete.topic.enable=false; set it to true, or choose another name",
    Code.UNSTABLE_OFFSET_COMMIT: "a transaction that commits positions of the group is open; wait for its end, or abort it",
    Code.TOPIC_ALREADY_EXISTS: "delete it, or choose another name",
}


def code_text(code: int) -> str:
    """Return a code as a message shows it."""
    return f"{Code(code).name} ({code})" if code in _KNOWN else f"error code {code}"


def client_error(code: int, doing: str, said: str, *, right: str = "") -> KafkaError | KafkaTemporaryError:
    """Return the error for a code of librdkafka: negative ones are its own (no broker, timed out, ...), others the brokers'."""
    if code in NOT_LET_IN:
        return KafkaTemporaryError(f"{doing}: {said}; check the users and the certificate of that broker")
    if code < Code.UNKNOWN_SERVER_ERROR:
        return KafkaTemporaryError(f"{doing}: {said}; check bootstrap.servers and that the brokers run")
    return broker_error(code, doing, said, right=right)


def broker_error(code: int, doing: str, detail: str = "", *, right: str = "") -> KafkaError | KafkaTemporaryError:
    """The error for a code; `doing` names the request and the broker, `detail` is the broker's own message.

    `right` is the missing right: an operation and its resource.
    """
    hint = _NEXT_STEP.get(Code(code)) if code in _KNOWN else None
    if right and code in DENIED:
        hint = f"grant this user {right}"
    said = code_text(code) + (f", {detail}" if detail else "")
    message = f"{doing}: {said}" + (f"; {hint}" if hint else "")
    if code in TEMPORARY:
        return KafkaTemporaryError(message, cause=Code(code).name)
    return KafkaError(message, code=code, said=said)
