"""Both instances of compacted topics as processes of their own: started, killed, stopped at a place and woken up; and what is written meanwhile."""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

from confluent_kafka import Consumer, TopicPartition

from tests.support.compacted_copies import latest, newest_entry, records_given
from tests.support.forked_commands import installed_commands
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import delete_topic, producer_of
from tests.support.processes import state_of
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually, service_config

Latest = dict[int, dict[bytes | None, bytes]]  # partition -> the newest value of each key that was not deleted

SECONDS: Final = 1 / 86_400
_LONGEST_STAND_S: Final = 8.0
ROLES: Final = {"a": "active", "b": "passive"}


def compacted_config(
    site: ArchiveSite, bootstrap: str, *include: str, turn_s: float = 8.0, **compacted: object
) -> dict[str, Any]:
    config = service_config(site, bootstrap, *include, segment={"age": "1s"}, group=f"g-{site.bucket.name}")
    config["compacted"] = {
        "enabled": True,
        "instances": ["a", "b"],
        "log.backup.length.days": turn_s * SECONDS,
        "takeover": "5s",
        "interval": "500ms",
        "clear.delay": "2s",
        **compacted,
    }
    return config


@contextlib.contextmanager
def instance(
    site: ArchiveSite, config: Mapping[str, Any], name: str, *arguments: str, process: str = "", **environment: str
) -> Iterator[Instance]:
    """`process`: what tells one process of an instance from another, in the names of its files."""
    found = Instance(
        site,
        config,
        name + process,
        environment,
        command=("compacted", "run"),
        arguments=("--instance", name, *arguments),
    )
    try:
        yield found
    except BaseException:
        print(f"--- {found.log_path}\n{found.log[-9000:]}")
        raise
    finally:
        found.kill()


