"""What a cycle does to the brokers of its world as anyone would: librdkafka's admin client, and none of our own code."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, islice

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.support.raw_produce import produce_records
from tests.support.records import Rec
from tests.support.service import eventually
from tests.worlds.world import Kafka

_REQUEST_S = 30.0
_PERIOD_S = 0.2


class Brokers:
    """Of one world."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Returns when all partitions are led, and all brokers know it."""
        replicas = [list(nodes) for nodes in islice(cycle(self._kafka.replicas), partitions)]
        configs = {**self._kafka.keep_all, **configs}
        new = NewTopic(topic, num_partitions=partitions, replica_assignment=replicas, config=configs)
        eventually(lambda: self._creates(new), f"{topic} is still being deleted", every_s=_PERIOD_S)
        eventually(lambda: len(self._leaders(topic)) == partitions, f"{topic} is not led")

    def _creates(self, new: NewTopic) -> bool:
        """Brokers with ZooKeeper still delete a topic that they no longer show."""
        try:
            self._admin.create_topics([new])[new.topic].result(_REQUEST_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def delete(self, topics: Iterable[str]) -> None:
        """Returns when they are gone."""
        wanted = set(topics)
        for done in self._admin.delete_topics(sorted(wanted)).values():
            done.result(_REQUEST_S)
        eventually(lambda: not wanted & self._names(), "the topics are not deleted", every_s=_PERIOD_S)

    def write(self, topic: str, records: Sequence[Rec], codec: str, partition: int) -> None:
        """Any records at all: also what no client writes."""
        produce_records(self._leaders(topic)[partition], topic, records, codec, partition=partition)

    def configs(self, topic: str) -> dict[str, str]:
        """Its own: what somebody has set."""
        asked = ConfigResource(ResourceType.TOPIC, topic)
        found = self._admin.describe_configs([asked])[asked].result(_REQUEST_S)
        return {name: entry.value for name, entry in found.items() if not entry.is_default}

    def _leaders(self, topic: str) -> dict[int, str]:
        """Address of the leader of each partition that has one."""
        found = self._admin.list_topics(topic, timeout=_REQUEST_S)
        addresses = {node: f"{broker.host}:{broker.port}" for node, broker in found.brokers.items()}
        partitions = found.topics[topic].partitions.items()
        return {number: addresses[one.leader] for number, one in partitions if one.leader in addresses}

    def _names(self) -> set[str]:
        return set(self._admin.list_topics(timeout=_REQUEST_S).topics)
