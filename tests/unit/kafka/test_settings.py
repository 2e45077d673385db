"""One `kafka:` section for both clients: what is mapped, and that nothing is dropped in silence."""

import os
import pickle
import ssl
from pathlib import Path

import pytest

from archiver.errors import KafkaError, UsageError
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.login.tokens import Token, Tokens
from archiver.process.output.logs import warn_once
from tests.support.secure_broker import Certificates


def parse(**properties: object) -> KafkaSettings:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return KafkaSettings.parse({"bootstrap.servers": "a:1", **named})


def test_both_clients_get_the_same() -> None:
    settings = KafkaSettings.parse({
        "bootstrap.servers": " a:1, [::1]:2,b ",
        "client.id": "me",
        "client.rack": "r1",
        "socket.timeout.ms": "1000",
        "metadata.max.age.ms": 2000,
        "retry.backoff.ms": 30,
        "connections.max.idle.ms": 0,
        "security.protocol": "PLAINTEXT",
    })  # fmt: skip
    assert settings.for_aiokafka() == {
        "bootstrap_servers": ["a:1", "[::1]:2", "b"],
        "client_id": "me",
        "request_timeout_ms": 1000,
        "metadata_max_age_ms": 2000,
        "retry_backoff_ms": 30,
        "connections_max_idle_ms": None,
        "security_protocol": "PLAINTEXT",
    }
    assert settings.for_confluent() == {
        "bootstrap.servers": "a:1,[::1]:2,b",
        "client.id": "me",
        "client.rack": "r1",
        "socket.timeout.ms": "1000",
        "metadata.max.age.ms": "2000",
        "retry.backoff.ms": "30",
        "connections.max.idle.ms": "0",
        "security.protocol": "plaintext",
    }


