"""TLS, client certificates, passwords, tokens and ACLs against a real broker: what lets us in, and what is said when it does not."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin._acl import AclOperation as Op
from confluent_kafka.admin._resource import ResourceType as Kind

from archiver.errors import ArchiverError, KafkaError, KafkaTemporaryError
from archiver.kafka.admin import KafkaAdmin
from archiver.kafka.client import KafkaClient
from archiver.kafka.settings import KafkaSettings
from archiver.sandbox import fetch_kafka
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.secure_broker import PASSWORD, USER, Certificates, Right, SecureBroker
from tests.support.token_server import CLIENT_ID, CLIENT_SECRET, token_endpoint

pytestmark = [pytest.mark.kafka]

Properties = dict[str, str]
EVERYTHING: list[Right] = [
    (Kind.TOPIC, "*", Op.ALL),
    (Kind.GROUP, "*", Op.ALL),
    (Kind.BROKER, "kafka-cluster", Op.ALL),
]
LOGIN = {"sasl.username": USER, "sasl.password": PASSWORD}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    folder = tmp_path_factory.mktemp("secure-broker")
    with SecureBroker(fetch_kafka(KAFKA_41, CACHE), folder, certificates) as broker:
        yield broker


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with token_endpoint() as address:
        yield address


def way_in(name: str, broker: SecureBroker, endpoint: str = "") -> Properties:
    """The `kafka:` section for one of the ways in."""
    made = broker.certificates
    ca = {"ssl.ca.location": str(made.ca)}
    tls = {"security.protocol": "ssl", **ca}
    sasl = {"security.protocol": "SASL_SSL", **ca}
    ways: dict[str, tuple[str, Properties]] = {
        "tls": ("TLS", tls),
        "tls with a pem": ("TLS", {"security.protocol": "ssl", "ssl.ca.pem": made.ca.read_text()}),
        "client certificate": (
            "MTLS",
            {
                **tls,
                "ssl.certificate.location": str(made.chain("client")),
                "ssl.key.location": str(made.key("client")),
            },
        ),
        "client certificate as pem": (
            "MTLS",
            {
                **tls,
                "ssl.certificate.pem": made.chain("client").read_text(),
                "ssl.key.pem": made.key("client").read_text(),
            },
        ),
        "plain": ("SASLTLS", {**sasl, "sasl.mechanism": "PLAIN", **LOGIN}),
        "plain without tls": ("SASL", {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", **LOGIN}),
        "scram-256": ("SASLTLS", {**sasl, "sasl.mechanism": "SCRAM-SHA-256", **LOGIN}),
        "scram-512": ("SASLTLS", {**sasl, "sasl.mechanism": "SCRAM-SHA-512", **LOGIN}),
        "token of a function": (
            "SASLTLS",
            {**sasl, "sasl.mechanism": "OAUTHBEARER", "token_provider": "tests.support.token_server:give"},
        ),
        "token of a provider": (
            "SASLTLS",
            {
                **sasl,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": CLIENT_ID,
                "sasl.oauthbearer.client.secret": CLIENT_SECRET,
                "sasl.oauthbearer.token.endpoint.url": endpoint,
            },
        ),
        "any name": ("OTHERNAME", {**tls, "ssl.endpoint.identification.algorithm": "none"}),
        "any certificate": ("EXPIRED", {"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}),
    }
    listener, properties = ways[name]
    return {"bootstrap.servers": broker.address(listener), **properties}


WAYS = [
    "tls",
    "tls with a pem",
    "client certificate",
    "client certificate as pem",
    "plain",
    "plain without tls",
    "scram-256",
    "scram-512",
    "token of a function",
    "token of a provider",
    "any name",
    "any certificate",
]


async def _names(settings: KafkaSettings) -> set[str]:
    async with KafkaClient(settings) as client:
        return set(await client.describe_topics(None))


@pytest.mark.parametrize("way", WAYS)
def test_both_clients_come_in(way: str, secure: SecureBroker, endpoint: str) -> None:
    secure.grant(*EVERYTHING, user="*")
    settings = KafkaSettings.parse(way_in(way, secure, endpoint))
    name = way.replace(" ", "-")
    asyncio.run(KafkaAdmin(settings).create_topic(name, partitions=2))  # librdkafka
    assert name in asyncio.run(_names(settings))  # aiokafka


# --- who is not let in


def changed(way: str, broker: SecureBroker, listener: str = "", **changes: str | None) -> Properties:
    properties = way_in(way, broker)
    if listener:
        properties["bootstrap.servers"] = broker.bootstrap if listener == "PLAINTEXT" else broker.address(listener)
    for name, text in changes.items():
        key = name.replace("_", ".")
        properties.pop(key, None)
        if text is not None:
            properties[key] = text
    return properties


@pytest.mark.parametrize(
    ("way", "listener", "changes", "message", "kind"),
    [
        ("scram-256", "", {"sasl_password": "wrong"}, rf"does not let us in \(sasl_ssl SCRAM-SHA-256 as user {USER}\).*user and password", KafkaError),
        ("plain", "", {"sasl_password": "wrong"}, "does not let us in.*Authentication failed.*user and password", KafkaError),
        ("scram-512", "", {"sasl_username": "bob"}, "does not let us in.*as user bob", KafkaError),
        ("token of a function", "", {"token_provider": "tests.support.token_server:refuse"}, "there is no token: the badge reader is broken", KafkaError),
        ("tls", "", {"ssl_ca_location": "STRANGER"}, "certificate that is not accepted: .*ssl.ca.location", KafkaError),
        ("tls", "EXPIRED", {}, "certificate that is not accepted: certificate has expired", KafkaError),
        ("tls", "OTHERNAME", {}, "certificate that is not accepted: .*127.0.0.1", KafkaError),
        ("client certificate", "", {"ssl_certificate_location": None, "ssl_key_location": None}, "ends the TLS handshake: .*CERTIFICATE_REQUIRED.*ssl.certificate.location", KafkaError),
        ("tls", "PLAINTEXT", {}, "perhaps it does not speak TLS", KafkaTemporaryError),
        ("plain without tls", "SASLTLS", {}, "perhaps it wants TLS", KafkaTemporaryError),
    ],
)  # fmt: skip
def test_who_is_not_let_in_is_told_why(
    way: str,
    listener: str,
    changes: dict[str, str | None],
    message: str,
    kind: type[ArchiverError],
    secure: SecureBroker,
) -> None:
    stranger = str(secure.certificates.stranger)
    changes = {key: stranger if text == "STRANGER" else text for key, text in changes.items()}
    settings = KafkaSettings.parse(changed(way, secure, listener, **changes))
    started_s = time.monotonic()
    with pytest.raises(kind, match=message) as caught:
        asyncio.run(_names(settings))
    assert PASSWORD not in str(caught.value)
    assert time.monotonic() - started_s < 10


def test_a_provider_that_does_not_know_us_is_named(secure: SecureBroker, endpoint: str) -> None:
    wrong = way_in("token of a provider", secure, endpoint) | {"sasl.oauthbearer.client.secret": "hunter2-hunter2"}
    with pytest.raises(KafkaError, match=rf"there is no token: {endpoint} answered 401") as caught:
        asyncio.run(_names(KafkaSettings.parse(wrong)))
    assert "hunter2" not in str(caught.value)


# --- rights


def all_but(rights: list[Right], missing: Right | None) -> list[Right]:
    return [right for right in rights if right != missing]


def settings_of(secure: SecureBroker) -> Properties:
    return way_in("scram-256", secure)
