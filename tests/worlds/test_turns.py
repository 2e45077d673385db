"""One turn of both instances, end to end, on the oldest broker and on the newest: what is restored after it is what the broker has."""

from pathlib import Path

import pytest

from tests.support.brokers import KAFKA_44, Bucket
from tests.support.compacted_copies import newest_entry
from tests.support.examples import EAGER_CLEANER
from tests.support.foreign_reader import s3_client
from tests.support.instances import (
    Fleet,
    compacted_config,
    fill_oddly,
    holder,
    latest_given,
    latest_on,
    latest_restored,
    write,
)
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import archive_site
from tests.support.service import eventually
from tests.worlds import clusters, stores

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.worlds, pytest.mark.timeout(600)]

TOPIC, PARTITIONS = "accounts", 4
KAFKAS = {
    "2.8": (clusters.zookeeper, False),  # these brokers do not tell enough: every copy is unsure
    "4.4": (clusters.vanilla(KAFKA_44), True),
}


@pytest.mark.parametrize("name", KAFKAS)
def test_a_turn_end_to_end(tmp_path: Path, java_oracle: JavaOracle, name: str) -> None:
    start_kafka, is_sure = KAFKAS[name]
    (tmp_path / "site").mkdir()
    with stores.minio(tmp_path / "store") as store, start_kafka(tmp_path / "kafka") as kafka:
        bucket = Bucket(store.s3, "archive")
        s3_client(bucket).create_bucket(Bucket=bucket.name)
        create_topic(kafka.bootstrap, TOPIC, PARTITIONS, EAGER_CLEANER)
        fill_oddly(kafka.bootstrap, TOPIC)
        for number in range(20):
            write(kafka.bootstrap, TOPIC, {f"k{key}": f"{number}" for key in range(50)})
        write(kafka.bootstrap, TOPIC, {f"k{key}": None for key in range(10)})
        with (
            archive_site(bucket, tmp_path / "site") as site,
            Fleet(site, compacted_config(site, kafka.bootstrap, TOPIC)) as fleet,
        ):
            for instance in "ab":
                fleet.start(instance)

            def all_have_turned() -> bool:
                return all(holder(site, TOPIC, partition).startswith("b:") for partition in range(PARTITIONS))

            eventually(all_have_turned, "not all have turned")
            write(kafka.bootstrap, TOPIC, {"k0": "again", "k49": None})
            expected = latest_on(java_oracle, kafka.bootstrap, TOPIC, PARTITIONS)
            assert [len(expected[partition]) for partition in range(PARTITIONS)] == [40, 20, 0, 1]
            eventually(
                lambda: latest_given(site, TOPIC, PARTITIONS) == expected, "other records are given", every_s=0.5
            )
            entry = newest_entry(bucket, TOPIC)
            assert entry is not None
            assert entry.told["holder"]["is_sure"] is is_sure
            assert latest_restored(site, java_oracle, kafka.bootstrap, TOPIC, "back") == expected
