"""The cluster as its administrator sees it: who has which partitions, what was committed, and how to disturb both."""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

_REQUEST_S = 15.0


Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupView:
    """A consumer group at one moment: partitions by client id."""

    is_stable: bool
    is_empty: bool
    assigned: Mapping[str, frozenset[Partition]]
    state: str

    def __str__(self) -> str:
        having = ", ".join(f"{name} has {len(partitions)}" for name, partitions in sorted(self.assigned.items()))
        return f"the group is {self.state}; {having or 'nobody is in it'}"


class Cluster:
    """One cluster and one group in it. Answers also while the broker is away: then there is nothing to see."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self._admin = self._connect()

    def _connect(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500})

    def view(self) -> GroupView:
        """Nothing assigned when the coordinator does not answer."""
        try:
            future = self._admin.describe_consumer_groups([self.group], request_timeout=5)[self.group]
            found = future.result(_REQUEST_S)
        except (KafkaException, TimeoutError) as error:
            # Seen: one that lived through a restart got no answer any more, a new one did.
            self._admin = self._connect()
            return GroupView(False, False, {}, f"not known: {error}")
        assigned = {
            member.client_id: frozenset((one.topic, one.partition) for one in member.assignment.topic_partitions)
            for member in found.members
        }
        is_empty = found.state in {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}
        return GroupView(found.state == ConsumerGroupState.STABLE, is_empty, assigned, found.state.name)

    def partitions_of(self, client_id: str) -> frozenset[Partition]:
        return self.view().assigned.get(client_id, frozenset())

    def ends(self, partitions: Mapping[str, int]) -> dict[Partition, int]:
        """The high watermarks."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, nr): latest for topic, count in partitions.items() for nr in range(count)}
        # A new one: one that lived through a restart of the broker may get no answer any more.
        admin = self._connect()
        futures = admin.list_offsets(asked, request_timeout=_REQUEST_S)
        return {(one.topic, one.partition): future.result(_REQUEST_S).offset for one, future in futures.items()}

    def commit(self, partition: Partition, offset: int, metadata: str) -> None:
        """Overwrite what the group committed. The broker allows it only while the group has no members."""
        rows = [TopicPartition(*partition, offset, metadata)]
        request = [ConsumerGroupTopicPartitions(self.group, rows)]
        admin = self._connect()
        answer = admin.alter_consumer_group_offsets(request)[self.group].result(_REQUEST_S)
        for row in answer.topic_partitions:
            if row.error is not None:
                raise KafkaException(row.error)

    def committed_metadata(self) -> dict[Partition, str]:
        request = [ConsumerGroupTopicPartitions(self.group)]
        answer = self._admin.list_consumer_group_offsets(request)[self.group].result(_REQUEST_S)
        return {(row.topic, row.partition): row.metadata or "" for row in answer.topic_partitions}
