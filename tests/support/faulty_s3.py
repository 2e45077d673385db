"""A proxy in front of an S3 endpoint that fails the next requests as it is told, or some of all requests as the weather goes."""

import http.client
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

_UPSTREAM_TIMEOUT_S = 30.0
_OF_THE_HOP = frozenset({"connection", "expect", "transfer-encoding", "content-length", "keep-alive"})
_UNCONDITIONAL = "if-none-match"


class Fault(Enum):
    """What happens to a request instead of what should."""

    DENIED = auto()
    SLOW_DOWN = auto()
    INTERNAL_ERROR = auto()
    CONFLICT = auto()  # 409: another put of this key is under way
    HANG = auto()  # no answer, until the fault ends
    REFUSE = auto()  # the connection is closed before anything is read
    CUT_UPLOAD = auto()  # the store gets half of the body, and both connections end
    LOSE_ANSWER = auto()  # the store does it; the client's connection ends without an answer
    CUT_DOWNLOAD = auto()  # the client gets half of the body
    DENIED_BY_KEY = auto()  # a delete is answered 200, with an error for its key
    OVERWRITE = auto()  # If-None-Match is dropped: only for stores that do not check signatures
    LATE = auto()  # the client's connection ends without an answer, and the store does it a while later


_ANSWERS = {
    Fault.DENIED: (403, "AccessDenied"),
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.INTERNAL_ERROR: (500, "InternalError"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.DENIED_BY_KEY: (200, "AccessDenied"),
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
    """Passes everything on until `failing` or `weather` says otherwise. `requests` counts by method what was asked of it."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._method = ""
        self._left = 0
        self._naming = ""
        self._ended = threading.Event()
        self._closed = threading.Event()
        self._weather: Weather | None = None
        self.requests: dict[str, int] = {}
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
        if len(body) < length:  # the client died
            _hang_up(client)
        elif fault in _ANSWERS:
            _send_error(client, *_ANSWERS[fault])
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

    def _upload_late(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        upstream = self._connect()
        with suppress(OSError):  # nobody is left to tell
            headers = self._headers(client, None) | {"Content-Length": str(len(body))}
            upstream.request(client.command, client.path, body=body, headers=headers)
            upstream.getresponse().read()
        upstream.close()

    def _headers(self, client: BaseHTTPRequestHandler, fault: Fault | None) -> dict[str, str]:
        dropped = _OF_THE_HOP | ({_UNCONDITIONAL} if fault is Fault.OVERWRITE else set())
        return {name: value for name, value in client.headers.items() if name.lower() not in dropped}

    def _upload_half(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        upstream = self._connect()
        upstream.putrequest(client.command, client.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self._headers(client, None).items():
            upstream.putheader(name, value)
        upstream.putheader("Content-Length", str(len(body)))
        upstream.endheaders(body[: len(body) // 2])
        upstream.close()

    def _pass_on(self, client: BaseHTTPRequestHandler, body: bytes, fault: Fault | None) -> None:
        upstream = self._connect()
        try:
            headers = self._headers(client, fault) | {"Content-Length": str(len(body))}
            upstream.request(client.command, client.path, body=body, headers=headers)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        if fault is Fault.LOSE_ANSWER:
            _hang_up(client)
            return
        client.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_HOP:
                client.send_header(name, value)
        # A HEAD tells the length of a body that it does not have.
        client.send_header("Content-Length", answer.getheader("Content-Length") or str(len(content)))
        client.end_headers()
        client.wfile.write(content[: len(content) // 2] if fault is Fault.CUT_DOWNLOAD else content)
        if fault is Fault.CUT_DOWNLOAD:
            _hang_up(client)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._upstream.hostname, self._upstream.port
        if host is None:
            raise ValueError("the upstream has no host")
        return http.client.HTTPConnection(host, port, timeout=_UPSTREAM_TIMEOUT_S)


def _send_error(client: BaseHTTPRequestHandler, status: int, code: str) -> None:
    error = f"<Error><Key>some/key</Key><Code>{code}</Code><Message>as told</Message></Error>"
    content = (f"<DeleteResult>{error}</DeleteResult>" if status == 200 else error).encode()
    client.send_response(status)
    client.send_header("Content-Type", "application/xml")
    client.send_header("Content-Length", str(len(content)))
    client.end_headers()
    if client.command != "HEAD":
        client.wfile.write(content)


def _hang_up(client: BaseHTTPRequestHandler) -> None:
    client.close_connection = True
    client.connection.shutdown(socket.SHUT_RDWR)
