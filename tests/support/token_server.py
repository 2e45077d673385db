"""Unsigned tokens, as a broker for tests takes them: from a function, or from an OpenID provider's endpoint."""

import base64
import json
import ssl
import sys
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event

from tests.support.http_proxy import served
from tests.support.secure_broker import USER

CLIENT_ID, CLIENT_SECRET = "the archiver", "s3cret/&"


def _encoded(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(user: str, lives_s: float = 600.0) -> str:
    now = time.time()
    return f"{_encoded({'alg': 'none'})}.{_encoded({'sub': user, 'iat': now - 1, 'exp': now + lives_s})}."


def give() -> tuple[str, int]:
    """What `token_provider: tests.support.token_server:give` calls."""
    return unsigned(USER), int((time.time() + 600) * 1000)


def give_brief() -> tuple[str, int]:
    """One that lives for a few seconds."""
    return unsigned(USER, 4.0), int((time.time() + 4) * 1000)


def give_late() -> tuple[str, int]:
    """By what it says of the token."""
    return unsigned(USER), int((time.time() - 600) * 1000)


def give_bytes() -> tuple[bytes, int]:
    return unsigned(USER).encode(), int((time.time() + 600) * 1000)


def give_no_end() -> tuple[str, None]:
    return unsigned(USER), None


def give_a_line() -> tuple[str, int]:
    return "token\n", int((time.time() + 600) * 1000)


def give_alone() -> str:
    return unsigned(USER)


def complain() -> tuple[str, int]:
    """As libraries do, of the request that failed."""
    raise RuntimeError(
        f"401 for https://me:pa55-word@idp.example.org/token?client_secret=pa55-word with Bearer pa55-word, {unsigned(USER)}"
    )


def leave() -> tuple[str, int]:
    sys.exit(7)


def hang() -> tuple[str, int]:
    print("the badge reader hangs", file=sys.stderr, flush=True)
    Event().wait()
    raise AssertionError


class _Endpoint(BaseHTTPRequestHandler):
    redirects_to = ""
    answer: bytes | None = None
    status = 200
    seen: list[str]
    given: list[str]

    def do_POST(self) -> None:
        self.seen.append(self.path)
        if self.redirects_to:
            self.send_response(302, "pa55-word")
            self.send_header("Location", self.redirects_to)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        scheme, _, credentials = self.headers["Authorization"].partition(" ")
        name, _, secret = base64.b64decode(credentials).decode().partition(":")
        known = (urllib.parse.unquote(name), urllib.parse.unquote(secret)) == (CLIENT_ID, CLIENT_SECRET)
        if scheme != "Basic" or not known or form.get("grant_type") != ["client_credentials"]:
            self.send_error(401)
            return
        token = unsigned(USER)
        self.given.append(token)
        body = json.dumps({"access_token": token, "token_type": "bearer", "expires_in": 600}).encode()
        body = body if self.answer is None else self.answer
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """What a client makes of a redirect of its POST."""
        self.seen.append(self.path)
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def token_endpoint(
    *,
    redirects_to: str = "",
    answer: bytes | None = None,
    status: int = 200,
    seen: list[str] | None = None,
    given: list[str] | None = None,
    certificate: Path | None = None,
) -> Iterator[str]:
    """An OpenID provider's token endpoint; its address. It says of every token that it lives for ten minutes.

    `seen` is where it puts the path of each request, `given` each token. `answer` is what it says instead of one.
    `certificate` is a file with its certificate and key; then it speaks TLS.
    """
    told = {"redirects_to": redirects_to, "answer": answer, "status": status}
    lists = {"seen": [] if seen is None else seen, "given": [] if given is None else given}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Endpoint", (_Endpoint,), {**told, **lists})) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        with served(server):
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}/token"
