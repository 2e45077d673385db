"""All worlds: a row here is a row in docs/proofs.md. What is special about topics, rights or quotas has tests of its own."""

from typing import Final

from tests.support.brokers import KAFKA_33, KAFKA_39, KAFKA_41, KAFKA_44
from tests.worlds import clusters, stores
from tests.worlds.clusters import vanilla
from tests.worlds.world import World

# The newest broker is the newest that Maven had when this was written.
WORLDS: Final = (
    World(name="ZooKeeper", kafka=clusters.zookeeper, store=stores.minio, is_quick=True),
    World(name="3.3", kafka=vanilla(KAFKA_33), store=stores.minio),
    World(name="3.9", kafka=vanilla(KAFKA_39), store=stores.minio),
    World(name="4.1", kafka=vanilla(KAFKA_41), store=stores.minio),
    World(name="4.4", kafka=vanilla(KAFKA_44), store=stores.minio),
    World(name="versitygw", kafka=vanilla(KAFKA_41), store=stores.versitygw),
    World(name="s3proxy", kafka=vanilla(KAFKA_41), store=stores.s3proxy),
    World(name="moto", kafka=vanilla(KAFKA_39), store=stores.moto),
)