class Fleet:
    """Both instances, as processes that are killed, stopped and started again."""

    def __init__(self, site: ArchiveSite, config: Mapping[str, Any]) -> None:
        self._site = site
        self._config = config
        self._stands_since: dict[int, float] = {}
        self.running: dict[str, Instance] = {}
        self.deaths = 0
        self.stops = 0

    def start(self, name: str, failpoint: str = "", **compacted: object) -> None:
        """`failpoint`: where the process dies, or stops. `compacted`: keys of that section, as this process has them."""
        config = {**self._config, "compacted": {**self._config["compacted"], **compacted}}
        former = self.running.get(name)
        self.deaths += former is not None and former.process.poll() == -signal.SIGKILL
        command, arguments = ("compacted", "run"), ("--instance", name, "--initial-role", ROLES[name])
        environment = {"ARCHIVER_FAILPOINT": failpoint} if failpoint else {}
        with installed_commands():
            self.running[name] = Instance(self._site, config, name, environment, command=command, arguments=arguments)

    def kill(self, name: str) -> None:
        self.running[name].kill()

    def start_again(self, name: str, failpoint: str = "", **compacted: object) -> None:
        """Stop it in order, so that its group need not wait for it; then start it."""
        assert self.running[name].stop() == 0
        self.start(name, failpoint, **compacted)

    def is_standing(self, name: str) -> bool:
        return state_of(self.running[name].process.pid) == "T"

    def until_standing(self, name: str) -> None:
        """Wait until it has stopped at its place."""
        one = self.running[name]

        def stands() -> bool:
            assert one.process.poll() is None, f"{name} ended, with {one.process.returncode}"
            return self.is_standing(name)

        eventually(stands, f"{name} does not come to its place")
        self.stops += 1

    def wake(self, name: str) -> None:
        os.kill(self.running[name].process.pid, signal.SIGCONT)

    def see_to(self) -> None:
        """Start again whoever died, without its failpoint; wake up whoever has stood still for long enough."""
        for name, one in self.running.items():
            if one.process.poll() is not None:
                assert one.process.returncode == -signal.SIGKILL, f"{name} ended, with {one.process.returncode}"
                self.start(name)
            elif self.is_standing(name):
                if one.process.pid not in self._stands_since:
                    self._stands_since[one.process.pid] = time.monotonic()
                    self.stops += 1
                if time.monotonic() > self._stands_since[one.process.pid] + _LONGEST_STAND_S:
                    self.wake(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for name, one in self.running.items():
            one.kill()
            if kind is not None:
                print(f"--- {name}: {one.log_path}\n{one.log[-9000:]}")


class Changelog(threading.Thread):
    """A producer as Kafka Streams has one for a store's changelog: transactions with values, deletions and an offset; some are aborted."""

    def __init__(self, bootstrap: str, topic: str, partition: int, seed: str) -> None:
        super().__init__(name=f"changelog-{topic}", daemon=True)
        self._where = topic, partition
        self._dice = random.Random(seed)
        self._producer = producer_of(bootstrap, transactional_id=f"{topic}-changelog", linger_ms=0)
        self._positions = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-app"})
        self._may_go = threading.Event()
        self._is_over = False
        self._between = threading.Lock()
        self.committed = 0
        self.aborted = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._producer.init_transactions(30)
            number = 0
            while not self._is_over:
                self._may_go.wait()
                with self._between:
                    self._transact(number)
                number += 1
                time.sleep(0.05)
        except Exception as error:  # noqa: BLE001 - told by the test's own thread
            self.error = error

    def _transact(self, number: int) -> None:
        dice, (topic, partition) = self._dice, self._where
        self._producer.begin_transaction()
        for _ in range(dice.randint(1, 12)):
            key, value = b"e%d" % dice.randint(0, 200), b"%d of an application" % number
            self._producer.produce(topic, value if dice.random() < 0.8 else None, key, partition=partition)
        read = TopicPartition(topic, 1, number + 1)
        self._producer.send_offsets_to_transaction([read], self._positions.consumer_group_metadata(), 30)
        if dice.random() < 0.7:
            self._producer.commit_transaction(30)
            self.committed += 1
        else:
            self._producer.flush(30)
            self._producer.abort_transaction(30)
            self.aborted += 1

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Between two transactions: nothing is written meanwhile."""
        self._may_go.clear()
        with self._between:
            yield
        assert self.error is None, self.error
        self._may_go.set()

    def __enter__(self) -> Self:
        self._may_go.set()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._may_go.set()
        self.join(60)
        self._positions.close()


def write(bootstrap: str, topic: str, values: Mapping[str, str | None], partition: int = 0) -> None:
    producer = producer_of(bootstrap)
    for key, value in values.items():
        producer.produce(topic, None if value is None else value.encode(), key=key.encode(), partition=partition)
    assert producer.flush(30) == 0


def fill_oddly(bootstrap: str, topic: str) -> None:
    """Partition 1 is idle, 2 is empty, 3 ends in a marker behind an aborted record."""
    write(bootstrap, topic, {f"idle {number}": "some" for number in range(20)}, 1)
    producer = producer_of(bootstrap, transactional_id=f"{topic}-t")
    producer.init_transactions(20)
    for is_kept in (True, False):
        producer.begin_transaction()
        producer.produce(topic, b"in a transaction", key=b"kept" if is_kept else b"aborted", partition=3)
        if is_kept:
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)


def holder(site: ArchiveSite, topic: str, partition: int = 0, life: int = 0) -> str:
    entry = newest_entry(site.bucket, topic, partition, life)
    return "" if entry is None else entry.holder


def latest_on(oracle: JavaOracle, bootstrap: str, topic: str, partitions: int) -> Latest:
    """As Kafka's own read_committed consumer sees them."""
    seen = oracle.consume(bootstrap, topic).records
    return {number: latest(seen.get(number, [])) for number in range(partitions)}


def latest_given(site: ArchiveSite, topic: str, partitions: int) -> Latest:
    """By the independent reader."""
    return {number: latest(records_given(site.bucket, topic, number, 0)) for number in range(partitions)}


def latest_restored(
    site: ArchiveSite, oracle: JavaOracle, bootstrap: str, topic: str, target: str, *, life: int | None = None
) -> Latest:
    """Restore into another topic of the broker, which is deleted then; what each key came to there."""
    rename = [f"{topic}={target}"]
    (restored,) = site.restore(bootstrap, topics=topic, rename=rename, life=life, is_latest_per_key=False).topics
    assert restored.errors == ()
    found = oracle.consume(bootstrap, target).records
    delete_topic(bootstrap, target)
    return {number: latest(records) for number, records in found.items()}
