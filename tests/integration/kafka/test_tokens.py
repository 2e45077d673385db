"""What gives the tokens of OAUTHBEARER may be hostile, broken, or hang: without a broker."""

import asyncio
import base64
import time
import traceback
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from archiver.errors import KafkaError, KafkaTemporaryError, UsageError
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.login.tokens import FunctionSource, OidcSource, Tokens
from archiver.process.output.mask import without_secrets
from tests.support.http_proxy import http_proxy
from tests.support.secure_broker import Certificates
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
    assert f"{redirecting}?******** answered 302, a redirect, which is not followed" in str(caught.value)
    assert "own" not in str(caught.value)


def test_no_proxy_of_the_environment_is_asked(proxied: list[str]) -> None:
    with token_endpoint() as endpoint:
        assert tokens_of(endpoint).current().text
    assert proxied == []


def test_a_proxy_that_was_asked_for_sees_no_secret(proxied: list[str], tmp_path: Path) -> None:
    made = Certificates.make(tmp_path)
    seen: list[str] = []
    with token_endpoint(certificate=tmp_path / "broker.both") as endpoint, http_proxy(seen) as address:
        source = KafkaSettings.parse(oidc(endpoint, made.ca) | {"token_proxy": f"http://me:pa55@{address}"})
        assert source.security._tokens().current().text
        direct = KafkaSettings.parse(oidc(endpoint, made.ca))
        assert direct.security._tokens().current().text
    assert seen == [f"CONNECT {urlsplit(endpoint).netloc} Basic {base64.b64encode(b'me:pa55').decode()}"]
    assert proxied == []


def oidc(endpoint: str, ca: Path | None = None) -> dict[str, object]:
    return {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        **({} if ca is None else {"https.ca.location": str(ca)}),
    }


@pytest.mark.parametrize(
    ("endpoint", "proxy", "message"),
    [
        (
            "http://login.example.org/token?key=pa55",
            None,
            r"endpoint\.url: must be https: client secret and token would go",
        ),
        ("http://10.0.0.7/token", None, r"must be https"),
        ("http://127.0.0.1.example.org/token", None, r"must be https"),
        ("http://127.0.0.1:1/token", "http://proxy:3128", r"token_proxy: goes with an https token endpoint"),
        ("https://login.example.org/token", "me:pa55@proxy", r"token_proxy: is not like http://host:port"),
    ],
)
def test_a_secret_leaves_this_machine_by_https_alone(endpoint: str, proxy: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        KafkaSettings.parse(oidc(endpoint) | ({} if proxy is None else {"token_proxy": proxy}))
    assert "pa55" not in str(caught.value)
    for here in ("http://localhost:1/token", "http://[::1]:1/token", "http://127.0.0.9/token"):
        KafkaSettings.parse(oidc(here))


@pytest.mark.parametrize(
    "answer",
    [
        b'{"access_token": "pa55-word", "expires_in": "pa55-word"}',
        b'{"token": "pa55-word"}',
        b'"pa55-word"',
        b'{"access_token": "pa55-word\xff"}',
        b'{"access_token": null, "error": "pa55-word"}',
        b'{"access_token": ["pa55-word"]}',
        b'{"access_token": "pa55-word", "expires_in": 1e999, "x": [}',
        b"pa55-word",
    ],
)
def test_nothing_of_an_answer_is_repeated(answer: bytes) -> None:
    with token_endpoint(answer=answer) as endpoint, pytest.raises(KafkaTemporaryError) as caught:
        tokens_of(endpoint).current()
    assert str(caught.value) == (
        f"there is no token: {endpoint} answered no token: expected JSON with access_token, and expires_in in seconds"
    )
    assert "pa55" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("status", [408, 429, 503])
def test_a_provider_that_is_busy_may_be_asked_again(status: int) -> None:
    with token_endpoint(status=status) as endpoint, pytest.raises(KafkaTemporaryError, match=f"answered {status}"):
        tokens_of(endpoint).current()


HERE = "tests.support.token_server"


def test_what_a_function_quotes_is_shown_without_its_secrets() -> None:
    with pytest.raises(KafkaError) as caught:
        Tokens(FunctionSource(f"{HERE}:complain"), {}).current()
    mask = "********"
    assert str(caught.value) == (
        f"there is no token: 401 for https://{mask}@idp.example.org/token?{mask} with Bearer {mask} {mask}"
    )
    assert "pa55" not in "".join(traceback.format_exception(caught.value))


def test_a_long_text_without_an_address_is_told_at_once() -> None:
    started_s = time.monotonic()
    assert without_secrets("a" * 60_000) == "a" * 60_000
    assert time.monotonic() - started_s < 1.0  # 20 s, in which no other thread ran


@pytest.mark.parametrize(("name", "reason"), [("none.pem", "there is no such file"), ("broken.pem", "NO_CERTIFICATE")])
def test_certificates_of_a_provider_that_cannot_be_read_are_named(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "broken.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=rf"https\.ca\.location: {reason}"):
        KafkaSettings.parse(oidc("https://127.0.0.1:9/token", tmp_path / name))


def test_a_token_in_the_place_of_its_provider_is_not_shown() -> None:
    given = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(UsageError, match=r"token_provider: is not like module:function") as caught:
        KafkaSettings.parse(given | {"token_provider": "eyJhbGciOiJub25lIn0.pa55.word"})
    assert "pa55" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("give_bytes", rf"{HERE}:give_bytes returned no token with its expiry"),
        ("give_no_end", rf"{HERE}:give_no_end returned no token with its expiry \(ms since 1970\)"),
        ("give_alone", rf"{HERE}:give_alone returned no token with its expiry"),
        ("give_a_line", rf"what {HERE}:give_a_line gave is none: printable ASCII without blanks"),
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
    with pytest.raises(UsageError, match=r"^(SystemExit 7|no badge); is it installed"):
        FunctionSource("of_mine:token").find()


def test_a_token_source_that_hangs_times_out() -> None:
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
