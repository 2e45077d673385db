"""`archiver copy` between two buckets: killed, beside a running backup and a sweep; read by others afterwards."""

import hashlib
import signal
import uuid

import pytest
import yaml

from archiver.config.model import ArchiverConfig
from archiver.spark.verify import VerifyResult, run_verify
from archiver.upkeep.object_check import Level
from tests.integration.upkeep.test_retention_beside_a_backup import SWEEP_S, Flow
from tests.support.brokers import KAFKA_41, Broker, Bucket, StartBroker
from tests.support.foreign_reader import keys_in, read_partitions, s3_client
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.processes import end_of
from tests.support.real_sweeps import DAY_MS, EAGER, cut, produce_aged, read_kept, start_sweep
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.service import eventually, running, service_config
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]


@pytest.fixture
def second(site: ArchiveSite) -> Bucket:
    made = Bucket(site.bucket.s3, f"second-{uuid.uuid4().hex[:12]}")
    s3_client(made).create_bucket(Bucket=made.name)
    return made


def verified(second: Bucket, level: Level = Level.RECORDS) -> VerifyResult:
    storage = {"url": f"{second.url}/archive", "endpoint": second.s3.endpoint}
    return run_verify(ArchiverConfig.model_validate({"storage": storage}), level)


def objects_of(bucket: Bucket, prefix: str = "") -> dict[str, tuple[str, dict[str, str]]]:
    """SHA-256 and metadata of each object, by AWS's own client."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for key in keys_in(bucket, prefix):
        answer = s3_client(bucket).get_object(Bucket=bucket.name, Key=key)
        found[key.removeprefix(prefix)] = hashlib.sha256(answer["Body"].read()).hexdigest(), answer["Metadata"]
    return found


def to_second(site: ArchiveSite, second: Bucket) -> tuple[str, ...]:
    """By a file, as another store is named."""
    storage = {"url": f"{second.url}/archive", "endpoint": second.s3.endpoint}
    (site.folder / "second.yaml").write_text(yaml.safe_dump({"storage": storage}))
    return "copy", "--to", "second.yaml", "--format", "json"


def test_killed_and_beside_a_backup_and_a_sweep(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, second: Bucket
) -> None:
    broker = shared_broker(KAFKA_41, **EAGER)
    create_topic(broker.bootstrap, topic, 2, KEEP_ALL)
    produce_aged(broker.bootstrap, topic, [(12 - number) * DAY_MS for number in range(10)])
    config = service_config(site, broker.bootstrap, topic)
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
    site.back_up(broker.bootstrap, topic, records=1)
    typed = to_second(site, second)

    killed = end_of(site.command(*typed, ARCHIVER_FAILPOINT="copy.put:9"), 60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert any("their objects are gone" in problem for problem in verified(second, Level.LISTING).problems)

    flow = Flow(broker.bootstrap, topic, 2)
    with running(site, config) as backup, flow.flowing():
        for _ in range(2):
            done = site.run(*typed)
            assert done.returncode == 0, (done.stdout, done.stderr)
        assert verified(second).is_whole
        set_configs(broker, topic, retention_ms=str(4 * DAY_MS))
        cut(broker, topic, 8)
        for failpoint in (
            "",
            "sweep.noted",
            "",
        ):  # the first one notes what is kept; one dies between its note and the delete
            sweep = start_sweep(site, broker.bootstrap, topic, failpoint)
            while sweep.poll() is None:
                done = site.run(*typed)
                assert done.returncode == 0, (done.stdout, done.stderr)
            end_of(sweep, SWEEP_S)
        flow.end()
        eventually(lambda: {nr: one.end for nr, one in read_kept(site.bucket, topic).items()} == flow.ends)
        assert backup.stop() == 0
    swept = f"topics/{topic}/partition=0/{topic}+0-{0:020}.data"
    assert swept not in keys_in(site.bucket)
    done = site.run(*typed)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert verified(second).is_whole
    first, copied = objects_of(site.bucket), objects_of(second, "archive/")
    assert all(key.startswith(("control/sweeps/", "control/runs/")) for key in first.keys() - copied)
    both = copied.keys() & first.keys() - {"README.txt"}  # each has its own, which names its prefix
    assert {key: copied[key] for key in both} == {key: first[key] for key in both}
    assert swept in copied


def test_a_copy_is_an_archive_of_its_own(broker_41: Broker, topic: str, site: ArchiveSite, second: Bucket) -> None:
    create_topic(broker_41.bootstrap, topic)
    values = [b"%d" % number for number in range(50)]
    produce_values(broker_41.bootstrap, topic, values)
    site.write_config(broker_41.bootstrap, topic)
    site.back_up(broker_41.bootstrap, topic, records=7)
    done = site.run_within("copy", "--quiet", "--to", second.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row.value for row in read_partitions(second, topic)[0]] == values
    again = site.run_within("copy", "--to", second.url)
    assert again.stdout.startswith("0 objects")
    refused = site.run_within("copy", "--to", f"{site.bucket.url}/topics/orders")
    assert (refused.returncode, "overlaps with" in refused.stderr) == (2, True)
