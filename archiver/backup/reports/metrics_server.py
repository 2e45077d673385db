"""The HTTP endpoint of a running backup: /metrics, /healthz, /readyz."""

import io
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from archiver.errors import UsageError
from archiver.process.output.text import printable

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

HealthCheck = Callable[[], str | None]  # None: healthy; otherwise the problem

# Enough for Prometheus, a kubelet and a few people. More connections at once are a client's fault; the oldest is dropped.
MOST_CONNECTIONS: Final = 16
_CLIENT_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.1  # how soon `serve_forever` notices that it should end
_OPENMETRICS: Final = "application/openmetrics-text"
_NAME: Final = "kafka-archiver"  # otherwise wsgiref reveals the versions of itself and of Python


class MetricsServer:
    """Serves while its `with` block is entered, from threads that never keep a process alive.

    Entering raises UsageError if `listen` (host:port, [IPv6]:port; port 0: any free one) is unavailable. The checks
    and the registry's collectors are called from the server's threads.
    """

    def __init__(
        self, listen: str, registry: CollectorRegistry, *, is_healthy: HealthCheck, is_ready: HealthCheck
    ) -> None:
        self._listen = listen
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        self._checks = {"/healthz": is_healthy, "/readyz": is_ready}

    def __enter__(self) -> Self:
        try:
            self._server = _Server(self._listen)
        except (
            OSError,
            OverflowError,
        ) as error:  # the address is taken, is not ours, or has no such name; or the port is above 65535
            raise UsageError(f"metrics.listen: cannot listen on {self._listen}: {error}; choose another") from error
        self._server.set_app(self._answer)
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

    def _answer(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        def begin(status: str, headers: list[tuple[str, str]], *error: Any) -> Callable[[bytes], object]:  # noqa: ANN401
            return start_response(status, [*headers, ("Server", _NAME)], *error)

        def answer(status: str, text: str) -> list[bytes]:
            begin(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [printable(" ".join(text.split())).encode() + b"\n"]

        path = environ["PATH_INFO"]
        # The header itself is not used: a version that a client writes there would become part of our answer.
        environ["HTTP_ACCEPT"] = _OPENMETRICS if _OPENMETRICS in environ.get("HTTP_ACCEPT", "") else ""
        try:
            if environ["REQUEST_METHOD"] != "GET":
                return answer("405 Method Not Allowed", "only GET is")
            if path == "/metrics":
                return self._metrics(environ, begin)
            if path not in self._checks:
                return answer("404 Not Found", "/metrics, /healthz, /readyz")
            reason = self._checks[path]()
            return answer("200 OK", "ok") if reason is None else answer("503 Service Unavailable", reason)
        except Exception as error:
            log.exception("%s could not be worked out", path)
            return answer("500 Internal Server Error", repr(error))


class _Server(ThreadingMixIn, WSGIServer):
    """One thread per connection, and a bounded number of both: a client that hangs loses its place to a new one."""

    daemon_threads = True
    request_queue_size = 128  # the default of 5 overflows in a burst, and TCP tries again only after a second
    allow_reuse_port = (
        False  # some versions of Python set this: a second instance would get half of our scrapes, without an error
    )

    def __init__(self, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        self.address_family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        self._connections: dict[socket.socket, None] = {}  # oldest first
        self._lock = threading.Lock()
        super().__init__((host.strip("[]"), int(port)), _Handler)

    def server_bind(self) -> None:
        """Bind, without HTTPServer's question to DNS after our own name: it can take a minute."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

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
        """Ignores clients that disconnect: no traceback on stderr."""
        log.debug("a connection of %s broke", client_address)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # the client closed it first
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_PATIENCE_S

    def version_string(self) -> str:
        return _NAME

    def get_stderr(self) -> io.StringIO:
        return io.StringIO()  # a disconnected client is not reported

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a scrape every few seconds is no event."""
