"""Encodes requests and decodes answers in Kafka's wire format, and sends them through aiokafka's connections.

A `Call` has its API key and versions, writes its request and reads its answer. aiokafka negotiates the version and
sends it.
"""

import base64
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from io import BytesIO
from itertools import groupby
from typing import Any, ClassVar, Generic, TypeVar

from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2, ResponseHeader_v0, ResponseHeader_v1

from archiver.errors import KafkaError

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")
_NO_UUID = bytes(16)
_NOTHING = memoryview(b"")
_LARGE_BYTES = 16 * 1024

ParsedAnswer = TypeVar("ParsedAnswer")
Item = TypeVar("Item")


class MalformedAnswerError(ValueError):
    """An answer that does not parse."""


def uuid_text(raw: bytes) -> str:
    """Return an id as Kafka prints it: base64 for URLs without padding; empty for the id that means none."""
    return "" if raw == _NO_UUID else base64.urlsafe_b64encode(raw).decode().rstrip("=")


def uuid_bytes(text: str) -> bytes:
    """The mirror of `uuid_text`."""
    raw = base64.urlsafe_b64decode(text + "==") if text else _NO_UUID
    if len(raw) != 16:
        raise ValueError(f"not a Kafka id: {text!r}")
    return raw


def uvarint(number: int) -> bytes:
    """Encode a number in seven bits a byte, lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class RequestWriter:
    """Collects a request's bytes. `flexible` chooses the compact forms and the tagged fields of later versions."""

    __slots__ = ("_flexible", "_parts")

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._parts: list[bytes | memoryview] = []

    def raw(self, part: bytes | memoryview) -> None:
        self._parts.append(part)

    def int8(self, number: int) -> None:
        self._parts.append(_INT8.pack(number))

    def int16(self, number: int) -> None:
        self._parts.append(_INT16.pack(number))

    def int32(self, number: int) -> None:
        self._parts.append(_INT32.pack(number))

    def int64(self, number: int) -> None:
        self._parts.append(_INT64.pack(number))

    def float64(self, number: float) -> None:
        self._parts.append(_FLOAT64.pack(number))

    def count(self, number: int) -> None:
        """The length of an array; -1: null."""
        self._parts.append(uvarint(number + 1) if self._flexible else _INT32.pack(number))

    def text(self, text: str | None) -> None:
        raw = b"" if text is None else text.encode()
        length = -1 if text is None else len(raw)
        self._parts.append(uvarint(length + 1) if self._flexible else _INT16.pack(length))
        self._parts.append(raw)

    def tags(self) -> None:
        """Write no tagged fields; nothing at all if the version has none."""
        if self._flexible:
            self._parts.append(b"\0")

    def pieces(self) -> list[bytes | memoryview]:
        """Return the request in pieces: small parts joined, large ones separate, so that a batch of records is not copied."""
        pieces: list[bytes | memoryview] = []
        for is_large, run in groupby(self._parts, key=lambda part: len(part) >= _LARGE_BYTES):
            parts = list(run)
            pieces += parts if is_large else [b"".join(parts)]
        return pieces


