"""Lists the keys of a `kafka:` section, with group, meaning and secrecy, for the loader and the reference."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from archiver.process.output.mask import MASK, without_query


class KeyGroup(Enum):
    """The part of a client's configuration that has a key."""

    CLIENT = auto()  # taken with every protocol
    TLS = auto()
    SASL = auto()
    PASSWORD = auto()
    KERBEROS = auto()
    TOKEN = auto()


@dataclass(frozen=True, slots=True)
class KafkaKey:
    """One key, under librdkafka's name."""

    name: str
    group: KeyGroup
    default: str  # empty: the key is required
    meaning: str
    is_secret: bool = False  # its value is in no log, no message and no `config show`
    alias: str = ""  # another name of the same key
    takes: str = "text"  # its type, for the reference

    def describe(self) -> str:
        """Return the meaning for the reference, with the other name, and whether the value is secret."""
        same = f"; `{self.alias}` is the same" if self.alias else ""
        return f"{self.meaning}{same}{'; a secret' if self.is_secret else ''}"


KAFKA_KEYS: Final = (
    KafkaKey("bootstrap.servers", KeyGroup.CLIENT, "", "addresses of brokers", takes="host:port, ..."),
    KafkaKey("client.id", KeyGroup.CLIENT, "archiver", "how brokers' logs and quotas name us"),
    KafkaKey("client.rack", KeyGroup.CLIENT, "none", "reads from followers in this rack, where brokers allow it"),
    KafkaKey("socket.timeout.ms", KeyGroup.CLIENT, "30000", "time for one request", alias="request.timeout.ms", takes="milliseconds"),
    KafkaKey("metadata.max.age.ms", KeyGroup.CLIENT, "300000", "maximal time between look-ups of brokers and leaders", takes="milliseconds"),
    KafkaKey("retry.backoff.ms", KeyGroup.CLIENT, "100", "the first pause before another try", takes="milliseconds"),
    KafkaKey("connections.max.idle.ms", KeyGroup.CLIENT, "540000", "an idle connection is closed after this time; 0: never", takes="milliseconds"),
    KafkaKey("security.protocol", KeyGroup.CLIENT, "plaintext", "how brokers are reached", takes="plaintext, ssl, sasl_plaintext, sasl_ssl"),
    KafkaKey("ssl.ca.location", KeyGroup.TLS, "the system's", "file (or folder) with the CA certificates of the brokers", takes="path"),
    KafkaKey("ssl.ca.pem", KeyGroup.TLS, "none", "the same as text", takes="PEM text"),
    KafkaKey("ssl.certificate.location", KeyGroup.TLS, "none", "file with our certificate, and its chain (mTLS)", takes="path"),
    KafkaKey("ssl.certificate.pem", KeyGroup.TLS, "none", "the same as text", takes="PEM text"),
    KafkaKey("ssl.key.location", KeyGroup.TLS, "none", "file with our private key", takes="path"),
    KafkaKey("ssl.key.pem", KeyGroup.TLS, "none", "the same as text", is_secret=True, takes="PEM text"),
    KafkaKey("ssl.key.password", KeyGroup.TLS, "none", "password of the private key", is_secret=True),
    KafkaKey("ssl.endpoint.identification.algorithm", KeyGroup.TLS, "https", "none: the name in a broker's certificate is not checked", takes="https, none"),
    KafkaKey("enable.ssl.certificate.verification", KeyGroup.TLS, "true", "false: any certificate is accepted; for tests alone", takes="true, false"),
    KafkaKey("sasl.mechanism", KeyGroup.SASL, "none", "GSSAPI only where both libraries have it", alias="sasl.mechanisms", takes="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI, OAUTHBEARER"),
    KafkaKey("sasl.username", KeyGroup.PASSWORD, "none", "user of PLAIN and SCRAM"),
    KafkaKey("sasl.password", KeyGroup.PASSWORD, "none", "password of PLAIN and SCRAM", is_secret=True),
    KafkaKey("sasl.kerberos.service.name", KeyGroup.KERBEROS, "kafka", "service name for GSSAPI; the ticket is the one that `kinit` got"),
    KafkaKey("token_provider", KeyGroup.TOKEN, "none", "for OAUTHBEARER: returns a token, and when it expires (ms since 1970)", takes="module:function"),
    KafkaKey("sasl.oauthbearer.method", KeyGroup.TOKEN, "oidc", "for OAUTHBEARER without token_provider: tokens of an OpenID provider", takes="oidc"),
    KafkaKey("sasl.oauthbearer.client.id", KeyGroup.TOKEN, "none", "client id at the provider"),
    KafkaKey("sasl.oauthbearer.client.secret", KeyGroup.TOKEN, "none", "client secret at the provider", is_secret=True),
    KafkaKey("sasl.oauthbearer.token.endpoint.url", KeyGroup.TOKEN, "none", "token endpoint of the provider; http only on this machine; the part behind a ? is not shown", takes="https://host/path"),
    KafkaKey("sasl.oauthbearer.scope", KeyGroup.TOKEN, "none", "scope for the provider"),
    KafkaKey("sasl.oauthbearer.extensions", KeyGroup.TOKEN, "none", "extensions for the broker", is_secret=True, takes="name=value, ..."),
    KafkaKey("token_proxy", KeyGroup.TOKEN, "none", "HTTP proxy to the provider, whose endpoint must be https; the environment's proxies are not used", is_secret=True, takes="http://host:port"),
    KafkaKey("https.ca.location", KeyGroup.TOKEN, "the system's", "file with the CA certificates of the provider", takes="path"),
)  # fmt: skip
SECRET_KEYS: Final = frozenset(key.name for key in KAFKA_KEYS if key.is_secret)

PROVIDER_URL: Final = "sasl.oauthbearer.token.endpoint.url"


def shown(name: str, value: str) -> str:
    """Return the displayable value of a key: masked, or without a query."""
    if name in SECRET_KEYS:
        return MASK
    return without_query(value) if name == PROVIDER_URL else value


def names_of(*groups: KeyGroup) -> tuple[str, ...]:
    """Return all names of the keys of some groups."""
    return tuple(name for key in KAFKA_KEYS if key.group in groups for name in (key.name, key.alias) if name)
