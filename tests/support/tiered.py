"""Tiered storage: brokers keep old segments in a folder, and reads from it are slow, or fail, as a test wants.

tier = RemoteTier(folder, jars)
broker = KafkaBroker(jars, data_dir, properties=tier.broker_properties())
create_topic(broker.bootstrap, topic, configs=TIERED)
... produce, then `until_local_from(broker, topic, offset)`, then `tier.behave(1500)`
"""

from pathlib import Path

from tests.support.brokers import CACHE
from tests.support.cluster import log_folder
from tests.support.compiled import compile_java
from tests.support.kafka_broker import KafkaBroker
from tests.support.service import eventually

# Of a topic: everything but its newest segment moves to the remote tier within seconds. No smaller segments for Kafka 4.
TIERED = {"remote.storage.enable": "true", "segment.bytes": str(1024 * 1024), "local.retention.bytes": "1"}
# The same, but what is in the remote tier stays on the broker's disk, too.
TIERED_AND_LOCAL = TIERED | {"local.retention.bytes": "-2", "local.retention.ms": "-2"}
FAIL = "fail"


class RemoteTier:
    """A folder that brokers of one cluster share as their remote tier."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self.folder = folder
        self.jars = jars
        self._classes = compile_java("FolderRemoteStorage", jars, CACHE)
        folder.mkdir(parents=True, exist_ok=True)
        self.behave()

    def broker_properties(self, brokers: int = 1, **properties: str) -> dict[str, str]:
        """Of each of so many brokers."""
        return {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "FolderRemoteStorage",
            "remote.log.storage.manager.class.path": str(self._classes),
            "remote.log.storage.manager.impl.prefix": "rsm.config.",
            "rsm.config.folder": str(self.folder),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
            "rlmm.config.remote.log.metadata.topic.replication.factor": str(brokers),
            "remote.log.manager.task.interval.ms": "500",
            "log.retention.check.interval.ms": "500",
            **properties,
        }

    def behave(self, order: int | str = 0, **of_topics: int | str) -> None:
        """From now on reads take so many milliseconds, or FAIL: all of them, and those of single topics otherwise."""
        orders = {"*": order, **of_topics}
        written = self.folder / "behaviour.new"
        written.write_text("".join(f"{topic}={what}\n" for topic, what in orders.items()))
        written.rename(self.folder / "behaviour")

    def reads(self, topic: str, partition: int = 0, *, served: bool = False) -> int:
        """How many reads of records were begun, or served to their end."""
        path = self.folder / "reads"
        line = f"{'served' if served else 'begun'} {topic}-{partition} "
        return sum(one.startswith(line) for one in path.read_text().splitlines()) if path.exists() else 0


def earliest_local(broker: KafkaBroker, topic: str, partition: int = 0) -> int:
    """Where the log on a broker's own disk begins."""
    files = log_folder(broker, topic, partition).glob("*.log")
    return min((int(path.stem) for path in files), default=0)


def until_local_from(broker: KafkaBroker, topic: str, offset: int, partition: int = 0) -> None:
    """Wait until nothing below an offset is on the broker's own disk."""
    eventually(
        lambda: earliest_local(broker, topic, partition) >= offset,
        f"{topic}-{partition} is not in the remote tier up to offset {offset}",
    )
