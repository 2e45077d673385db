"""Replaces the receiver and the sender in aiokafka's connections, to save copies of fetched and sent batches.

aiokafka reads through an asyncio stream, which copies every byte twice and holds an answer twice while it does (measured
in docs/decisions/0011). Here the socket writes into the memory that the answer stays in. A request it copies three times to
have it in one piece; here a batch of records is sent without a copy.
"""

import asyncio
import logging
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import aiokafka.conn
import numpy as np
from aiokafka.conn import AIOKafkaConnection, AIOKafkaProtocol, CloseReason
from aiokafka.errors import KafkaConnectionError
from aiokafka.util import wait_for

from archiver.kafka.brokers.wire import Call, PreparedCall
from archiver.process.running.failpoints import reach

watching: ContextVar["Connections | None"] = ContextVar(
    "watching", default=None
)  # the client whose connections are being made

# aiokafka logs each failed connection, many a second, also in Spark's workers; errors are raised as exceptions.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

CLOSED = (
    KafkaConnectionError.__name__
)  # causes of an error that mean: the other side, or the network, ended the connection

_SIZE_BYTES = 4
_MOST_BYTES = 1 << 31  # frames are smaller: Kafka's sizes are signed 32-bit numbers
_GOODBYE_S = 1.0
# First bytes of an answer: aiokafka finds the correlation id there; tags behind it are far smaller.
_HEADER_BYTES = 1024


class Connections:
    """The open connections of one client, and by address the errors of failed or broken ones.

    aiokafka only logs the reasons, and it forgets connections that are still closing.
    """

    def __init__(self) -> None:
        self.reasons: dict[str, BaseException] = {}
        self.open: set[_FrameProtocol] = set()

    def note(self, address: str, error: BaseException | None) -> None:
        """Note the outcome of a connection: an error, or success."""
        if error is None:
            self.reasons.pop(address, None)
        else:
            self.reasons[address] = error

    async def end(self) -> None:
        """Give closing connections a moment: one that outlives its event loop would keep its socket."""
        if self.open:
            await asyncio.wait([protocol.lost for protocol in self.open], timeout=_GOODBYE_S)
        left = [*self.open]
        for protocol in left:
            protocol.abort()
        await asyncio.gather(*(protocol.lost for protocol in left))


class _FrameProtocol(AIOKafkaProtocol, asyncio.BufferedProtocol):  # type: ignore[misc] # aiokafka has no types
    """Cuts received bytes into frames: four bytes of size, then so many bytes, in memory of their own."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)
        self.frames: asyncio.Queue[memoryview | None] = asyncio.Queue()  # None: the connection has ended
        self._size = memoryview(bytearray(_SIZE_BYTES))
        self._wanted = self._size
        self._filled = 0
        self.lost_by: Exception | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connections = watching.get()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._connections is not None:
            self._connections.open.add(self)

    def get_buffer(self, _: int) -> memoryview:
        return self._wanted[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < len(self._wanted):
            return
        if self._wanted is self._size:
            self._wanted = self._room_for(int.from_bytes(self._size, "big"))
        else:
            self.frames.put_nowait(self._wanted)
            self._wanted = self._size
        self._filled = 0

    def _room_for(self, size: int) -> memoryview:
        with suppress(MemoryError):
            if 0 < size < _MOST_BYTES:
                return memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type] # an array is a buffer
        self._transport.abort()  # no broker sends such a size: something else listens at this port
        return self._size

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool:
        self.frames.put_nowait(None)
        return bool(super().eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_by = exc
        self.frames.put_nowait(None)
        super().connection_lost(exc)
        self.lost.set_result(None)
        if self._connections is not None:
            self._connections.open.discard(self)


class _Connection(AIOKafkaConnection):  # type: ignore[misc] # aiokafka has no types
    """Hands whole frames to aiokafka's own bookkeeping, but of an answer to a call of ours only the beginning."""

    async def connect(self) -> Any:  # noqa: ANN401 what aiokafka makes of it
        connections = watching.get()
        address = f"{self._host}:{self._port}"
        try:
            made = await super().connect()
        except BaseException as error:  # also if no caller waits for the answer any more
            # aiokafka has begun to close the connection; with TLS it would linger until the other side closes, too.
            if self._protocol is not None:
                self._protocol.abort()
            if isinstance(error, Exception) and connections is not None:
                connections.note(address, error)
            raise
        if connections is not None:
            connections.note(address, None)
        return made

    def send(self, request: object, expect_response: bool = True) -> Any:  # noqa: ANN401 something to await
        if not isinstance(request, Call):
            return super().send(request, expect_response)
        if self._writer is None:
            raise KafkaConnectionError(f"No connection to broker at {self._host}:{self._port}")
        prepared = request.prepare(self._versions)
        correlation_id = self._next_correlation_id()
        header = prepared.build_request_header(correlation_id, self._client_id)
        pieces = prepared.pieces(header.encode())
        try:
            self._writer.write(sum(map(len, pieces)).to_bytes(_SIZE_BYTES, "big") + pieces[0])
            for piece in pieces[1:]:
                self._writer.write(piece)
        except OSError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"Connection at {self._host}:{self._port} broken: {error}") from error
        answer = self._loop.create_future()
        self._requests.append((correlation_id, prepared, answer))
        reach(request.when_sent)
        return wait_for(answer, self._request_timeout)

    @staticmethod
    async def _read(self_ref: Any) -> None:  # noqa: ANN401 a weak reference: a connection that is left alone must end
        connection = self_ref()
        if connection is None:
            return
        protocol = connection._protocol  # noqa: SLF001
        del connection
        while True:
            frame = await protocol.frames.get()
            connection = self_ref()
            if connection is None:
                return
            if frame is None:
                raise EOFError("the broker closed the connection") from protocol.lost_by
            connection._handle_frame(frame)  # noqa: SLF001
            del connection, frame

    def _handle_frame(self, frame: memoryview) -> None:
        call = self._requests[0][1] if self._requests else None
        if isinstance(call, PreparedCall):
            call.received = frame
            super()._handle_frame(bytes(frame[:_HEADER_BYTES]))
        else:
            super()._handle_frame(bytes(frame))


def work_in_place() -> None:
    """Make aiokafka use these classes for its connections. aiokafka is pinned (0.14): they rely on its internals."""
    aiokafka.conn.AIOKafkaProtocol = _FrameProtocol
    aiokafka.conn.AIOKafkaConnection = _Connection
