"""One restore, killed in every gap between two of its effects and at random, woken up after all was done, beside itself: each
record is there once, in order.

`--hypothesis-seed=N` replays records, gaps and moments; only the machine's own timing is new.
"""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import archiver.kafka.brokers.connection
import archiver.restore.fill.partition_map
import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
import archiver.restore.plan.claim_stream
import archiver.restore.plan.noted_plan
import archiver.restore.plan.restore_notes
import archiver.restore.targets.target_configs
import archiver.restore.targets.targets
from archiver.errors import ArchiverError, TemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.topics.configs import topic_configs
from archiver.restore.plan.request import Existing
from archiver.restore.report.restore_report import RestoreResult
from tests.support.brokers import KAFKA_41, REPOSITORY, Broker, Bucket, GivenS3, StartBroker
from tests.support.executors import Executor, executors_in, python_that_stops_once
from tests.support.faulty_s3 import FaultyS3, Weather
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, produce_values, with_client
from tests.support.produce_doubles import Killed
from tests.support.raw_produce import produce_records
from tests.support.records import Rec, classes_of, generate, missing_classes
from tests.support.restore_kills import (
    FAILPOINTS,
    FINISHING,
    SENDING,
    Killer,
    Step,
    Victim,
    killer_of,
    kills_of,
    make_plan,
)
from tests.support.round_trip import KEEP_ALL, ArchiveSite, archive_site, errors_of
from tests.support.service import eventually
from tests.support.submits import Submits, result_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

BATCH = 100
KEYS = 97
BATCH_BYTES = 4096
LONG_S = 3600
MODULES = (
    archiver.kafka.brokers.connection,
    archiver.restore.plan.claim_stream,
    archiver.restore.plan.restore_notes,
    archiver.restore.fill.sending,
    archiver.restore.targets.target_configs,
    archiver.restore.targets.targets,
    archiver.restore.fill.partition_map,
    archiver.restore.fill.partition_restore,
)
SKIPPED = "skipped.noted"  # of a damaged object


@pytest.fixture
def site(bucket: Bucket, tmp_path: Path) -> Iterator[ArchiveSite]:
    with archive_site(bucket, tmp_path) as site:
        yield site


@dataclass(frozen=True, slots=True)
class Case:
    """Two archived topics and where they go: one target has records of others, which are purged, the other is not there."""

    site: ArchiveSite
    bootstrap: str
    oracle: JavaOracle
    written: dict[str, dict[int, list[Rec]]]

    @property
    def renames(self) -> list[str]:
        return [f"{name}={name}.back" for name in self.written]

    @property
    def arguments(self) -> list[str]:
        renames = [text for rename in self.renames for text in ("--rename", rename)]
        options = ["--target", "target.yaml", "--purge-target", "--id", "mine"]
        return [*options, "--batch-bytes", str(BATCH_BYTES), "--format", "json", *renames]

    def restore_here(self, **asked: Any) -> RestoreResult:  # noqa: ANN401 - of a RestoreRequest
        return self.site.restore(
            self.bootstrap,
            rename=self.renames,
            restore_id="mine",
            batch_bytes=BATCH_BYTES,
            existing=Existing.PURGE,
            **asked,
        )

    def count_on_target(self) -> int:
        """How many records the targets hold, whoever wrote them."""

        async def body(client: KafkaClient) -> int:
            found = await client.describe_topics([f"{name}.back" for name in self.written])
            wanted = [(name, number) for name, one in found.items() for number in one.partitions]
            ends, _ = await client.offsets_each(wanted)
            return sum(one.high_watermark for one in ends.values())

        return with_client(self.bootstrap, body)

    def check(self) -> None:
        """By Kafka's own consumer: the same records at the same offsets."""
        for name, written in self.written.items():
            found = self.oracle.consume(self.bootstrap, f"{name}.back").records
            assert {number: len(records) for number, records in found.items()} == {
                number: len(records) for number, records in written.items()
            }
            assert dict(found) == written
            own = dict(with_client(self.bootstrap, partial(topic_configs, name=f"{name}.back")).own)
            assert own == KEEP_ALL | {"retention.bytes": "-1"}


