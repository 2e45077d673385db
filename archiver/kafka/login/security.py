"""Parses authentication and TLS settings, by librdkafka's keys, for both Kafka clients."""

import importlib.util
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

from archiver.config.kafka_keys import PROVIDER_URL, KeyGroup, names_of
from archiver.errors import KafkaError, KafkaTemporaryError, UsageError
from archiver.kafka.login.tokens import FunctionSource, OidcSource, Tokens, TokenSource
from archiver.process.values.endpoint import port_of, split_url
from archiver.process.values.loopback import leaves_in_clear

log = logging.getLogger(__name__)

Where = Callable[[str], str]  # a key -> how a message names it


class SecurityProtocol(StrEnum):
    """librdkafka's values of security.protocol."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def has_tls(self) -> bool:
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_sasl(self) -> bool:
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
_PLURAL: Final = "sasl.mechanisms"  # librdkafka's other name of the same key
_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"
_VERIFICATION: Final = "enable.ssl.certificate.verification"
_PROVIDER: Final = "token_provider"
_PROXY: Final = "token_proxy"
_PROVIDER_CA: Final = "https.ca.location"
_OIDC: Final = "sasl.oauthbearer."
_TLS_KEYS: Final = names_of(KeyGroup.TLS)
_TOKEN_KEYS: Final = names_of(KeyGroup.TOKEN)
_PASSWORD_KEYS: Final = names_of(KeyGroup.PASSWORD)
_KERBEROS_SERVICE: Final = "sasl.kerberos.service.name"
_CLIENT_ID: Final = f"{_OIDC}client.id"
_CLIENT_SECRET: Final = f"{_OIDC}client.secret"
_OIDC_NEEDED: Final = (_CLIENT_ID, _CLIENT_SECRET, PROVIDER_URL)
_BY_MECHANISM: Final[Mapping[str, KeyGroup]] = {
    "PLAIN": KeyGroup.PASSWORD,
    "SCRAM-SHA-256": KeyGroup.PASSWORD,
    "SCRAM-SHA-512": KeyGroup.PASSWORD,
    "GSSAPI": KeyGroup.KERBEROS,
    "OAUTHBEARER": KeyGroup.TOKEN,
}
_SENT: Final[Mapping[str, str]] = {
    "PLAIN": "password",
    "OAUTHBEARER": "token",
}  # secrets that a mechanism sends in clear text
_KEYS: Final = names_of(*(group for group in KeyGroup if group is not KeyGroup.CLIENT))  # beside PROTOCOL
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {_IDENTIFICATION: ("https", "none"), _VERIFICATION: ("true", "false")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """A protocol and its properties; plain and picklable, so that a task of Spark can have them."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # checked, by librdkafka's names

    @classmethod
    def parse(cls, properties: Mapping[str, object], where: Where) -> "Security":
        """Take the security keys out of a `kafka:` section. Raises UsageError, which names unsupported keys."""
        protocol = _protocol(properties, where)
        given = {key: str(value) for key, value in properties.items() if key in _KEYS and key != _PLURAL}
        if _PLURAL in properties:
            plural = str(properties[_PLURAL])
            if given.setdefault(MECHANISM, plural).upper() != plural.upper():
                raise UsageError(f"{where(MECHANISM)} and {_PLURAL} mean the same and differ; keep one")
        for key in given:
            if key in _TLS_KEYS and not protocol.has_tls:
                raise UsageError(f"{where(key)}: goes with {PROTOCOL} ssl or sasl_ssl, not with {protocol}")
            if key not in _TLS_KEYS and not protocol.has_sasl:
                raise UsageError(f"{where(key)}: goes with {PROTOCOL} sasl_ssl or sasl_plaintext, not with {protocol}")
        mechanism = _mechanism(given, where) if protocol.has_sasl else ""
        made = cls(protocol=protocol, mechanism=mechanism, properties=given)
        made._check(where)
        return made

    def describe(self) -> str:
        """Return protocol and user of the connection, for messages."""
        name = self.properties.get("sasl.username")
        return " ".join(
            [self.protocol, *([self.mechanism] if self.mechanism else []), *([f"as user {name}"] if name else [])]
        )

    def exposures(self, where: Where, *, is_near: bool) -> Iterator[str]:
        """Return warnings about data that others on the network can read or forge. `is_near`: the brokers are on this machine.

        SCRAM and Kerberos never send the password.
        """
        sent = _SENT.get(self.mechanism)
        if self.protocol is SecurityProtocol.SASL_PLAINTEXT and sent and not is_near:
            yield f"{where(PROTOCOL)}: with {self.protocol} and {self.mechanism} the {sent} goes in clear to the brokers; take sasl_ssl"
        instead = f"{sent} and records" if self.protocol.has_sasl and sent else "records"
        given = self.properties
        if given.get(_VERIFICATION) == "false":
            yield f"{where(_VERIFICATION)}: anyone on the way can pose as a broker, and gets {instead}; take ssl.ca.location instead"
        elif given.get(_IDENTIFICATION) == "none":
            yield (
                f"{where(_IDENTIFICATION)}: anyone with a certificate of this authority can pose as a broker, and gets {instead};"
                " give the brokers certificates with their names"
            )

    def for_confluent(self) -> dict[str, object]:
        """Return properties of a confluent-kafka client. Raises KafkaError or KafkaTemporaryError without a token."""
        ours = (*_TOKEN_KEYS, MECHANISM)
        found: dict[str, object] = {key: text for key, text in self.properties.items() if key not in ours}
        found[PROTOCOL] = self.protocol.value
        if self.mechanism:
            found[MECHANISM] = self.mechanism
        if self.mechanism == "OAUTHBEARER":
            tokens = self._tokens()
            tokens.current()  # raises with the reason; a client that is made without a token does not say why
            found["oauth_cb"] = _ShownToLibrdkafka(tokens)
        return found

    def for_aiokafka(self) -> dict[str, object]:
        """Return keyword arguments of AIOKafkaClient."""
        found: dict[str, object] = {"security_protocol": self.protocol.value.upper()}
        if self.protocol.has_tls:
            found["ssl_context"] = self._tls_context(lambda key: f"kafka: {key}")
        if self.protocol.has_sasl:
            found["sasl_mechanism"] = self.mechanism
        match self.mechanism:
            case "GSSAPI":
                found["sasl_kerberos_service_name"] = self.properties.get(_KERBEROS_SERVICE, "kafka")
            case "OAUTHBEARER":
                found["sasl_oauth_token_provider"] = _ShownToAiokafka(self._tokens())
            case "":
                pass
            case _:
                found["sasl_plain_username"] = self.properties["sasl.username"]
                found["sasl_plain_password"] = self.properties["sasl.password"]
        return found

    # --- inside

    def _check(self, where: Where) -> None:
        for key, allowed in _CHOICES.items():
            if key in self.properties and self.properties[key] not in allowed:
                raise UsageError(f"{where(key)}: is not one of {', '.join(allowed)}")
        if self.protocol.has_tls:
            self._tls_context(where)
        if self.mechanism == "OAUTHBEARER":
            self._check_tokens(where)
        if self.mechanism == "GSSAPI":
            _check_kerberos(where)

    def _tls_context(self, where: Where) -> ssl.SSLContext:
        given = self.properties
        with _blame(where, "ssl.ca.location", "ssl.ca.pem", given=given):
            place = given.get("ssl.ca.location", "")
            is_directory = bool(place) and Path(place).is_dir()
            context = ssl.create_default_context(
                cafile=place if place and not is_directory else None,
                capath=place if is_directory else None,
                cadata=given.get("ssl.ca.pem"),
            )
        _load_own_certificate(context, given, where)
        if given.get(_IDENTIFICATION, "https") == "none":
            context.check_hostname = False
        if given.get(_VERIFICATION, "true") == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _check_tokens(self, where: Where) -> None:
        given = self.properties
        if _PROVIDER in given:
            extra = sorted(key for key in given if key.startswith((_OIDC, _PROXY)) and key != f"{_OIDC}extensions")
            if extra:
                raise UsageError(f"{where(extra[0])}: goes with an OpenID provider, not with {_PROVIDER}")
            try:
                FunctionSource(given[_PROVIDER]).find()
            except UsageError as error:
                raise UsageError(f"{where(_PROVIDER)}: {error}") from error
            return
        if given.get(f"{_OIDC}method", "oidc") != "oidc":
            raise UsageError(f"{where(f'{_OIDC}method')}: must be oidc; for other tokens give {_PROVIDER}")
        for key in _OIDC_NEEDED:
            if not given.get(key):
                raise UsageError(f"{where(key)}: is missing; OAUTHBEARER needs it, or a {_PROVIDER}: module:function")
        _check_endpoint(given[PROVIDER_URL], given.get(_PROXY), where)
        with _blame(where, _PROVIDER_CA, given=given):
            ssl.create_default_context(cafile=given.get(_PROVIDER_CA) or None)

    def _tokens(self) -> Tokens:
        given = self.properties
        pairs = (pair.partition("=") for pair in given.get(f"{_OIDC}extensions", "").split(",") if pair)
        extensions = {name.strip(): text.strip() for name, _, text in pairs}
        return Tokens(self._source(), extensions)

    def _source(self) -> TokenSource:
        given = self.properties
        if _PROVIDER in given:
            return FunctionSource(given[_PROVIDER])
        return OidcSource(
            url=given[PROVIDER_URL],
            client_id=given[_CLIENT_ID],
            client_secret=given[_CLIENT_SECRET],
            scope=given.get(f"{_OIDC}scope", ""),
            ca_location=given.get(_PROVIDER_CA, ""),
            proxy=given.get(_PROXY, ""),
        )


