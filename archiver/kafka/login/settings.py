"""Settings from the `kafka:` section, for both clients. Names are librdkafka's; keys that either client lacks are refused."""

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from archiver.config.kafka_keys import KeyGroup, names_of
from archiver.errors import UsageError
from archiver.kafka.login.security import Security, SecurityProtocol, Where
from archiver.process.output.logs import warn_once
from archiver.process.values.endpoint import split_host
from archiver.process.values.loopback import is_loopback

if TYPE_CHECKING:
    from archiver.config.model import WithKafka

_NUMBERS = {
    "socket.timeout.ms": "request_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",  # the Java clients' name for the same thing
    "metadata.max.age.ms": "metadata_max_age_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
}
_TEXTS = {"client.id": "client_id", "client.rack": "client_rack"}
_KEYS = names_of(*KeyGroup)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Connection settings of a cluster, shared by all clients of the archiver."""

    bootstrap_servers: str
    client_id: str = "archiver"
    client_rack: str = ""
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    connections_max_idle_ms: int = 540_000  # below the brokers' 10 min; 0: never closed
    security: Security = dataclasses.field(default_factory=Security)

    @classmethod
    def of(cls, config: "WithKafka") -> "KafkaSettings":
        """Parse the properties of a configuration's cluster; see `parse`."""
        return cls.parse(config.kafka, config.place_of_kafka)

    @classmethod
    def parse(cls, properties: Mapping[str, object], where: Where = lambda key: f"kafka: {key}") -> "KafkaSettings":
        """Parse librdkafka properties. UsageError names an unsupported key, as `where` spells it.

        Warns once if others on the network can read or forge the traffic.
        """
        for key in properties:
            _refuse_unknown(key, where)
        fields: dict[str, int] = {}
        for key in _NUMBERS.keys() & properties.keys():
            field, number = _NUMBERS[key], _number(key, properties[key], where)
            if fields.setdefault(field, number) != number:
                raise UsageError(
                    f"{where('socket.timeout.ms')} and request.timeout.ms mean the same and differ; keep one"
                )
        texts = {_TEXTS[key]: str(properties[key]) for key in _TEXTS.keys() & properties.keys()}
        made = cls(
            bootstrap_servers=_addresses(properties, where),
            security=Security.parse(properties, where),
            **texts,  # type: ignore[arg-type]
            **fields,  # type: ignore[arg-type]
        )
        for exposure in made.security.exposures(where, is_near=all(map(is_loopback, made._hosts()))):
            warn_once(exposure)
        return made

    def _hosts(self) -> list[str]:
        return [found[0] for address in self.bootstrap_servers.split(",") if (found := split_host(address))]

    def for_tools(self) -> tuple[str, ...]:
        """Return options of Kafka's own tools, word by word, with a placeholder for the Java properties file of the login."""
        is_open = self.security.protocol is SecurityProtocol.PLAINTEXT
        log_in = () if is_open else ("--command-config", "client.properties")
        return ("--bootstrap-server", self.bootstrap_servers, *log_in)

    def for_aiokafka(self) -> dict[str, object]:
        """Return keyword arguments of AIOKafkaClient."""
        return {
            "bootstrap_servers": self.bootstrap_servers.split(","),
            "client_id": self.client_id,
            "request_timeout_ms": self.request_timeout_ms,
            "metadata_max_age_ms": self.metadata_max_age_ms,
            "retry_backoff_ms": self.retry_backoff_ms,
            "connections_max_idle_ms": self.connections_max_idle_ms or None,
            **self.security.for_aiokafka(),
        }

    def for_confluent(self) -> dict[str, Any]:
        """Return the properties of a confluent-kafka client that every kind of client knows."""
        properties: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            "socket.timeout.ms": str(self.request_timeout_ms),
            "metadata.max.age.ms": str(self.metadata_max_age_ms),
            "retry.backoff.ms": str(self.retry_backoff_ms),
            "connections.max.idle.ms": str(self.connections_max_idle_ms),
            **self.security.for_confluent(),
        }
        return properties | ({"client.rack": self.client_rack} if self.client_rack else {})


def _refuse_unknown(key: str, where: Where) -> None:
    if key in _KEYS:
        return
    if "=" in key:  # a Java property was pasted
        raise UsageError(f"{where(key)} has an = in it: a colon and a space stand between key and value in YAML")
    near = difflib.get_close_matches(key, _KEYS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(sorted(_KEYS))}"
    raise UsageError(f"{where(key)} is not one that both Kafka clients can honour; {hint}")


def _number(key: str, value: object, where: Where) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}", text):
        raise UsageError(f"{where(key)} must be a number of milliseconds")
    if int(text) == 0 and key != "connections.max.idle.ms":
        raise UsageError(f"{where(key)} must be above 0")
    return int(text)


def _addresses(properties: Mapping[str, object], where: Where) -> str:
    value = properties.get("bootstrap.servers")
    place = where("bootstrap.servers")
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{place} is missing; give host:port, several with commas between")
    addresses = [part.strip() for part in value.split(",")]
    for number, address in enumerate(addresses, 1):
        found = split_host(address)
        if found is None or found[1] == 0:
            which = f"address {number} of {len(addresses)} " if len(addresses) > 1 else ""
            raise UsageError(f"{place}: {which}is not host:port")
    return ",".join(addresses)
