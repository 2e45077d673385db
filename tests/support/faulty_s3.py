"""A proxy in front of an S3 endpoint: it gives the store quirks, fails the next requests, or fails requests by chance (Weather)."""

import base64
import hashlib
import http.client
import random
import socket
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

_UPSTREAM_TIMEOUT_S = 30.0
_OF_THE_HOP = frozenset({"connection", "expect", "transfer-encoding", "content-length", "keep-alive"})
_CONDITION = "if-none-match"
_METADATA = "x-amz-meta-"


class Fault(Enum):
    """What goes wrong with a request."""

    DENIED = auto()
    DENIED_KEY = auto()  # as AWS says it of a key that may not be used
    SLOW_DOWN = auto()
    INTERNAL_ERROR = auto()
    CONFLICT = auto()  # 409: another put of this key is under way
    HANG = auto()  # no answer, until the fault ends
    REFUSE = auto()  # the connection is closed before anything is read
    CUT_UPLOAD = auto()  # the store gets half of the body, and both connections end
    LOSE_ANSWER = auto()  # the store does it; the client's connection ends without an answer
    CUT_DOWNLOAD = auto()  # the client gets half of the body
    DENIED_BY_KEY = auto()  # a delete is answered 200, with an error for its key
    LATE = auto()  # the client's connection ends without an answer, and the store does it a while later


class Quirk(Enum):
    """How the store always behaves. The upstream may be any store, where nothing else is said: signatures stay good."""

    OVERWRITES = auto()  # If-None-Match is dropped; the upstream must not check signatures (moto)
    NO_CONDITIONS = auto()  # If-None-Match is answered 501
    DROPS_EMPTY_METADATA = auto()  # metadata with an empty value is in no answer, as with Adobe's S3Mock
    WANTS_CHECKSUM = auto()  # as AWS where the bucket has Object Lock; one that is wrong is refused, too
    WANTS_CONDITION = auto()  # as AWS with a bucket policy that denies puts without If-None-Match (docs/security.md)
    SHORT_NAMES = auto()  # no part of a key is longer than 255 bytes, as with MinIO and versitygw


