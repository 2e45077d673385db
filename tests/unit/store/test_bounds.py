"""What a store answers is not believed either: no more of a body is read than whoever asks takes."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from archiver.config.model import StorageConfig
from archiver.errors import CorruptSegmentError
from archiver.store.s3 import S3Store

MOST = 1 << 20
PIECE = bytes(1 << 16)


class Endless(BaseHTTPRequestHandler):
    """Answers each GET with a body in chunks, which tells no length and does not end before its reader goes."""

    protocol_version = "HTTP/1.1"
    sent_bytes = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for _ in range(64 * MOST // len(PIECE)):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))
                type(self).sent_bytes += len(PIECE)
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_body_without_a_length_is_read_up_to_the_bound(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    store = S3Store(StorageConfig(url="s3://bucket", endpoint=endpoint), attempts=1)
    with pytest.raises(CorruptSegmentError, match=r"^k: has 1,048,577 bytes"):
        store.get("k", MOST)
    assert Endless.sent_bytes < 32 * MOST  # what the buffers of sockets took beside it
