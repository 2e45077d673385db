"""Replacements for `produce` in a task: one dies while it sends, one lets several restores send at the same time."""

import asyncio
import random
import threading

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.produce import ProduceAnswer, produce

_PATIENCE_S = 60.0


class Killed(BaseException):
    """Nothing in the program may catch it: the process is gone."""


class MortalProduce:
    """Dies with the last batch of its life. Has the broker taken that one? By a seed; without one it has not."""

    def __init__(self, seed: int | None = None) -> None:
        self._rng = None if seed is None else random.Random(seed)
        self._left = 0

    def live(self, batches: int) -> None:
        self._left = batches

    async def __call__(
        self, client: KafkaClient, topic: str, partition: int, batch: bytes | memoryview, timeout_ms: int
    ) -> ProduceAnswer:
        self._left -= 1
        if self._left > 0:
            return await produce(client, topic, partition, batch, timeout_ms)
        if self._rng is not None and self._rng.random() < 0.5:
            await produce(client, topic, partition, batch, timeout_ms)
        raise Killed


class MeetingProduce:
    """Has several runs, each in its own thread, wait until all are about to send. `senders` are their threads."""

    def __init__(self, runs: int) -> None:
        self.senders: set[int] = set()
        self._gate = threading.Barrier(runs)

    async def __call__(
        self, client: KafkaClient, topic: str, partition: int, batch: bytes | memoryview, timeout_ms: int
    ) -> ProduceAnswer:
        if threading.get_ident() not in self.senders:
            self.senders.add(threading.get_ident())
            await asyncio.to_thread(self._gate.wait, _PATIENCE_S)
        return await produce(client, topic, partition, batch, timeout_ms)
