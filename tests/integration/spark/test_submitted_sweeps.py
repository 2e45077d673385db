"""A retention sweep as spark-submit runs it: executors list and ask, the driver deletes."""

import time

import pytest
import yaml

from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic
from tests.support.real_sweeps import DAY_MS, bases, cut, produce_aged, sweep, until_swept
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.submits import CLUSTER, by_project, complaints, result_of
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize("master", ["local[2]", pytest.param(CLUSTER, marks=pytest.mark.long)])
def test_a_sweep_by_spark_submit(broker_41: Broker, topic: str, site: ArchiveSite, master: str) -> None:
    """By the digest of a dry run on one machine."""
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 3, KEEP_ALL)
    for partition in range(2):  # the third stays empty
        produce_aged(bootstrap, topic, [age * DAY_MS for age in range(5, 0, -1)], partition)
    site.back_up(bootstrap, topic, records=1)
    for partition in range(2):
        cut(broker_41, topic, 4, partition)
    set_configs(broker_41, topic, retention_ms=str(DAY_MS))  # not before: the broker would be first
    assert not sweep(site, bootstrap, topic).swept  # it only notes what the topic keeps
    config = site.config(bootstrap, [topic]) | {"retention": {"grace": 0, "min-object-age": 0}}
    time.sleep(1.1)  # the store's clock has whole seconds, and what was put in this one is too young
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
    submits, confs = by_project(site)
    confs |= {"spark.master": master}
    shown = sweep(site, bootstrap, topic, is_dry_run=True)
    done = submits.run_by_project("retention", "--yes", shown.digest, "--format", "json", "--quiet", confs=confs)
    assert complaints(done) == []
    told = result_of(done)
    assert (told["complete"], told["topics"][0]["deleted"], told["not_planned"]) == (True, 8, 0)
    assert bases(site, topic) == [4, 4]
    assert site.verify(bootstrap, [topic], against_kafka=True).is_whole
    assert until_swept(site, broker_41, topic).plan.objects == 0
