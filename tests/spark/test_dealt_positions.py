"""Groups in a topic that was dealt into another number of partitions, their positions found by a Spark job."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import archiver.spark.repartition
from archiver.restore.request import RestoreRequest
from archiver.spark.dealt_positions import approximate_positions
from tests.support.brokers import Broker, Bucket
from tests.support.dealt_groups import dealt_topic, read_on, unread
from tests.support.dealt_records import fill
from tests.support.round_trip import archive_site
from tests.support.spark_bucket import lend_bucket, own_daemon

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(240)]

# Between records, at the beginning, at the end, and far behind it. `late` has no commit in partition 2.
COMMITTED = {
    "billing": {0: 120, 1: 33, 2: 149},
    "late": {0: 7, 1: 80},
    "done": {0: 120, 1: 80, 2: 10**6},
    "nothing": {},
}


def run_at_once(_spark: object, tasks: Sequence[Any], run: Callable[[Any], Any], *_: object) -> list[Any]:
    """As executors do it: so sources come between each other in the target."""
    with ThreadPoolExecutor(max(1, len(tasks))) as pool:
        return list(pool.map(run, tasks))


def test_a_consumer_misses_nothing_and_reads_again_what_was_told(
    broker: Broker, topic: str, bucket: Bucket, tmp_path: Path, spark_avro: SparkSession, seed: int
) -> None:
    request = RestoreRequest(repartition=5, batch_bytes=500)
    target = f"{topic}.back"
    with (
        archive_site(bucket, tmp_path) as site,
        pytest.MonkeyPatch.context() as patch,
        own_daemon(spark_avro.sparkContext),
    ):
        lend_bucket(bucket, spark_avro.sparkContext, patch)
        written = fill(broker, topic, [120, 80, 150], seed)
        site.back_up(broker.bootstrap, topic, records=30)
        patch.setattr(archiver.spark.repartition, "run_on_spark", run_at_once)
        site.restore(broker.bootstrap, rename=[f"{topic}={target}"], restore_id="mine", repartition=5, batch_bytes=500)
        dealt = dealt_topic(site, broker.bootstrap, target, "mine", request, COMMITTED)
        (found,) = approximate_positions(spark_avro.sparkContext, [dealt])
    assert (found.error, found.refused) == ("", ())
    assert found.groups.keys() == COMMITTED.keys() - {"nothing"}
    for group, positions in found.groups.items():
        read = read_on(broker.bootstrap, target, f"{topic}.{group}", [one.offset for one in positions])
        missed = unread(written, COMMITTED[group])
        assert missed <= read.keys()
        assert set(read.values()) <= {1}
        assert (len(read) - len(missed), found.deleted(group)) == (found.read_again(group), 0)
    assert found.read_again("done") == 0
    assert found.read_again("billing") > 0
