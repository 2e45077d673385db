"""Frames, however they arrive; and what listens at a port without being a broker."""

import asyncio
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.errors import KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.connection import _FrameProtocol
from archiver.kafka.login.settings import KafkaSettings


async def received(frames: Sequence[bytes], piece_bytes: Sequence[int]) -> list[bytes]:
    """What a protocol makes of frames that arrive in pieces of these sizes."""
    loop = asyncio.get_running_loop()
    protocol = _FrameProtocol(loop.create_future(), asyncio.StreamReader(), loop=loop)
    wire = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    sizes = iter([*piece_bytes, *[1 << 20] * (2 * len(frames))])
    while wire:
        room = protocol.get_buffer(-1)
        count = min(next(sizes), len(room), len(wire))
        room[:count] = wire[:count]
        wire = wire[count:]
        protocol.buffer_updated(count)
    protocol.eof_received()
    found = []
    while (frame := protocol.frames.get_nowait()) is not None:
        found.append(bytes(frame))
    return found


@given(
    frames=st.lists(st.binary(min_size=1, max_size=300), max_size=5), pieces=st.lists(st.integers(1, 90), max_size=40)
)
def test_frames_come_whole_however_they_are_cut(frames: list[bytes], pieces: list[int]) -> None:
    assert asyncio.run(received(frames, pieces)) == frames


def test_a_frame_keeps_its_memory() -> None:
    async def two_frames() -> list[memoryview | None]:
        loop = asyncio.get_running_loop()
        protocol = _FrameProtocol(loop.create_future(), asyncio.StreamReader(), loop=loop)
        for content in (b"first", b"other"):
            protocol.get_buffer(-1)[:] = struct.pack(">i", len(content))
            protocol.buffer_updated(4)
            protocol.get_buffer(-1)[:] = content
            protocol.buffer_updated(len(content))
        return [protocol.frames.get_nowait() for _ in range(2)]

    assert [bytes(frame or b"") for frame in asyncio.run(two_frames())] == [b"first", b"other"]


@pytest.mark.parametrize(
    "answer",
    [b"\0\0\0\0rest", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\0\x02\x02\x16", b"\xff\xff\xff\xff", b""],
)
def test_another_server_at_the_port_is_reported_soon_in_one_line(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer_wrongly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        writer.close()

    async def connect() -> None:
        async with await asyncio.start_server(answer_wrongly, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with (
                asyncio.timeout(10),
                KafkaClient(KafkaSettings.parse({"bootstrap.servers": f"127.0.0.1:{port}"})),
            ):
                raise AssertionError("it is no broker")

    with pytest.raises(KafkaTemporaryError, match=r"127\.0\.0\.1"):
        asyncio.run(connect())
    assert not caplog.records
