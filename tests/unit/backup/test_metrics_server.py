"""The endpoint over real HTTP, on the loopback address."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import NamedTuple, NoReturn

import pytest

from archiver.backup.reports.metrics import Metrics
from archiver.backup.reports.metrics_server import MOST_CONNECTIONS, HealthCheck, MetricsServer
from archiver.errors import UsageError

QUICK_S = 3.0  # a tenth of this is usual; a hung client is waited for ten seconds


class Answer(NamedTuple):
    status: int
    body: str
    content_type: str


def nothing() -> None:
    return None


def serve(
    listen: str = "127.0.0.1:0", *, is_healthy: HealthCheck = nothing, is_ready: HealthCheck = nothing
) -> MetricsServer:
    return MetricsServer(listen, Metrics(list, lambda: 0).registry, is_healthy=is_healthy, is_ready=is_ready)


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with serve() as serving:
        yield serving


def ask(server: MetricsServer, path: str, *, method: str = "GET", **headers: str) -> Answer:
    connection = HTTPConnection(server.address, timeout=QUICK_S)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.read().decode(), response.headers["Content-Type"])
    finally:
        connection.close()


def connect(server: MetricsServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=QUICK_S)


@pytest.mark.parametrize("accept", ["", "*/*", "text/html", "text/plain; version=x", "text/plain; version=1.0.0"])
def test_metrics(server: MetricsServer, accept: str) -> None:
    answer = ask(server, "/metrics", Accept=accept)
    assert (answer.status, answer.content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "\narchiver_rebalances_total 0.0\n" in answer.body


@pytest.mark.parametrize("version", ["", ";version=1.0.0", ";version=2.0.0;escaping=x", ";version=a\tb"])
def test_openmetrics_is_negotiated(server: MetricsServer, version: str) -> None:
    answer = ask(server, "/metrics", Accept=f"application/openmetrics-text{version},text/plain;q=0.1")
    assert answer.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert answer.body.endswith("# EOF\n")


def test_a_query_does_not_matter(server: MetricsServer) -> None:
    assert ask(server, "/healthz?verbose=1").status == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/healthz/x", "/favicon.ico", "//"])
def test_nothing_else_is_there(server: MetricsServer, path: str) -> None:
    assert ask(server, path).status == 404


def test_nothing_is_taken(server: MetricsServer) -> None:
    assert ask(server, "/metrics", method="POST").status == 405


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_checks_are_asked_each_time_and_apart(path: str) -> None:
    reasons = {"/healthz": None, "/readyz": None} | {path: "no answer\nfrom the \u202egroup"}
    with serve(is_healthy=lambda: reasons["/healthz"], is_ready=lambda: reasons["/readyz"]) as server:
        (other,) = reasons.keys() - {path}
        assert ask(server, path)[:2] == (503, "no answer from the \\u202egroup\n")
        assert ask(server, other)[:2] == (200, "ok\n")
        reasons[path] = None
        assert ask(server, path)[:2] == (200, "ok\n")


def test_a_check_that_breaks_is_not_well(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> NoReturn:
        raise RuntimeError("dictionary changed size")

    with serve(is_healthy=broken) as server:
        assert ask(server, "/healthz")[:2] == (500, "RuntimeError('dictionary changed size')\n")
        assert ask(server, "/readyz").status == 200
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_address_is_where_it_listens(host: str) -> None:
    if host == "[::1]" and not _has_ipv6():
        pytest.skip("no IPv6 here")
    with serve(f"{host}:0") as server:
        assert not server.address.endswith(":0")
        assert server.address.startswith("127.0.0.1:" if host == "localhost" else f"{host}:")
        assert ask(server, "/healthz").status == 200


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_a_port_in_use_is_named(server: MetricsServer) -> None:
    with pytest.raises(UsageError, match=rf"metrics\.listen.*{server.address}.*in use"), serve(server.address):
        pass
    assert ask(server, "/healthz").status == 200


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "192.0.2.1:0", "no..name:0"])
def test_an_address_that_cannot_be_had_is_named(listen: str) -> None:
    with pytest.raises(UsageError, match=r"metrics\.listen") as raised, serve(listen):
        pass
    assert listen in str(raised.value)


def test_a_port_is_free_again_at_once() -> None:
    with serve() as server:
        address = server.address
        assert ask(server, "/healthz").status == 200
    with serve(address) as again:
        assert ask(again, "/healthz").status == 200


def test_a_client_that_hangs_stops_nobody_and_is_left_at_the_end() -> None:
    before = threading.active_count()
    with ExitStack() as clients:
        with serve() as server:
            silent, half = (clients.enter_context(connect(server)) for _ in range(2))
            half.sendall(b"GET /metrics HTT")
            assert ask(server, "/metrics").status == 200
            began_s = time.monotonic()
        assert time.monotonic() - began_s < QUICK_S
        assert [client.recv(1) for client in (silent, half)] == [b"", b""]
    assert _soon(lambda: threading.active_count() <= before)


def test_no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    for name in ("getfqdn", "gethostbyaddr"):
        monkeypatch.setattr(socket, name, asked.append)
    with serve() as server:
        assert ask(server, "/metrics").status == 200
    assert asked == []


def test_many_clients_that_hang_take_no_place_from_one_that_asks(server: MetricsServer) -> None:
    before = threading.active_count()
    with ExitStack() as clients:
        hung = [clients.enter_context(connect(server)) for _ in range(3 * MOST_CONNECTIONS)]
        assert ask(server, "/healthz").status == 200
        assert hung[0].recv(1) == b""  # the oldest lost its place
        assert _soon(lambda: threading.active_count() <= before + MOST_CONNECTIONS)
    assert _soon(lambda: threading.active_count() <= before)


def test_garbage_is_answered_and_silent(server: MetricsServer, capfd: pytest.CaptureFixture[str]) -> None:
    with connect(server) as client:
        client.sendall(b"\x16\x03\x01 tls hello\r\n\r\n")
        assert b"400" in client.recv(4096)
    with connect(server) as client:  # gone before the answer
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert ask(server, "/healthz").status == 200
    assert capfd.readouterr() == ("", "")


def test_nothing_is_told_of_the_machine(server: MetricsServer) -> None:
    connection = HTTPConnection(server.address, timeout=QUICK_S)
    for path in ("/healthz", "/metrics", "/none"):
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.headers["Server"] == "kafka-archiver"
        response.read()
    connection.close()


def _soon(is_so: Callable[[], bool]) -> bool:
    give_up_at_s = time.monotonic() + QUICK_S
    while not is_so() and time.monotonic() < give_up_at_s:
        time.sleep(0.01)
    return is_so()
