"""One `kafka:` section for both clients: what is mapped, and that nothing is dropped in silence."""

import pytest

from archiver.errors import UsageError
from archiver.kafka.settings import KafkaSettings


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
        ({"sasl_mechanism": "PLAIN"}, r"sasl\.mechanism is not supported yet"),
        ({"ssl_ca_location": "x"}, r"ssl\.ca\.location is not supported yet"),
        ({"security_protocol": "SASL_SSL"}, r"security\.protocol SASL_SSL"),
        ({"client_ids": "x"}, r"client\.ids .* did you mean client\.id\?"),
        ({"zzz": "x"}, r"zzz .* known keys: bootstrap\.servers"),
        ({"retry_backoff_ms": "soon"}, r"retry\.backoff\.ms .*'soon'"),
        ({"retry_backoff_ms": 0}, r"retry\.backoff\.ms must be above 0"),
        ({"retry_backoff_ms": True}, r"retry\.backoff\.ms .*True"),
        ({"socket_timeout_ms": 1, "request_timeout_ms": 2}, r"mean the same"),
        ({"bootstrap_servers": ""}, r"bootstrap\.servers is missing"),
        ({"bootstrap_servers": None}, r"bootstrap\.servers is missing"),
        ({"bootstrap_servers": "a:1,,b:2"}, r"'' is not host:port"),
        ({"bootstrap_servers": "PLAINTEXT://a:1"}, r"'PLAINTEXT://a:1' is not host:port"),
        ({"bootstrap_servers": "a:port"}, r"'a:port' is not host:port"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_by_name(properties: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(**properties)