def _check_endpoint(url: str, proxy: str | None, where: Where) -> None:
    if split_url(url) is None:
        raise UsageError(
            f"{where(PROVIDER_URL)}: is not like https://host:port/path, without a user or a #, with a port from 1 to 65535"
        )
    if leaves_in_clear(url):
        raise UsageError(
            f"{where(PROVIDER_URL)}: must be https: client secret and token would go in clear; http is for this machine alone"
        )
    if proxy is not None and not _is_proxy(proxy):
        raise UsageError(f"{where(_PROXY)}: is not like http://host:port")
    if proxy is not None and not url.startswith("https:"):
        raise UsageError(
            f"{where(_PROXY)}: goes with an https token endpoint; of another it could read the client secret"
        )


def _is_proxy(text: str) -> bool:
    """Return whether a text is the address of a proxy; it may have a user and a password."""
    found = re.fullmatch(r"http://(?:[^\s/?#]+@)?([^\s/?#@]+)/?", text)
    return found is not None and bool(port_of(found[1]))


def _protocol(properties: Mapping[str, object], where: Where) -> SecurityProtocol:
    text = str(properties.get(PROTOCOL, SecurityProtocol.PLAINTEXT.value))
    try:
        return SecurityProtocol(text.lower())
    except ValueError:
        raise UsageError(f"{where(PROTOCOL)}: is not one of {', '.join(SecurityProtocol)}") from None