class AnswerReader:
    """Walks an answer. Only numbers and names are copied; each step is checked against the end."""

    __slots__ = ("_at", "_flexible", "_view")

    def __init__(self, view: memoryview, *, flexible: bool) -> None:
        self._view = view
        self._flexible = flexible
        self._at = 0

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        start = self._at
        self._at += layout.size
        try:
            return layout.unpack_from(self._view, start)
        except struct.error as error:
            raise MalformedAnswerError(f"it ends inside a field at byte {start}") from error

    def int8(self) -> int:
        return int(self.unpack(_INT8)[0])

    def int16(self) -> int:
        return int(self.unpack(_INT16)[0])

    def int32(self) -> int:
        return int(self.unpack(_INT32)[0])

    def int64(self) -> int:
        return int(self.unpack(_INT64)[0])

    def float64(self) -> float:
        return float(self.unpack(_FLOAT64)[0])

    def uvarint(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            if self._at >= len(self._view):
                raise MalformedAnswerError(f"it ends inside a number at byte {self._at}")
            byte = self._view[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise MalformedAnswerError(f"a number without end at byte {self._at}")

    def take(self, length: int) -> memoryview:
        """The next bytes, as a slice of the answer."""
        start = self._at
        self._at += length
        if length < 0 or self._at > len(self._view):
            raise MalformedAnswerError(f"it ends inside {length} bytes at byte {start}")
        return self._view[start : self._at]

    def count(self) -> int:
        """The length of an array; -1: null."""
        return self.uvarint() - 1 if self._flexible else self.int32()

    def blob(self) -> memoryview:
        """Bytes, as a slice of the answer; empty for null."""
        length = self.count()
        return self.take(length) if length > 0 else _NOTHING

    def text(self) -> str:
        """A string; empty for null."""
        return self.text_or_none() or ""

    def text_or_none(self) -> str | None:
        """A string, or null."""
        length = self.uvarint() - 1 if self._flexible else self.int16()
        return None if length < 0 else str(self.take(length), "utf-8", "replace")

    def uuid(self) -> str:
        return uuid_text(bytes(self.take(16)))

    def array(self, read: Callable[[], Item]) -> list[Item]:
        """A list; empty for null."""
        return [read() for _ in range(self.count())]

    def tags(self) -> dict[int, memoryview]:
        """Tagged fields by tag; empty if the version has none."""
        if not self._flexible:
            return {}
        found: dict[int, memoryview] = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = self.take(self.uvarint())
        return found


class Call(ABC, Generic[ParsedAnswer]):
    """A request and the parser of its response. `lowest`..`highest` are the versions that it can write."""

    api_key: ClassVar[int]
    lowest: ClassVar[int]
    highest: int
    flexible_from: ClassVar[int] = 0
    throttle_ms: int = 0  # set by `read`: how long the broker mutes this connection
    when_sent: ClassVar[str] = "request.sent"  # the failpoint (archiver.process.running.failpoints) behind the sending

    @abstractmethod
    def write(self, out: RequestWriter, version: int) -> None:
        """Write the body."""

    @abstractmethod
    def read(self, answer: AnswerReader, version: int) -> ParsedAnswer:
        """Read the body of the answer."""

    @property
    def name(self) -> str:
        return type(self).__name__.removesuffix("Call")

    def prepare(self, versions: dict[int, tuple[int, int]]) -> "PreparedCall":
        """The hook of aiokafka: `versions` are what this broker speaks, by API key."""
        first, last = versions.get(self.api_key, (0, -1))
        version = min(self.highest, last)
        if version < max(self.lowest, first):
            raise KafkaError(
                f"the broker speaks {self.name} v{first}..v{last}, this program v{self.lowest}..v{self.highest}; "
                "brokers from 2.8 are supported"
            )
        return PreparedCall(self, version)


class PreparedCall:
    """A call in one version, in the shape that AIOKafkaConnection's reader expects (aiokafka 0.14)."""

    def __init__(self, call: Call[Any], version: int) -> None:
        self.API_KEY = call.api_key
        self.API_VERSION = version
        self.received = _NOTHING  # the answer's frame, set before its header is parsed
        self._call = call
        self._flexible = version >= call.flexible_from

    @property
    def RESPONSE_TYPE(self) -> "PreparedCall":  # noqa: N802 aiokafka's name
        """The reader of the answer. Made each time: a self-reference would keep a batch of records until a garbage collection."""
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> RequestHeader_v1 | RequestHeader_v2:
        header = RequestHeader_v2 if self._flexible else RequestHeader_v1
        return header(self, correlation_id=correlation_id, client_id=client_id)

    def pieces(self, header: bytes) -> list[bytes | memoryview]:
        """Return the request, its header first, in pieces."""
        out = RequestWriter(flexible=self._flexible)
        out.raw(header)
        self._call.write(out, self.API_VERSION)
        return out.pieces()

    def parse_response_header(self, stream: BytesIO) -> ResponseHeader_v0 | ResponseHeader_v1:
        return (ResponseHeader_v1 if self._flexible else ResponseHeader_v0).decode(stream)

    def decode(self, stream: BytesIO) -> Any:  # noqa: ANN401 the call's type, lost on the way through aiokafka
        """Return the answer, or the error of one that does not parse. The stream has only the beginning, with the parsed header."""
        body, self.received = self.received[stream.tell() :], _NOTHING
        try:
            return self._call.read(AnswerReader(body, flexible=self._flexible), self.API_VERSION)
        except Exception as error:  # noqa: BLE001 raised here, it would look like a broken connection
            return error

    def __repr__(self) -> str:
        return f"{self._call.name} v{self.API_VERSION}"
