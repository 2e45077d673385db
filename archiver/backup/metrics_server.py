"""The HTTP endpoint of a running backup: /metrics, /healthz, /readyz."""

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Final, Self

from archiver.backup.metrics import Metrics
from archiver.errors import UsageError
from archiver.process.text import printable

log = logging.getLogger(__name__)

HealthCheck = Callable[[], str | None]  # None: all is well; otherwise what is wrong

# Enough for Prometheus, a kubelet and a few people. More connections at once are somebody's fault, and the oldest is dropped.
MOST_CONNECTIONS: Final = 16
_CLIENT_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.1  # how soon `serve_forever` notices that it should end
_PLAIN: Final = "text/plain; charset=utf-8"


class MetricsServer:
    """Serves while its `with` block is entered, from threads that never keep a process alive.

    Entering raises UsageError where `listen` (host:port, [IPv6]:port; port 0: any free one) cannot be had. The checks
    and `metrics` are called from the server's threads.
    """

    def __init__(self, listen: str, metrics: Metrics, *, is_healthy: HealthCheck, is_ready: HealthCheck) -> None:
        self._listen = listen
        self._pages: dict[str, _Page] = {
            "/metrics": lambda accept: (HTTPStatus.OK, *metrics.exposition(accept)),
            "/healthz": lambda _: _verdict(is_healthy()),
            "/readyz": lambda _: _verdict(is_ready()),
        }

    def __enter__(self) -> Self:
        try:
            self._server = _Server(self._listen, self._pages)
        except (
            OSError,
            OverflowError,
        ) as error:  # the address is taken, is not ours, or has no such name; or the port is above 65535
            raise UsageError(f"metrics.listen: cannot listen on {self._listen}: {error}; choose another") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics-server", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.drop_all()

    @property
    def address(self) -> str:
        """host:port where the server listens; only within the `with` block."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if self._server.address_family == socket.AF_INET6 else f"{host!s}:{port}"


_Answer = tuple[HTTPStatus, bytes, str]
_Page = Callable[[str], _Answer]  # from an Accept header


def _verdict(reason: str | None) -> _Answer:
    if reason is None:
        return HTTPStatus.OK, b"ok\n", _PLAIN
    return HTTPStatus.SERVICE_UNAVAILABLE, _line(reason), _PLAIN


def _line(text: str) -> bytes:
    return printable(" ".join(text.split())).encode() + b"\n"


class _Server(ThreadingHTTPServer):
    """One thread per connection, and a bounded number of both: a client that hangs loses its place to a new one."""

    daemon_threads = True
    request_queue_size = 128  # the default of 5 overflows in a burst, and TCP tries again only after a second
    allow_reuse_port = (
        False  # some versions of Python set this: a second instance would get half of our scrapes, without an error
    )

    def __init__(self, listen: str, pages: dict[str, _Page]) -> None:
        host, _, port = listen.rpartition(":")
        self.address_family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        self.pages = pages
        self._connections: dict[socket.socket, None] = {}  # oldest first
        self._lock = threading.Lock()
        super().__init__((host.strip("[]"), int(port)), _Handler)

    def server_bind(self) -> None:
        """Bind, without HTTPServer's question to DNS after our own name: it can take a minute."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class has it
        with self._lock:
            if len(self._connections) >= MOST_CONNECTIONS:
                oldest = next(iter(self._connections))
                _hang_up(oldest)
                del self._connections[oldest]
            self._connections[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def drop_all(self) -> None:
        """End every connection; their threads follow."""
        with self._lock:
            for connection in self._connections:
                _hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002
        """A client that went away is no event: no traceback of it on stderr."""
        log.debug("a connection of %s broke", client_address)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # the client closed it first
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_PATIENCE_S
    server: _Server

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        status, body, content_type = HTTPStatus.NOT_FOUND, b"/metrics, /healthz, /readyz\n", _PLAIN
        if page is not None:
            try:
                status, body, content_type = page(self.headers.get("Accept", ""))
            except Exception as error:
                log.exception("%s could not be worked out", self.path)
                status, body = HTTPStatus.INTERNAL_SERVER_ERROR, _line(repr(error))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "kafka-archiver"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a scrape every few seconds is no event."""