def _mechanism(given: Mapping[str, str], where: Where) -> str:
    mechanism = given.get(MECHANISM, "").upper()
    if mechanism not in _BY_MECHANISM:
        what = "is not one" if mechanism else "is missing; give one"
        raise UsageError(f"{where(MECHANISM)}: {what} of {', '.join(_BY_MECHANISM)}")
    group = _BY_MECHANISM[mechanism]
    for key in given:
        if key not in (*names_of(KeyGroup.TLS, group), MECHANISM):
            raise UsageError(f"{where(key)}: does not go with {MECHANISM} {mechanism}")
    for key in _PASSWORD_KEYS if group is KeyGroup.PASSWORD else ():
        if not given.get(key):
            raise UsageError(f"{where(key)}: is missing; {MECHANISM} {mechanism} needs it")
    return mechanism


def _check_kerberos(where: Where) -> None:
    """Refuse Kerberos if a library was built without it, as is common, instead of failing at the first connection."""
    place = f"{where(MECHANISM)}: GSSAPI"
    if importlib.util.find_spec("gssapi") is None:
        raise UsageError(f"{place} needs the Python package gssapi: pip install gssapi")
    from confluent_kafka import KafkaException  # noqa: PLC0415 - 40 ms that others need not wait for
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    try:
        AdminClient({"bootstrap.servers": "", PROTOCOL: "sasl_plaintext", MECHANISM: "GSSAPI", "log_level": 0})
    except KafkaException as error:
        raise UsageError(
            f"{place} is not in this build of librdkafka: pip install --no-binary confluent-kafka confluent-kafka, with a"
            f" librdkafka that has libsasl2 ({error.args[0].str()})"
        ) from error


