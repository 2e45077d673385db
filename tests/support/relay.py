"""A port of 127.0.0.1 that forwards to another address, and delays each answer, or holds all of them back."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PIECE_BYTES = 1 << 16
_FOR_EVER_S = 3600.0


@contextmanager
def delayed_address(address: str, late_s: float, hangs: threading.Event | None = None) -> Iterator[str]:
    """Yield the address of a port that forwards to `address`; answers come `late_s` later, and none once `hangs` is set."""
    relay = _Relay(address, late_s, hangs or threading.Event())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(relay.listen(), loop).result(10)
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(relay.end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


class _Relay:
    def __init__(self, address: str, late_s: float, hangs: threading.Event) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._late_s = late_s
        self._hangs = hangs
        self._server: asyncio.Server | None = None
        self._carriers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> asyncio.Server:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self._server

    async def end(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._carriers:
            task.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, int(self._port))
        self._writers |= {writer, back}
        for source, target, late_s in ((reader, back, 0.0), (there, writer, self._late_s)):
            task = asyncio.get_running_loop().create_task(_carry(source, target, late_s, self._hangs))
            self._carriers.add(task)


async def _carry(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, late_s: float, hangs: threading.Event
) -> None:
    with suppress(OSError):
        while piece := await source.read(_PIECE_BYTES):
            await asyncio.sleep(_FOR_EVER_S if hangs.is_set() else late_s)
            target.write(piece)
        await asyncio.sleep(late_s)
        target.close()
