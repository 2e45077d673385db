"""What may be a secret in a text of code that is not ours."""

import time

import pytest

from archiver.process.output.mask import without_query, without_secrets


@pytest.mark.parametrize(
    "text",
    [
        "POST failed: client_secret=hunter&x=1",
        "{'client_secret': 'hunter'}",
        '{"access_token": "hunter"}',
        "password = hunter",
        "got Bearer hunter",
        "Authorization: Basic hunter",
        "https://user:p/hunter@host/x is away",
        "user:p/hunter@host",
        "user:hunter/p@host",
        "https://host/cb#access_token=hunter",
        "https://host/cb#hunter",
        "https://host/cb?hunter",
    ],
)
def test_a_secret_is_left_out(text: str) -> None:
    assert "hunter" not in without_secrets(text)


def test_what_is_no_secret_stays() -> None:
    for text in ("the Bearer token was refused", "no token: connection refused", "issue #12", "https://host:1/path"):
        assert without_secrets(text) == text
    assert without_query("https://host/p#x") == "https://host/p#********"


@pytest.mark.parametrize("piece", ["a", "://", "secret", "token=", "?", "#", "bearer ", "a:"])
def test_a_long_text_takes_no_time(piece: str) -> None:
    began = time.monotonic()
    without_secrets(piece * (60_000 // len(piece)))
    assert time.monotonic() - began < 2