def make_case(
    site: ArchiveSite, broker: Broker, oracle: JavaOracle, topic: str, seed: int, partitions: int, records: int
) -> Case:
    written = {}
    for number, name in enumerate((f"{topic}.a", f"{topic}.b")):
        create_topic(broker.bootstrap, name, partitions, KEEP_ALL)
        written[name] = {
            partition: fill(broker, name, partition, records_of(seed + 100 * number + partition, records))
            for partition in range(partitions)
        }
    every = [record for some in written.values() for records in some.values() for record in records]
    assert missing_classes(classes_of(every)) == []
    assert errors_of(site.back_up(broker.bootstrap, *written, records=records // 4)) == {}
    create_topic(broker.bootstrap, f"{topic}.a.back", 1, KEEP_ALL)
    produce_values(broker.bootstrap, f"{topic}.a.back", [b"of another time"])
    site.write_config(broker.bootstrap, *written)
    site.write_target(broker.bootstrap)
    return Case(site, broker.bootstrap, oracle, written)


def records_of(seed: int, count: int) -> list[Rec]:
    """Of every class; every second one has a key that comes again."""
    return [
        replace(record, key=b"key %d" % (record.offset % KEYS)) if record.offset % 2 else record
        for record in generate(seed, count)
    ]


def fill(broker: Broker, topic: str, partition: int, records: list[Rec]) -> list[Rec]:
    produce_records(broker.bootstrap, topic, records, size=BATCH, partition=partition)
    return records


# --- in this process: every gap, one after the other


class Places:
    """Stands in for archiver.process.running.failpoints: counts, and kills at the one that is armed."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self._armed: str | None = ""  # None: any
        self._left: list[int] = []  # how often it is passed until somebody dies there, and from then on the next one
        self._lock = threading.Lock()

    def arm(self, name: str, count: int = 1) -> None:
        self._armed, self._left = name, [count]

    def arm_any(self, counts: list[int]) -> None:
        self._armed, self._left = None, counts

    def reach(self, name: str) -> None:
        with self._lock:
            self.passed[name] += 1
            if not self._left or self._armed not in {None, name}:
                return
            self._left[0] -= 1
            if self._left[0]:
                return
            del self._left[0]
        raise Killed


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    places = Places()
    for module in MODULES:
        monkeypatch.setattr(module, "reach", places.reach)
    return places


def damage(site: ArchiveSite, key: str) -> None:
    client = s3_client(site.bucket)
    found = client.get_object(Bucket=site.bucket.name, Key=key)
    content = bytearray(found["Body"].read())
    content[-200] ^= 0x10
    client.put_object(Bucket=site.bucket.name, Key=key, Body=bytes(content), Metadata=found["Metadata"])


@pytest.mark.timeout(180)
def test_killed_in_every_gap(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int, places: Places
) -> None:
    """A damaged object is left out by the run that meets it, and by all that come later: no number of a record may change."""
    case = make_case(site, broker_41, java_oracle, topic, seed, partitions=3, records=800)
    name = f"{topic}.b"
    damage(site, keys_in(site.bucket, f"topics/{name}/partition=2/")[1])  # of the last one that is filled
    left = [record for record in case.written[name][2] if record.offset not in range(200, 400)]
    case.written[name][2] = [replace(record, offset=at) for at, record in enumerate(left)]
    rng = random.Random(f"{seed}-gaps")
    gaps = [*((gap, 1) for gap in FAILPOINTS if gap not in FINISHING), ("fill.configured", 2)]
    gaps += [(gap, rng.randint(1, 12)) for gap in SENDING for _ in range(5)]
    gaps += [(SKIPPED, 1), *((gap, 1) for gap in FINISHING)]
    for gap, count in gaps:
        places.arm(gap, count)
        with pytest.raises(Killed):
            raise AssertionError(f"{gap}:{count} was not reached: {case.restore_here(skips_damage=True)}")
    places.arm("")
    result = case.restore_here(skips_damage=True)
    assert [one.error for found in result.topics for one in found.partitions if one.error] == []
    assert {*places.passed} - {"request.sent"} == {*FAILPOINTS, SKIPPED}, "a gap of which the tests do not know"
    case.check()


@pytest.mark.timeout(240)
def test_two_runs_at_once_that_die_again_and_again(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int, places: Places
) -> None:
    """Both make the target again, and fill it: whoever is behind goes on with what the other one has done."""
    case = make_case(site, broker_41, java_oracle, topic, seed, partitions=2, records=800)
    rng = random.Random(f"{seed}-twice")
    deaths = 0

    def run(_: int) -> bool:
        nonlocal deaths
        try:
            result = case.restore_here()
        except Killed:
            deaths += 1
            return False
        except TemporaryError as error:
            print(error)
            return False
        assert [one.error for found in result.topics for one in found.errors] == []
        return True

    with ThreadPoolExecutor(2) as pool:
        for turn in range(20):
            places.arm_any([rng.randint(1, 30) for _ in range(2)])
            list(pool.map(run, range(2)))
            if turn >= 3 and deaths >= 4:
                break
        else:
            raise AssertionError(f"{deaths} deaths")
        places.arm_any([])
        assert any(list(pool.map(run, range(2))) == [True, True] for _ in range(5))
    case.check()


# --- processes


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_worker_killed_and_a_stopped_task_woken_up(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int
) -> None:
    case = make_case(site, broker_41, java_oracle, topic, seed, partitions=1, records=2000)
    rng = random.Random(f"{seed}-short")
    steps = [
        Step(Victim.FAILPOINT, f"batch.answered:{rng.randint(1, 30)}"),
        Step(Victim.NOBODY, f"{rng.choice(['batch.sent', 'batch.answered'])}:{rng.randint(1, 30)}"),
    ]
    with killer_of(site, case.arguments, case.count_on_target) as killer:
        run_steps(killer, case, steps)


def run_steps(killer: Killer, case: Case, steps: list[Step]) -> None:
    """Every step must come to its end, and the target must hold each record once."""
    for number, step in enumerate(steps):
        print(f"{number}. {step}", flush=True)
        killer.do(step)
    result = killer.finish()
    expected = sum(len(records) for some in case.written.values() for records in some.values())
    partitions = [one for found in result["topics"] for one in found["partitions"]]
    assert sum(one["records"] for one in partitions) == expected
    case.check()
    print(f"{expected} records, {killer.kills.total()} kills {dict(killer.kills)}, {len(killer.zombies)} woken up")


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(LONG_S)
def test_thirty_kills(broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int) -> None:
    steps = make_plan(seed, generations=2)
    assert kills_of(steps) == 30
    case = make_case(site, broker_41, java_oracle, topic, seed, partitions=5, records=3000)
    with killer_of(site, case.arguments, case.count_on_target) as killer:
        run_steps(killer, case, steps)
        assert {*FAILPOINTS} - {*killer.kills} == set(), "gaps that were never hit"
        assert killer.kills.total() == 30
        assert len(killer.zombies) == 2


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_tasks_that_spark_gave_up_wake_up_when_their_retries_are_done(
    broker_41: Broker, bucket: Bucket, tmp_path: Path, topic: str, java_oracle: JavaOracle, seed: int
) -> None:
    """On a cluster two executors are lost, one after the other, but their Python only stands still: the first one's with a
    request on its way or just answered, the second one's anywhere. Spark repeats their tasks on others.
    """
    rng = random.Random(f"{seed}-cluster")
    failpoint = f"{rng.choice(SENDING)}:{rng.randint(2, 30)}"
    lost: list[Executor] = []
    told: list[str] = []
    begun_s = time.monotonic()
    with FaultyS3(bucket.s3.endpoint) as store, ThreadPoolExecutor(1) as pool:
        seen = Bucket(GivenS3(store.endpoint, bucket.s3.access_key, bucket.s3.secret_key), bucket.name)
        with archive_site(seen, tmp_path) as site:
            case = make_case(site, broker_41, java_oracle, topic, seed, partitions=2, records=3000)
            expected = sum(len(records) for some in case.written.values() for records in some.values())
            python = python_that_stops_once(tmp_path / "python", sys.executable, failpoint)
            confs = {"spark.archives": None, "spark.pyspark.python": str(python)}
            confs["spark.executorEnv.PYTHONPATH"] = str(REPOSITORY)
            submits = Submits(site, pack=tmp_path / "none", python=python)
            arguments = ["restore", *case.arguments, "--rate", "600kB"]
            running = pool.submit(submits.run_by_project, *arguments, confs=confs)

            def lose_one(what: str, is_it: Callable[[Executor], bool]) -> None:
                end_s = time.monotonic() + 400
                while not (found := [one for one in executors_in(tmp_path) if is_it(one)]):
                    assert not running.done(), f"it ended before {what}: {running.result()}"
                    assert time.monotonic() < end_s, f"not in time: {what}"
                    time.sleep(0.02)
                lost.append(found[0])
                found[0].lose()
                told.append(f"{time.monotonic() - begun_s:.0f} s: {what}, with {case.count_on_target()} records there")

            try:
                lose_one(f"a worker stands at {failpoint}", lambda one: one.stands)
                enough = int(expected * rng.uniform(0.3, 0.6))
                lose_one("one works", lambda one: not one.stands and case.count_on_target() >= enough)
                result = result_of(running.result())
                told.append(f"{time.monotonic() - begun_s:.0f} s: the restore has ended whole")
                partitions = [one for found in result["topics"] for one in found["partitions"]]
                assert sum(one["records"] for one in partitions) == expected
                case.check()
                for executor in lost:
                    assert executor.stands
                    asked, woken_s = sum(store.requests.values()), time.monotonic()
                    executor.wake()
                    while not executor.is_gone:
                        assert time.monotonic() < woken_s + 120, "it does not end"
                        time.sleep(0.01)
                    asked = sum(store.requests.values()) - asked
                    told.append(f"woken up: {time.monotonic() - woken_s:.1f} s, asked the store {asked} times")
                    assert asked > 0, "it did nothing"
                case.check()
            finally:
                for executor in lost:
                    executor.end()
                print("\n".join([f"{expected} records", *told]))


# --- the broker and the store


@pytest.mark.timeout(240)
def test_a_broker_killed_and_a_store_in_bad_weather(
    new_broker: StartBroker, bucket: Bucket, tmp_path: Path, topic: str, java_oracle: JavaOracle, seed: int
) -> None:
    broker = new_broker(KAFKA_41)
    with FaultyS3(bucket.s3.endpoint) as proxy:
        behind = Bucket(GivenS3(proxy.endpoint, bucket.s3.access_key, bucket.s3.secret_key), bucket.name)
        with archive_site(behind, tmp_path) as site:
            case = make_case(site, broker, java_oracle, topic, seed, partitions=2, records=1200)
            weather = Weather(seed)
            proxy.set_weather(weather)
            with ThreadPoolExecutor(1) as pool:
                killing = pool.submit(_kill_broker, broker, case)
                runs = _until_done(lambda: case.restore_here(rate_bytes=300_000))
                killing.result()
            print(f"{runs} runs; {weather.met}")
            proxy.set_weather(None)
            assert weather.met.total() > 0
            case.check()


def _kill_broker(broker: KafkaBroker, case: Case) -> None:
    """When records have come; one is there before."""

    def have_come() -> bool:
        with suppress(ArchiverError):
            return case.count_on_target() > 300
        return False

    eventually(have_come, "not enough records on the target", every_s=0.05)
    broker.kill()
    broker.start()


def _until_done(restore: Callable[[], RestoreResult]) -> int:
    """Run the same command until it ends well; what it fails for meanwhile must be temporary."""
    for number in range(1, 30):
        try:
            result = restore()
        except TemporaryError as error:
            print(f"{number}: {error}")
            time.sleep(0.5)  # it is refused at once while the broker is away
            continue
        errors = [one for found in result.topics for one in found.errors]
        assert {one.exit_code for one in errors} <= {TemporaryError.exit_code}, errors
        if not errors:
            return number
        print(f"{number}: {errors[0].error}")
    raise AssertionError("it does not end")
