"""Owns one connection pool to the brokers of a cluster: sends and retries requests, and converts aiokafka's errors."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from enum import IntEnum
from types import TracebackType
from typing import Self, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.errors import NodeNotReadyError

from archiver.errors import KafkaError, KafkaTemporaryError, TopicGoneError
from archiver.kafka.brokers.cluster import AbsentError, NodeRefusedError, Refusal
from archiver.kafka.brokers.connection import Connections, watching, work_in_place
from archiver.kafka.brokers.refusal import explain, explain_one
from archiver.kafka.brokers.wire import Call, ParsedAnswer
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.running.backoff import Backoff

work_in_place()

_ATTEMPTS = 6  # pauses double from retry.backoff.ms on: 3 s in all by default, longer than an election takes

Value = TypeVar("Value")


class Lane(IntEnum):
    """Connections to one broker. A broker answers a connection's requests in order; so that nothing waits behind a long fetch, fetches have their own."""

    CONTROL = 0  # aiokafka's own default group
    FETCH = 2
    PRODUCE = 3
    FETCH_ALONE = 4  # slow requests, one partition at a time


class BrokerRequests:
    """One connection pool to a cluster, and its requests. Every method raises KafkaError (final) or KafkaTemporaryError."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._clock = clock
        self._muted_until_s: dict[tuple[int, Lane], float] = {}
        self._connected: AIOKafkaClient | None = None
        self._connections = Connections()
        self._silent_since_s: float | None = None

    async def __aenter__(self) -> Self:
        client = AIOKafkaClient(**self._settings.for_aiokafka())  # belongs to the running loop
        client._topics = _NoTopics()  # noqa: SLF001
        watching.set(self._connections)
        try:
            await client.bootstrap()
        except BaseException as error:
            await self._close(client)
            if isinstance(error, (AiokafkaError, OSError, ValueError)):
                raise self._unreachable() from error
            raise
        self._connected = client
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(self._client)
        self._connected = None

    async def _close(self, client: AIOKafkaClient) -> None:
        """Close all connections. aiokafka alone would wait without a limit, and not for connections that it closed before."""
        closing = asyncio.ensure_future(client.close())
        await self._connections.end()
        await closing

    @property
    def settings(self) -> KafkaSettings:
        return self._settings

    async def send(self, node_id: int, call: Call[ParsedAnswer], *, lane: Lane = Lane.CONTROL) -> ParsedAnswer:
        """Ask one broker. The outcome of a call that ended in KafkaTemporaryError is unknown."""
        # A quota mutes a connection: a request that waits there would look like a hanging broker.
        muted_s = self._muted_until_s.get((node_id, lane), 0.0) - self._clock()
        if muted_s > 0:
            await self._sleep(muted_s)
        watching.set(self._connections)
        try:
            answer: ParsedAnswer | Exception = await self._client.send(node_id, call, group=lane)
        except NodeNotReadyError as error:
            self._note_silence()
            raise self._not_let_in(node_id, call) from error
        except (AiokafkaError, OSError, TimeoutError) as error:
            self._note_silence()
            reason = str(error) or type(error).__name__
            cause = type(error).__name__
            raise KafkaTemporaryError(f"{call.name} to broker {node_id}: {reason}", cause=cause) from error
        self._silent_since_s = None
        if isinstance(answer, Exception):
            raise KafkaError(
                f"broker {node_id} sent an answer to {call.name} that does not parse: {answer}"
            ) from answer
        if call.throttle_ms > 0:
            self._muted_until_s[node_id, lane] = self._clock() + call.throttle_ms / 1000
        return answer

    @property
    def silent_s(self) -> float | None:
        """For how long requests have failed, and no broker has answered any; None: the last answer is newer."""
        since_s = self._silent_since_s
        return None if since_s is None else self._clock() - since_s

    def _note_silence(self) -> None:
        if self._silent_since_s is None:
            self._silent_since_s = self._clock()

    async def send_any(self, call: Call[ParsedAnswer]) -> ParsedAnswer:
        """Ask any broker; if none answers, find the cluster at its bootstrap addresses again."""
        try:
            return await self._send_first(call)
        except (KafkaError, KafkaTemporaryError) as failure:
            try:
                await self._client.bootstrap()
            except (AiokafkaError, OSError):
                raise self._unreachable() from failure
        return await self._send_first(call)

    async def _send_first(self, call: Call[ParsedAnswer]) -> ParsedAnswer:
        """Ask one broker after the other. If all fail, raise an error that a retry may heal, else the refusal."""
        failures: list[Refusal] = []
        for node_id in self._nodes():
            try:
                return await self.send(node_id, call)
            except (KafkaError, KafkaTemporaryError) as error:
                failures.append(error)
        for failure in failures:
            if failure.retriable and not isinstance(failure, NodeRefusedError):
                raise failure
        raise KafkaError(str(failures[0])) if failures else self._unreachable()

    @property
    def _client(self) -> AIOKafkaClient:
        if self._connected is None:
            raise RuntimeError("use KafkaClient inside `async with`")
        return self._connected

    def _nodes(self) -> list[int]:
        return [broker.nodeId for broker in self._client.cluster.brokers()]

    def _unreachable(self) -> Refusal:
        return explain(self._settings, self._connections.reasons)

    def _not_let_in(self, node_id: int, call: Call[ParsedAnswer]) -> KafkaTemporaryError:
        """Explain why a broker cannot be reached: aiokafka reports only that it is not ready."""
        broker = self._client.cluster.broker_metadata(node_id)
        address = f"{broker.host}:{broker.port}" if broker is not None else f"broker {node_id}"
        error = self._connections.reasons.get(address)
        refusal = None if error is None else explain_one(address, error, self._settings.security)
        what = f"{call.name} to broker {node_id}: {refusal or 'it cannot be reached'}"
        if isinstance(refusal, KafkaError):
            return NodeRefusedError(what)
        return KafkaTemporaryError(what, cause="NodeNotReadyError")

    async def _learn_brokers(self) -> None:
        """Have aiokafka read the brokers' addresses again."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._client.force_metadata_update(), self._settings.request_timeout_ms / 1000)

    async def persist(self, once: Callable[[], Awaitable[Value]]) -> Value:
        """Retry a request after temporary failures: elections, and topics so new that not every broker knows them.

        A topic that is absent in the last attempt does not exist.
        """
        backoff = Backoff(self._settings.retry_backoff_ms / 1000)
        for _ in range(_ATTEMPTS - 1):
            try:
                return await once()
            except KafkaTemporaryError:
                await self._sleep(backoff.next_s())
        try:
            return await once()
        except AbsentError as error:
            raise final_refusal(error) from error


def final_refusal(error: Refusal) -> Refusal:
    """Turn an absence that lasted through all attempts into a final error."""
    return TopicGoneError(str(error)) if isinstance(error, AbsentError) else error


class _NoTopics(frozenset[str]):
    """An empty set that is true. aiokafka's refresh asks for all topics where its set is false; we need none from it."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True