def _load_own_certificate(context: ssl.SSLContext, given: Mapping[str, str], where: Where) -> None:
    names = ("ssl.certificate.location", "ssl.certificate.pem"), ("ssl.key.location", "ssl.key.pem")
    certificate, key = (next((name for name in pair if name in given), None) for pair in names)
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        there, missing = (certificate, names[1]) if certificate else (key, names[0])
        raise UsageError(f"{where(str(there))}: goes with {' or '.join(missing)}, which is missing")
    with (
        _blame(where, certificate, key, given=given),
        _as_file(certificate, given) as chain,
        _as_file(key, given) as private,
    ):
        # With a password given, OpenSSL does not ask for one at the terminal.
        context.load_cert_chain(chain, private, lambda: given.get("ssl.key.password", ""))


@contextmanager
def _as_file(key: str, given: Mapping[str, str]) -> Iterator[str]:
    """Yield a text as a file for a moment, because OpenSSL takes files alone: in memory if the system has memfd."""
    if not key.endswith(".pem"):
        yield given[key]
    elif hasattr(os, "memfd_create"):  # if the process is killed here, no key stays on a disk
        with os.fdopen(os.memfd_create("pem"), "w") as file:
            file.write(given[key])
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mode 0600
            file.write(given[key])
            file.flush()
            yield file.name


@contextmanager
def _blame(where: Where, *keys: str, given: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        there = [key for key in keys if key in given]
        missing = [key for key in there if key.endswith(".location") and not os.access(given[key], os.R_OK)]
        key = (missing or there or [PROTOCOL])[0]
        if key.endswith(".location") and "-----BEGIN" in given[key]:  # it may be a private key: do not repeat the text
            raise UsageError(
                f"{where(key)}: is the text of a PEM file, not its path; give it as {key.removesuffix('location')}pem"
            ) from None
        if missing:
            reason = "cannot be read" if Path(given[key]).exists() else "there is no such file"
        else:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{where(key)}: {reason}") from error


class _ShownToLibrdkafka:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._has_warned = False

    def __call__(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        try:
            token = self._tokens.current()
        except (KafkaError, KafkaTemporaryError) as error:
            # librdkafka does not say why a callback failed: log the reason. It calls again every ten seconds.
            if not self._has_warned:
                log.warning("%s", error)
            self._has_warned = True
            raise
        self._has_warned = False
        return token.text, token.expires_at_s, "", self._tokens.extensions


class _ShownToAiokafka(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def token(self) -> str:
        # aiokafka expects its own errors here.
        try:
            return (await self._tokens.current_soon()).text
        except KafkaTemporaryError as error:
            raise KafkaConnectionError(str(error)) from error
        except KafkaError as error:
            raise SaslAuthenticationFailed(str(error)) from error

    def extensions(self) -> dict[str, str]:
        return self._tokens.extensions
