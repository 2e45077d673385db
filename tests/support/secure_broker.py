"""A broker that also listens with TLS, with client certificates, and with passwords; and a user with exactly the rights a test gives."""

import datetime as dt
import time
from dataclasses import dataclass
from pathlib import Path

import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from tests.support.kafka_broker import KafkaBroker, free_ports

USER = "alice"
PASSWORD = "wonder land; =,"  # what a JAAS line, a URL and a YAML file each would like to be written otherwise
LISTENERS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "OTHERNAME": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MODULES = {
    "PLAIN": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    # Takes unsigned tokens: what is tested is how we get one and show it.
    "OAUTHBEARER": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";'
    ),
}

Right = tuple[ResourceType, str, AclOperation]


@dataclass(frozen=True, slots=True)
class Certificates:
    """A private authority, and what it signed, as PEM files."""

    folder: Path
    authority: trustme.CA

    @classmethod
    def make(cls, folder: Path) -> "Certificates":
        folder.mkdir(parents=True, exist_ok=True)
        made = cls(folder, trustme.CA())
        made.authority.cert_pem.write_to_path(str(made.ca))
        trustme.CA().cert_pem.write_to_path(str(folder / "stranger.pem"))
        past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        made.issue("broker", trustme_names=("127.0.0.1", "localhost"))
        made.issue("client", trustme_names=("alice@example.org",))
        made.issue("expired", trustme_names=("127.0.0.1",), until=past)
        made.issue("othername", trustme_names=("elsewhere.example.org",))
        return made

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def stranger(self) -> Path:
        """Of an authority that signed nothing here."""
        return self.folder / "stranger.pem"

    def chain(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def locked_key(self, name: str, password: str) -> Path:
        """The same key, of which only who knows the password can make use."""
        key = serialization.load_pem_private_key(self.key(name).read_bytes(), None)
        locked = serialization.BestAvailableEncryption(password.encode())
        kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        path = self.folder / f"{name}.locked"
        path.write_bytes(key.private_bytes(*kinds, locked))
        return path

    def issue(self, name: str, *, trustme_names: tuple[str, ...], until: dt.datetime | None = None) -> trustme.LeafCert:
        leaf = self.authority.issue_cert(*trustme_names, common_name=name, not_after=until)
        self.chain(name).write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        # As PKCS #8: Kafka takes no other spelling of a key.
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        self.key(name).write_bytes(key.private_bytes(*kinds))
        (self.folder / f"{name}.both").write_bytes(self.key(name).read_bytes() + self.chain(name).read_bytes())
        return leaf


class SecureBroker(KafkaBroker):
    """Who comes in plaintext may do everything; everybody else what the ACLs say."""

    def __init__(self, jars: Path, data_dir: Path, certificates: Certificates, **properties: str) -> None:
        super().__init__(jars, data_dir, properties=properties)
        self.certificates = certificates
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        plain = f"PLAINTEXT://{self.bootstrap}"
        others = [f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()]
        kinds = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{name}:{kind}" for name, kind in LISTENERS.items())]
        self._properties |= {
            "listeners": ",".join([plain, f"CONTROLLER://{self.controller}", *others]),
            "advertised.listeners": ",".join([plain, *others]),
            "listener.security.protocol.map": ",".join(kinds),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.folder / "broker.both"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.ca),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        for name in ("expired", "othername"):
            self._properties |= {
                f"listener.name.{name}.ssl.keystore.type": "PEM",
                f"listener.name.{name}.ssl.keystore.location": str(certificates.folder / f"{name}.both"),
            }
        for listener in ("sasl", "sasltls"):
            for mechanism, module in _MODULES.items():
                self._properties[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = module

    def start(self, timeout: float = 60.0) -> None:
        super().start(timeout)
        admin = self._admin()  # it must live until it has answered
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # one a request
            given: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode())
            ]
            for done in admin.alter_user_scram_credentials(given).values():
                done.result(30)

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def grant(self, *rights: Right, user: str = USER) -> None:
        """Let a user do this, and nothing that was granted before."""
        admin = self._admin()
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type] # any; its stubs know of none
            ResourcePatternType.ANY,
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for done in admin.delete_acls([everything]).values():
            done.result(30)
        bindings = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.PREFIXED if name.endswith("-") else ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for kind, name, operation in rights
        ]
        for done in (admin.create_acls(bindings) if bindings else {}).values():
            done.result(30)
        # The controller agrees first, and what the broker goes by comes a little later.
        deadline_s = time.monotonic() + 30
        while set(admin.describe_acls(everything).result(30)) != set(bindings):
            assert time.monotonic() < deadline_s, "the broker does not learn of its ACLs"
            time.sleep(0.01)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