_MOST_NAME_BYTES = 255
_CHECKSUMS: Mapping[str, Callable[[bytes], bytes]] = {
    "content-md5": lambda body: hashlib.md5(body, usedforsecurity=False).digest(),
    "x-amz-checksum-crc32": lambda body: zlib.crc32(body).to_bytes(4),
    "x-amz-checksum-sha1": lambda body: hashlib.sha1(body, usedforsecurity=False).digest(),
    "x-amz-checksum-sha256": lambda body: hashlib.sha256(body).digest(),
}
_OTHER_CHECKSUMS = frozenset({"x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme", "x-amz-trailer"})  # for the upstream


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is an error."""

    status: int
    code: str
    message: str = "as told"


EXPIRED_TOKEN = Refusal(400, "ExpiredToken", "The provided token has expired.")
UNKNOWN_KEY = Refusal(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
_NO_CONDITIONS = Refusal(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
_NO_CONDITION = Refusal(403, "AccessDenied", "with an explicit deny in a resource-based policy")
_NO_CHECKSUM = Refusal(
    400,
    "InvalidRequest",
    "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters",
)
_BAD_CHECKSUM = Refusal(400, "BadDigest", "The checksum you specified did not match what we received.")
_LONG_NAME = Refusal(400, "XMinioInvalidObjectName", "Object name contains unsupported characters.")

KEY_OF_KMS = "arn:aws:kms:eu-west-1:123456789012:key/0a1b2c3d"

_ANSWERS = {
    Fault.DENIED: Refusal(403, "AccessDenied"),
    Fault.DENIED_KEY: Refusal(
        403,
        "AccessDenied",
        f"User: arn:aws:iam::123456789012:user/ann is not authorized to perform: kms:Decrypt on resource: {KEY_OF_KMS}"
        " because no identity-based policy allows the kms:Decrypt action",
    ),
    Fault.SLOW_DOWN: Refusal(503, "SlowDown"),
    Fault.INTERNAL_ERROR: Refusal(500, "InternalError"),
    Fault.CONFLICT: Refusal(409, "ConditionalRequestConflict"),
    Fault.DENIED_BY_KEY: Refusal(200, "AccessDenied"),
}


# About one request in eight. A put meets any of these, a request without a body only those that need none.
BAD_WEATHER: Mapping[Fault, float] = {
    Fault.SLOW_DOWN: 0.025,
    Fault.INTERNAL_ERROR: 0.025,
    Fault.HANG: 0.015,
    Fault.REFUSE: 0.02,
    Fault.CUT_UPLOAD: 0.025,
    Fault.LOSE_ANSWER: 0.03,
    Fault.LATE: 0.025,
}
_OF_A_PUT = frozenset({Fault.CUT_UPLOAD, Fault.LOSE_ANSWER, Fault.LATE})


@dataclass(slots=True)
class Weather:
    """Faults by chance, from a seed. `met` counts what it did."""

    seed: int
    chances: Mapping[Fault, float] = field(default_factory=lambda: BAD_WEATHER)
    hang_s: float = 1.5  # then the connection ends: that, and not the client's patience, bounds the test
    met: Counter[Fault] = field(default_factory=Counter)
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def draw(self, method: str) -> Fault | None:
        """The fault of the next request."""
        at = self._rng.random()
        for fault, chance in self.chances.items():
            at -= chance
            if at < 0:
                return None if fault in _OF_A_PUT and method != "PUT" else fault
        return None


class FaultyS3:
    """Passes everything on, but for its quirks, until `failing` or `weather` says otherwise.

    `requests` counts by method what was asked of it, `gets` by key; `refused_keys` are access keys that are answered with an error.
    """

    def __init__(self, upstream: str, *quirks: Quirk) -> None:
        self.ahead = timedelta()  # of the clock in its answers
        self._upstream = urlsplit(upstream)
        self._quirks = frozenset(quirks)
        self.refused_keys: dict[str, Refusal] = {}
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._method = ""
        self._left = 0
        self._naming = ""
        self._ended = threading.Event()
        self._closed = threading.Event()
        self._weather: Weather | None = None
        self.requests: dict[str, int] = {}
        self.gets: Counter[str] = Counter()
        self._moody: dict[str, int] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def failing(self, fault: Fault, method: str, times: int = 1_000_000, *, naming: str = "") -> Iterator[None]:
        """The next `times` requests of a method meet the fault; of those whose key or prefix has this text in it."""
        with self._lock:
            self._fault, self._method, self._left, self._naming = fault, method, times, naming
            self._ended.clear()
            self.requests.clear()
        try:
            yield
        finally:
            self._end_fault()

    def fail_gets(self, times: Mapping[str, int]) -> None:
        """From now on, so many of the next GETs of each of these keys are answered with an internal error."""
        with self._lock:
            self._moody = dict(times)

    def set_weather(self, weather: Weather | None) -> None:
        """Bad weather from now on; None: fair."""
        with self._lock:
            self._weather = weather

    def _end_fault(self) -> None:
        with self._lock:
            self._fault, self._left = None, 0
            self._ended.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.set_weather(None)
        self._end_fault()
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, method: str, path: str) -> tuple[Fault | None, Callable[[], object]]:
        """The fault that a request meets, and how long to wait where it hangs."""
        with self._lock:
            self.requests[method] = self.requests.get(method, 0) + 1
            if method == "GET":
                key = _key_of(path)
                self.gets[key] += 1
                self._moody[key] = self._moody.get(key, 0) - 1
                if self._moody[key] >= 0:
                    return Fault.INTERNAL_ERROR, self._ended.wait
            is_meant = method == self._method and self._naming in unquote(path)
            if self._fault is not None and is_meant and self._left > 0:
                self._left -= 1
                return self._fault, self._ended.wait
            weather = self._weather
            if weather is None:
                return None, self._ended.wait
            fault = weather.draw(method)
            if fault is not None:
                weather.met[fault] += 1
            return fault, lambda: self._closed.wait(weather.hang_s)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:  # the client has gone: it timed out
                    self.close_connection = True

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                """Tests say what happened."""

            def answer(self) -> None:
                proxy._answer(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

        return Handler

    def _answer(self, client: BaseHTTPRequestHandler) -> None:
        fault, hang = self._take(client.command, client.path)
        if fault is Fault.REFUSE:
            _hang_up(client)
            return
        length = int(client.headers.get("Content-Length", "0"))
        body = client.rfile.read(length)
        refusal = _ANSWERS[fault] if fault in _ANSWERS else self._refusal(client, body)
        if len(body) < length:  # the client died
            _hang_up(client)
        elif refusal is not None:
            _send_error(client, refusal)
        elif fault is Fault.HANG:
            hang()
            _hang_up(client)
        elif fault is Fault.LATE:
            with suppress(OSError):
                _hang_up(client)
            hang()
            self._upload_late(client, body)
        elif fault is Fault.CUT_UPLOAD:
            self._upload_half(client, body)
            _hang_up(client)
        else:
            self._pass_on(client, body, fault)

    def _refusal(self, client: BaseHTTPRequestHandler, body: bytes) -> Refusal | None:
        """What a store with these quirks answers instead of doing it."""
        access_key = client.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
        if access_key in self.refused_keys:
            return self.refused_keys[access_key]
        quirks, key = self._quirks, _key_of(client.path)
        is_put = client.command == "PUT" and key != ""
        if Quirk.SHORT_NAMES in quirks and any(len(part.encode()) > _MOST_NAME_BYTES for part in key.split("/")):
            return _LONG_NAME
        if Quirk.NO_CONDITIONS in quirks and is_put and _CONDITION in client.headers:
            return _NO_CONDITIONS
        if Quirk.WANTS_CONDITION in quirks and is_put and _CONDITION not in client.headers:
            return _NO_CONDITION
        return _checksum_refusal(client, body) if Quirk.WANTS_CHECKSUM in quirks and is_put else None

    def _upload_late(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        upstream = self._connect()
        with suppress(OSError):  # nobody is left to tell
            headers = self._headers(client) | {"Content-Length": str(len(body))}
            upstream.request(client.command, client.path, body=body, headers=headers)
            upstream.getresponse().read()
        upstream.close()

    def _headers(self, client: BaseHTTPRequestHandler) -> dict[str, str]:
        dropped = _OF_THE_HOP | ({_CONDITION} if Quirk.OVERWRITES in self._quirks else set())
        return {name: value for name, value in client.headers.items() if name.lower() not in dropped}

    def _upload_half(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        upstream = self._connect()
        upstream.putrequest(client.command, client.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self._headers(client).items():
            upstream.putheader(name, value)
        upstream.putheader("Content-Length", str(len(body)))
        upstream.endheaders(body[: len(body) // 2])
        upstream.close()

    def _pass_on(self, client: BaseHTTPRequestHandler, body: bytes, fault: Fault | None) -> None:
        upstream = self._connect()
        try:
            headers = self._headers(client) | {"Content-Length": str(len(body))}
            upstream.request(client.command, client.path, body=body, headers=headers)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        if fault is Fault.LOSE_ANSWER:
            _hang_up(client)
            return
        client.send_response_only(answer.status)  # without a date of our own beside that of the store
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_HOP and not self._drops(name, value):
                client.send_header(name, self._dated(value) if name.lower() == "date" else value)
        # A HEAD tells the length of a body that it does not have.
        client.send_header("Content-Length", answer.getheader("Content-Length") or str(len(content)))
        client.end_headers()
        client.wfile.write(content[: len(content) // 2] if fault is Fault.CUT_DOWNLOAD else content)
        if fault is Fault.CUT_DOWNLOAD:
            _hang_up(client)

    def _dated(self, value: str) -> str:
        return format_datetime(parsedate_to_datetime(value) + self.ahead, usegmt=True) if self.ahead else value

    def _drops(self, name: str, value: str) -> bool:
        is_empty_metadata = name.lower().startswith(_METADATA) and not value.strip()
        return is_empty_metadata and Quirk.DROPS_EMPTY_METADATA in self._quirks

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._upstream.hostname, self._upstream.port
        if host is None:
            raise ValueError("the upstream has no host")
        return http.client.HTTPConnection(host, port, timeout=_UPSTREAM_TIMEOUT_S)


def _key_of(path: str) -> str:
    """The key in a request's path; empty where it names a bucket."""
    return unquote(urlsplit(path).path).lstrip("/").partition("/")[2]


def _checksum_refusal(client: BaseHTTPRequestHandler, body: bytes) -> Refusal | None:
    told = {name: client.headers[name] for name in _CHECKSUMS if name in client.headers}
    if any(base64.b64encode(_CHECKSUMS[name](body)).decode() != text for name, text in told.items()):
        return _BAD_CHECKSUM
    return None if told or any(name in client.headers for name in _OTHER_CHECKSUMS) else _NO_CHECKSUM


def _send_error(client: BaseHTTPRequestHandler, refusal: Refusal) -> None:
    error = f"<Error><Key>some/key</Key><Code>{refusal.code}</Code><Message>{refusal.message}</Message></Error>"
    content = (f"<DeleteResult>{error}</DeleteResult>" if refusal.status == 200 else error).encode()
    client.send_response(refusal.status)
    client.send_header("Content-Type", "application/xml")
    client.send_header("Content-Length", str(len(content)))
    client.end_headers()
    if client.command != "HEAD":
        client.wfile.write(content)


def _hang_up(client: BaseHTTPRequestHandler) -> None:
    client.close_connection = True
    client.connection.shutdown(socket.SHUT_RDWR)
