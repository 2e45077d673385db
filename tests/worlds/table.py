"""All worlds, and what comes of the cycle in each: a row here is a row in docs/proofs.md."""

from typing import Final

from tests.support.brokers import KAFKA_33, KAFKA_39, KAFKA_41, KAFKA_44
from tests.support.faulty_s3 import Quirk
from tests.support.tiered import FAIL, TIERED_AND_LOCAL
from tests.worlds import clusters, stores
from tests.worlds.clusters import vanilla
from tests.worlds.world import Refusal, Step, World

# The newest broker is the newest that Maven had when this was written.
WORLDS: Final = (
    World(name="ZooKeeper", kafka=clusters.zookeeper, store=stores.minio, is_quick=True),
    World(
        name="topics without ids",
        kafka=clusters.without_topic_ids,
        store=stores.minio,
        refusal=Refusal(
            Step.UNTIL_END,
            1,
            r"topic \S+ has no topic id, so it cannot be archived: raise inter\.broker\.protocol\.version to 2\.8 or later",
            "a topic that is created again could not be told from the archived one",
        ),
    ),
    World(name="a topic in the message format of 0.10", kafka=clusters.old_messages, store=stores.minio),
    World(name="3.3", kafka=vanilla(KAFKA_33), store=stores.minio),
    World(name="3.9", kafka=vanilla(KAFKA_39), store=stores.minio),
    World(name="4.1", kafka=vanilla(KAFKA_41), store=stores.minio),
    World(name="4.4", kafka=vanilla(KAFKA_44), store=stores.minio),
    World(
        name="tiered storage, slow reads that brokers wait for",
        kafka=clusters.tiered(clusters.always(1500), brokers_wait_ms=5000),
        store=stores.minio,
    ),
    World(
        name="tiered storage, very slow reads for a while",
        kafka=clusters.tiered(clusters.at_first(60_000)),
        store=stores.minio,
    ),
    World(
        name="tiered storage, reads that fail for a while",
        kafka=clusters.tiered(clusters.at_first(FAIL)),
        store=stores.minio,
    ),
    World(
        name="tiered storage, all of it on brokers' disks, too",
        kafka=clusters.tiered(clusters.always(60_000), TIERED_AND_LOCAL),
        store=stores.minio,
    ),
    World(
        name="tiered storage, reads always slower than brokers wait",
        kafka=clusters.tiered(clusters.always(1500)),
        store=stores.minio,
        refusal=Refusal(
            Step.UNTIL_END,
            4,
            r"nothing comes at offset 0, though the end is \d+; it lies in the remote tier.* remote.fetch.max.wait.ms",
            "its reads never end within the time that brokers give them (remote.fetch.max.wait.ms)",
        ),
    ),
    World(name="three racks, followers read from", kafka=clusters.racks, store=stores.minio),
    World(name="policies of a managed cluster", kafka=clusters.managed, store=stores.minio),
    World(name="ACLs with least rights", kafka=clusters.least_rights, store=stores.minio),
    World(name="quotas", kafka=clusters.quotas, store=stores.minio),
    World(name="versitygw", kafka=vanilla(KAFKA_41), store=stores.versitygw),
    World(name="s3proxy", kafka=vanilla(KAFKA_41), store=stores.s3proxy),
    World(
        name="S3Mock, which drops empty metadata",
        kafka=vanilla(KAFKA_41),
        store=stores.s3mock,
        refusal=Refusal(
            Step.UNTIL_END,
            1,
            r"the store does not give back metadata as it was put \(.*archiver-topic-id",
            "what has lost its metadata cannot be read",
        ),
    ),
    World(name="moto", kafka=vanilla(KAFKA_39), store=stores.moto),
    World(
        name="a store that wants a checksum with each put",
        kafka=vanilla(KAFKA_41),
        store=stores.quirky(stores.minio, Quirk.WANTS_CHECKSUM),
    ),
    World(name="a topic whose name the store cannot take", kafka=clusters.long_name, store=stores.minio),
    World(
        name="a store that overwrites",
        kafka=vanilla(KAFKA_41),
        store=stores.quirky(stores.moto, Quirk.OVERWRITES),
        refusal=Refusal(
            Step.UNTIL_END,
            1,
            r"the store does not honour If-None-Match: \* on put",
            "a second writer could destroy an archive there",
        ),
    ),
)
