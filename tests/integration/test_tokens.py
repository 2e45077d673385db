"""What gives the tokens of OAUTHBEARER may be hostile, broken, or hang: without a broker."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from archiver.errors import KafkaError, KafkaTemporaryError, UsageError
from archiver.kafka.tokens import FunctionSource, OidcSource, Tokens
from tests.support.token_server import CLIENT_ID, CLIENT_SECRET, token_endpoint


def tokens_of(url: str) -> Tokens:
    return Tokens(OidcSource(url=url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET), {})


def test_the_clients_secret_goes_nowhere_else() -> None:
    elsewhere: list[str] = []
    with (
        token_endpoint(seen=elsewhere) as other,
        token_endpoint(redirects_to=f"{other}?its=own") as redirecting,
        pytest.raises(KafkaError) as caught,
    ):
        tokens_of(f"{redirecting}?key=own").current()
    assert elsewhere == []
    assert f"{redirecting}?******** answered 302 Found, a redirect to 127.0.0.1, which is not followed" in str(
        caught.value
    )
    assert "own" not in str(caught.value)


HERE = "tests.support.token_server"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("give_bytes", rf"{HERE}:give_bytes returned \(bytes, int\), not a text and a number: a token, and when it"),
        ("give_no_end", rf"{HERE}:give_no_end returned \(str, NoneType\), not a text and a number"),
        ("give_alone", rf"{HERE}:give_alone returned \(str\), not a text and a number"),
        ("give_a_line", rf"what {HERE}:give_a_line gave is none: printable ASCII without blanks"),
        ("give_ancient", rf"{HERE}:give_ancient gave one that had expired at -1e\+18 s since 1970"),
        ("leave", r"SystemExit 7$"),
    ],
)
def test_what_a_function_does_wrong_is_named(function: str, message: str) -> None:
    tokens = Tokens(FunctionSource(f"{HERE}:{function}"), {})
    for _ in range(2):  # no failure is kept
        with pytest.raises(KafkaError, match=rf"^there is no token: {message}"):
            tokens.current()


@pytest.mark.parametrize("text", ["raise SystemExit(7)", "raise ValueError('no badge')"])
def test_a_module_that_cannot_be_imported_is_named(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"^of_mine:token: (SystemExit 7|no badge); is it installed"):
        FunctionSource("of_mine:token").check()


def test_a_module_whose_import_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_of_mine.py").write_text("import threading\nthreading.Event().wait()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("archiver.kafka.tokens.PATIENCE_S", 0.2)
    with pytest.raises(UsageError, match=r"^slow_of_mine:token: its import did not end within 0 s; does it hang"):
        FunctionSource("slow_of_mine:token").check()


def test_nobody_waits_for_ever_for_one_that_hangs() -> None:
    tokens = Tokens(FunctionSource(f"{HERE}:hang"), {}, patience_s=0.2)
    started_s = time.monotonic()
    for _ in range(3):  # the second is told at once
        with pytest.raises(KafkaTemporaryError, match=rf"^there is no token: {HERE}:hang has not given one for \d+ s"):
            tokens.current()
    assert time.monotonic() - started_s < 2
    with pytest.raises(KafkaTemporaryError, match="does it hang"):
        asyncio.run(tokens.current_soon())


def test_a_loop_stops_waiting_at_once() -> None:
    tokens = Tokens(FunctionSource(f"{HERE}:hang"), {})

    async def run() -> None:
        waiting = asyncio.create_task(tokens.current_soon())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    started_s = time.monotonic()
    asyncio.run(run())  # would wait for threads of its own
    assert time.monotonic() - started_s < 5


def test_a_loop_gets_what_is_there_at_any_time() -> None:
    tokens = Tokens(FunctionSource(f"{HERE}:give"), {}, patience_s=5.0)
    first = asyncio.run(tokens.current_soon())
    tokens._asked_at_s -= 60.0
    assert asyncio.run(tokens.current_soon()) is first is tokens.current()