def test_the_java_name_of_the_timeout_is_understood() -> None:
    assert parse(request_timeout_ms=5).request_timeout_ms == 5
    assert parse(request_timeout_ms=5, socket_timeout_ms="5").request_timeout_ms == 5


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sasl_mechanism": "PLAIN"}, r"sasl\.mechanism: goes with security\.protocol sasl_ssl"),
        ({"ssl_ca_location": "x"}, r"ssl\.ca\.location: goes with security\.protocol ssl"),
        ({"security_protocol": "SASL_SSL"}, r"sasl\.mechanism: is missing; give one of PLAIN"),
        ({"zzz": "x"}, r"zzz .* known keys: bootstrap\.servers"),
        ({"retry_backoff_ms": "soon"}, r"retry\.backoff\.ms must be a number of milliseconds$"),
        ({"retry_backoff_ms": 0}, r"retry\.backoff\.ms must be above 0"),
        ({"retry_backoff_ms": True}, r"retry\.backoff\.ms must be a number of milliseconds$"),
        ({"socket_timeout_ms": 1, "request_timeout_ms": 2}, r"mean the same"),
        ({"bootstrap_servers": ""}, r"bootstrap\.servers is missing"),
        ({"bootstrap_servers": None}, r"bootstrap\.servers is missing"),
        ({"bootstrap_servers": "a:1,,b:2"}, r"address 2 of 3 is not host:port"),
        ({"bootstrap_servers": "PLAINTEXT://a:1"}, r"servers: is not host:port"),
        ({"bootstrap_servers": "a:99999"}, r"servers: is not host:port"),
        ({"bootstrap_servers": "a:0"}, r"servers: is not host:port"),
        ({"bootstrap_servers": "a:port"}, r"servers: is not host:port"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_by_name(properties: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(**properties)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"bootstrap_servers": "me:hunter2@a:1"}, r"servers: is not host:port"),
        ({"bootstrap_servers": "me:hun,ter2@a:1,b:1"}, r"servers: address 1 of 3 is not host:port"),
        (
            {"security_protocol": "ssl", "ssl_certificate_pem": "x", "ssl_key_location": "-----BEGIN hunter2"},
            r"ssl\.key\.location: is the text of a PEM file, not its path; give it as ssl\.key\.pem",
        ),
    ],
    ids=["user", "comma", "key"],
)
def test_what_may_be_a_secret_is_not_repeated(properties: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse(**properties)
    assert not [part for part in ("hunter2", "ter2") if part in str(caught.value)]


PASSWORD = {"sasl_username": "alice", "sasl_password": "pa55-word"}


def test_a_password_goes_to_both_clients_and_is_not_shown() -> None:
    settings = parse(security_protocol="SASL_SSL", sasl_mechanism="scram-sha-256", **PASSWORD)
    ours, theirs = settings.for_aiokafka(), settings.for_confluent()
    assert isinstance(ours.pop("ssl_context"), ssl.SSLContext)
    assert {name: ours[name] for name in ours if "sasl" in name or "security" in name} == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "pa55-word",
    }
    assert {name: theirs[name] for name in theirs if "sasl" in name or "security" in name} == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "pa55-word",
    }
    assert "pa55-word" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings  # a task of Spark gets it so


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files in memory")
def test_the_text_of_a_key_is_on_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for a moment: a file for it would stay there behind a kill -9."""
    made = Certificates.make(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    chain, key = made.chain("client").read_text(), made.key("client").read_text()
    settings = parse(security_protocol="ssl", ssl_certificate_pem=chain, ssl_key_pem=key)
    assert isinstance(settings.for_aiokafka()["ssl_context"], ssl.SSLContext)


CLEAR = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", **PASSWORD}
TOKEN = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_client_id": "me",
    "sasl_oauthbearer_client_secret": "pa55-word",
    "sasl_oauthbearer_token_endpoint_url": "https://login.example.org/token",
}


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (CLEAR, "kafka: security.protocol: with sasl_plaintext and PLAIN the password goes in clear to the brokers"),
        (CLEAR | {"bootstrap_servers": "127.0.0.1:1,broker:1"}, "the password goes in clear"),
        (
            {"security_protocol": "sasl_plaintext", **TOKEN},
            "with sasl_plaintext and OAUTHBEARER the token goes in clear",
        ),
        (
            {"security_protocol": "ssl", "enable_ssl_certificate_verification": "false"},
            "kafka: enable.ssl.certificate.verification: anyone on the way can pose as a broker, and gets records;",
        ),
        (
            {"security_protocol": "sasl_ssl", "ssl_endpoint_identification_algorithm": "none", **TOKEN},
            "certificate of this authority can pose as a broker, and gets token and records; give the brokers",
        ),
        # What never sends a password, what stays on this machine, and what is as it should be.
        (CLEAR | {"sasl_mechanism": "SCRAM-SHA-512"}, None),
        (CLEAR | {"bootstrap_servers": "127.0.0.1:1,[::1]:1,localhost:1"}, None),
        (CLEAR | {"security_protocol": "sasl_ssl"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_insecure_login_settings_are_reported_once(
    properties: dict[str, object], said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    for _ in range(2):
        parse(**{"bootstrap_servers": "broker:1", **properties})
    assert len(caplog.messages) == (0 if said is None else 1)
    assert (said or "") in "".join(caplog.messages)
    assert "pa55-word" not in caplog.text


def test_verification_can_be_turned_off_in_steps() -> None:
    def context(**properties: object) -> ssl.SSLContext:
        found = parse(security_protocol="ssl", **properties).for_aiokafka()["ssl_context"]
        assert isinstance(found, ssl.SSLContext)
        return found

    assert (context().check_hostname, context().verify_mode) == (True, ssl.CERT_REQUIRED)
    nameless = context(ssl_endpoint_identification_algorithm="none")
    assert (nameless.check_hostname, nameless.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert context(enable_ssl_certificate_verification="false").verify_mode == ssl.CERT_NONE


def test_a_token_is_fetched_once_until_it_is_about_to_expire() -> None:
    now_s, fetched = [1000.0], list[float]()

    class Source:
        def fetch(self, now_s: float) -> Token:
            fetched.append(now_s)
            return Token(f"token-{len(fetched)}", now_s + 300)

    tokens = Tokens(Source(), {"a": "b"}, clock=lambda: now_s[0])  # type: ignore[arg-type]
    assert [tokens.current().text for _ in range(3)] == ["token-1"] * 3
    now_s[0] += 239
    assert tokens.current().text == "token-1"
    now_s[0] += 2
    assert tokens.current().text == "token-2"
    assert fetched == [1000.0, 1241.0]
    assert "token-2" not in repr(tokens.current())


def test_a_token_that_has_expired_is_not_shown() -> None:
    class Source:
        def fetch(self, now_s: float) -> Token:
            return Token("opaque.token", now_s - 90)

        def __str__(self) -> str:
            return "msk:token"

    tokens = Tokens(Source(), {}, clock=lambda: 1_700_000_000.0)  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match=r"msk:token gave one that had expired 90 s ago"):
        tokens.current()
