"""Unsigned tokens, as a broker for tests takes them: from a function, or from an OpenID provider's endpoint."""

import base64
import json
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

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


def refuse() -> tuple[str, int]:
    raise RuntimeError("the badge reader is broken")


class _Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        scheme, _, credentials = self.headers["Authorization"].partition(" ")
        name, _, secret = base64.b64decode(credentials).decode().partition(":")
        known = (urllib.parse.unquote(name), urllib.parse.unquote(secret)) == (CLIENT_ID, CLIENT_SECRET)
        if scheme != "Basic" or not known or form.get("grant_type") != ["client_credentials"]:
            self.send_error(401)
            return
        body = json.dumps({"access_token": unsigned(USER), "token_type": "bearer", "expires_in": 600}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def token_endpoint() -> Iterator[str]:
    """An OpenID provider's token endpoint; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()
