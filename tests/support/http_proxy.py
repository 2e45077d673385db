"""A proxy, as environments name one for a whole machine; and how servers of ours run beside a test."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

# Those that Python's and botocore's clients go by; http_proxy in capital letters is a header's name to a CGI.
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY")


class _Proxy(BaseHTTPRequestHandler):
    timeout = 20.0
    seen: list[str]

    def do_CONNECT(self) -> None:
        self.seen.append(f"CONNECT {self.path} {self.headers.get('Proxy-Authorization', '')}".strip())
        host, _, port = self.path.partition(":")
        with socket.create_connection((host, int(port)), timeout=self.timeout) as there:
            self.send_response(200)
            self.end_headers()
            back = Thread(target=_carry, args=(there, self.connection), daemon=True)
            back.start()
            _carry(self.connection, there)
            back.join()
        self.close_connection = True

    def refuse(self) -> None:
        self.seen.append(f"{self.requestline} {self.headers}")
        self.send_error(502)

    def log_message(self, *_: object) -> None:
        pass


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def http_proxy(seen: list[str]) -> Iterator[str]:
    """A proxy that lets everybody through by CONNECT, and nobody else; its host and port. `seen` is where it puts requests."""
    refused = {f"do_{method}": _Proxy.refuse for method in ("GET", "HEAD", "POST", "PUT", "DELETE")}
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), type("Proxy", (_Proxy,), {"seen": seen, **refused})) as server,
        served(server),
    ):
        yield f"127.0.0.1:{server.server_port}"


@contextmanager
def served(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
