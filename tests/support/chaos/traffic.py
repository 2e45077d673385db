"""Producers that write the whole time: plain, idempotent, transactional with many aborted, and to a compacted topic."""

import random
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from confluent_kafka import KafkaException, Producer

from tests.support.examples import EAGER_CLEANER
from tests.support.kafka_topics import add_partitions, create_topic
from tests.support.records import Rec, generate
from tests.support.round_trip import KEEP_ALL

_BURST = 60  # records at once, at most
_BIG_BYTES = 1_000_000
_FLUSH_S = 20.0
_JOIN_S = 180.0


class Style(Enum):
    """How a topic is written."""

    PLAIN = auto()
    IDEMPOTENT = auto()
    TRANSACTIONAL = auto()
    COMPACTED = auto()


_CONFIGS: Mapping[Style, Mapping[str, str]] = {
    Style.PLAIN: KEEP_ALL,
    Style.IDEMPOTENT: KEEP_ALL | {"message.timestamp.type": "LogAppendTime"},
    Style.TRANSACTIONAL: KEEP_ALL,
    Style.COMPACTED: KEEP_ALL | EAGER_CLEANER | {"segment.ms": "5000"},
}
_PROPERTIES: Mapping[Style, Mapping[str, str | int]] = {
    Style.PLAIN: {"acks": 1, "linger.ms": 0, "compression.type": "none"},
    Style.IDEMPOTENT: {"enable.idempotence": "true", "linger.ms": 50, "compression.type": "lz4"},
    Style.TRANSACTIONAL: {"linger.ms": 5, "compression.type": "zstd"},
    Style.COMPACTED: {"enable.idempotence": "true", "linger.ms": 20, "compression.type": "snappy"},
}


@dataclass(slots=True)
class Topic:
    """Written by one voice. `partitions` may grow."""

    name: str
    style: Style
    partitions: int
    rate: int = 250  # records a second

    @property
    def is_compacted(self) -> bool:
        return self.style is Style.COMPACTED


@dataclass(slots=True)
class Tally:
    """What the voices did."""

    sent: int = 0
    committed: int = 0
    aborted: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *, sent: int = 0, committed: int = 0, aborted: int = 0) -> None:
        with self._lock:
            self.sent += sent
            self.committed += committed
            self.aborted += aborted


class Voice:
    """One producer in a thread, over broker restarts. What it could not write is no loss: nobody ever saw it."""

    def __init__(self, bootstrap: str, topic: Topic, seed: str, tally: Tally) -> None:
        self.topic = topic
        self.failure: BaseException | None = None
        self._bootstrap = bootstrap
        self._rng = random.Random(seed)
        self._tally = tally
        self._producer: Producer | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"voice-{topic.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Everything is written, and no transaction is open."""
        self._stop.set()
        self._thread.join(_JOIN_S)
        assert not self._thread.is_alive(), f"the producer of {self.topic.name} does not end"

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                records = self._burst()
                self._write(records)
                self._stop.wait(len(records) / self.topic.rate)
            self._finish()
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.failure = error

    def _burst(self) -> Sequence[Rec]:
        rng = self._rng
        count = rng.randint(1, _BURST)
        records = generate(rng.getrandbits(32), count, raw=False, big_bytes=_BIG_BYTES, big_every=1_000_000)
        if rng.random() < 0.01:
            records[0] = replace(records[0], value=rng.randbytes(_BIG_BYTES))
        if self.topic.is_compacted:
            return [replace(record, key=b"key %d" % rng.randrange(200)) for record in records]
        return records

    def _write(self, records: Sequence[Rec]) -> None:
        if self.topic.style is not Style.TRANSACTIONAL:
            self._produce(self._open(), records)
            return
        with suppress(KafkaException):
            self._transact(records)
            return
        self._producer = None  # the next one fences this one, and aborts what it left open

    def _transact(self, records: Sequence[Rec]) -> None:
        producer = self._open()
        producer.begin_transaction()
        self._produce(producer, records)
        if self._rng.random() < 0.1:
            self._stop.wait(self._rng.uniform(0.2, 1.5))  # meanwhile the last stable offset stands still
        if self._rng.random() < 0.4:
            producer.flush(_FLUSH_S)  # else an abort would purge what was not sent yet
            producer.abort_transaction(_FLUSH_S)
            self._tally.add(aborted=1)
        else:
            producer.commit_transaction(_FLUSH_S)
            self._tally.add(committed=1)

    def _open(self) -> Producer:
        if self._producer is None:
            properties = {
                "bootstrap.servers": self._bootstrap,
                "topic.metadata.refresh.interval.ms": 1000,
                "message.max.bytes": 20_000_000,
                "log_level": 0,
                **_PROPERTIES[self.topic.style],
            }
            if self.topic.style is Style.TRANSACTIONAL:
                properties["transactional.id"] = f"voice-{self.topic.name}"
            producer = Producer(properties)
            if self.topic.style is Style.TRANSACTIONAL:
                producer.init_transactions(_FLUSH_S)
            self._producer = producer
        return self._producer

    def _produce(self, producer: Producer, records: Sequence[Rec]) -> None:
        for record in records:
            headers: list[tuple[str, str | bytes | None]] = [(key.decode(), value) for key, value in record.headers]
            partition = self._rng.randrange(self.topic.partitions)
            with suppress(BufferError, KafkaException):  # the broker is away; a new partition is not known yet
                producer.produce(
                    self.topic.name,
                    record.value,
                    record.key,
                    partition=partition,
                    timestamp=record.timestamp,
                    headers=headers,
                )
        producer.poll(0)
        self._tally.add(sent=len(records))

    def _finish(self) -> None:
        if self.topic.style is not Style.TRANSACTIONAL:
            assert self._open().flush(_JOIN_S / 2) == 0, f"{self.topic.name}: not everything was written"
            return
        self._producer = None
        self._open()


class Traffic:
    """All voices."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.tally = Tally()
        self._bootstrap = bootstrap
        self._seed = seed
        self._voices: list[Voice] = []

    @property
    def topics(self) -> list[Topic]:
        return [voice.topic for voice in self._voices]

    def add(self, topic: Topic) -> None:
        """Create a topic, and write to it from now on."""
        create_topic(self._bootstrap, topic.name, topic.partitions, _CONFIGS[topic.style])
        voice = Voice(self._bootstrap, topic, f"{self._seed}-{topic.name}", self.tally)
        self._voices.append(voice)
        voice.start()

    def add_partition(self, topic: Topic) -> None:
        add_partitions(self._bootstrap, topic.name, topic.partitions + 1)
        topic.partitions += 1

    def check(self) -> None:
        for voice in self._voices:
            if voice.failure is not None:
                raise AssertionError(f"the producer of {voice.topic.name} ended") from voice.failure

    def stop(self) -> None:
        for voice in self._voices:
            voice._stop.set()
        for voice in self._voices:
            voice.stop()
        self.check()
