"""Runs a KafkaClient for callers without an event loop: on a loop in a separate thread."""

import asyncio
from collections.abc import Awaitable, Callable
from threading import Thread
from types import TracebackType
from typing import Final, Self, TypeVar

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings

Value = TypeVar("Value")

_END_S: Final = 3.0


class ClientThread:
    """`with ClientThread(settings) as kafka`: connects at the first request. The client connects and logs in again by itself."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self._client: KafkaClient | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="kafka", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        try:
            ended.result(_END_S)
        except (
            TimeoutError
        ):  # an interrupted step blocks the loop, in retries of a busy store: its thread ends with the process
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def ask(self, step: Callable[[KafkaClient], Awaitable[Value]]) -> Value:
        """Run a step with the client, and return its result. A caller that is interrupted cancels the step."""
        asked = asyncio.run_coroutine_threadsafe(self._run(step), self._loop)
        try:
            return asked.result()
        except BaseException:
            asked.cancel()
            raise

    async def _run(self, step: Callable[[KafkaClient], Awaitable[Value]]) -> Value:
        if self._client is None:
            self._client = await KafkaClient(self.settings).__aenter__()
        return await step(self._client)

    async def _end(self) -> None:
        """End interrupted steps, then the client."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._client is not None:
            await self._client.__aexit__(None, None, None)
