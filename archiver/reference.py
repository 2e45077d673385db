"""Every key of the configuration, told from the model itself: what it takes, what it is without, what it means; and what holds now."""

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from archiver.config import (
    ArchiverConfig,
    Section,
    parse_duration_ms,
    parse_size_bytes,
    parse_start,
    section_of,
    spell_duration,
    spell_size,
)

MASK: Final = "********"
_SECRET = re.compile(r"password|secret|\.key\.pem$|oauthbearer\.extensions$")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One key as the reference shows it."""

    key: str
    kind: str
    default: str  # empty: it is required
    meaning: str


def keys(model: type[Section] = ArchiverConfig, parent: str = "") -> Iterator[KeyRow]:
    """Tell every key that has a value, in the order of the model."""
    for name, info in model.model_fields.items():
        dotted = f"{parent}{info.validation_alias or name}"
        section = section_of(info)
        if section is not None:
            yield from keys(section, f"{dotted}.")
            continue
        is_mapping = get_origin(info.annotation) is get_origin(Mapping[str, str])
        yield KeyRow(
            key=f"{dotted}.*" if is_mapping else dotted,
            kind=_kind(info),
            default="" if info.is_required() else spell(info, info.get_default()) or "none",
            meaning=info.description or "",
        )


def _parsers(info: FieldInfo) -> set[object]:
    return {getattr(item, "func", None) for item in info.metadata}


def _kind(info: FieldInfo) -> str:
    parsers = _parsers(info)
    if parse_size_bytes in parsers:
        return "size"
    if parse_duration_ms in parsers:
        return "duration"
    if parse_start in parsers:
        return "earliest, latest, or a time"
    return _kind_of(info.annotation)


def _kind_of(annotation: Any) -> str:  # noqa: ANN401 - a type is any object
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if origin in (Union, types.UnionType):
        return _kind_of(next(one for one in get_args(annotation) if one is not type(None)))
    if origin is tuple:
        return "list"
    if origin is not None and hasattr(annotation, "__metadata__"):
        return _kind_of(get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return ", ".join(annotation)
    names: dict[object, str] = {int: "number", str: "text", Path: "path", bool: "true or false"}
    return names.get(annotation, "text")


def spell(info: FieldInfo, value: object) -> str:
    """Write a value as it could stand in the file."""
    parsers = _parsers(info)
    if value is None:
        return ""
    if parse_size_bytes in parsers and isinstance(value, int):
        return spell_size(value)
    if parse_duration_ms in parsers and isinstance(value, int):
        return spell_duration(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]" if value else ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {text}" for name, text in value.items())
    return str(value)


def effective(config: Section, parent: str = "") -> Iterator[tuple[str, str]]:
    """Tell every key with the value that holds, secrets masked; without those that have none."""
    for name, info in type(config).model_fields.items():
        dotted = f"{parent}{info.validation_alias or name}"
        value = getattr(config, name)
        if isinstance(value, Section):
            yield from effective(value, f"{dotted}.")
        elif isinstance(value, Mapping):
            for key, text in value.items():
                yield f"{dotted}.{key}", MASK if _SECRET.search(key) else text
        elif value is not None:
            yield dotted, spell(info, value)


KAFKA_KEYS: Final[Sequence[tuple[str, str, str]]] = (
    ("bootstrap.servers", "", "host:port, several with commas between; required"),
    ("client.id", "archiver", "how brokers' logs and quotas name us"),
    ("client.rack", "none", "reads from followers in this rack, where brokers allow it"),
    ("socket.timeout.ms", "30000", "of one request; `request.timeout.ms` is the same"),
    ("metadata.max.age.ms", "300000", "brokers are looked for again after so long at the latest"),
    ("retry.backoff.ms", "100", "the first pause before another try"),
    ("connections.max.idle.ms", "540000", "0: never closed"),
    ("security.protocol", "plaintext", "plaintext, ssl, sasl_plaintext or sasl_ssl"),
    ("ssl.ca.location", "the system's", "file (or folder) with the certificates of who signed the brokers'"),
    ("ssl.ca.pem", "none", "the same as text"),
    ("ssl.certificate.location", "none", "file with our certificate, and its chain (mTLS)"),
    ("ssl.certificate.pem", "none", "the same as text"),
    ("ssl.key.location", "none", "file with our private key"),
    ("ssl.key.pem", "none", "the same as text; a secret"),
    ("ssl.key.password", "none", "of the private key; a secret"),
    ("ssl.endpoint.identification.algorithm", "https", "none: the name in a broker's certificate does not matter"),
    ("enable.ssl.certificate.verification", "true", "false: any certificate will do; for tests alone"),
    ("sasl.mechanism", "none", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or GSSAPI where both libraries have it"),
    ("sasl.username", "none", "of PLAIN and SCRAM"),
    ("sasl.password", "none", "of PLAIN and SCRAM; a secret"),
    ("sasl.kerberos.service.name", "kafka", "of GSSAPI; the ticket is the one that `kinit` got"),
    ("token_provider", "none", "of OAUTHBEARER: `module:function`, which returns a token, and when it expires (ms since 1970)"),
    ("sasl.oauthbearer.method", "oidc", "of OAUTHBEARER, without token_provider: an OpenID provider"),
    ("sasl.oauthbearer.client.id", "none", "at the provider"),
    ("sasl.oauthbearer.client.secret", "none", "at the provider; a secret"),
    ("sasl.oauthbearer.token.endpoint.url", "none", "of the provider"),
    ("sasl.oauthbearer.scope", "none", "asked of the provider"),
    ("sasl.oauthbearer.extensions", "none", "name=value, several with commas between, for the broker"),
    ("https.ca.location", "the system's", "file with the certificates of who signed the provider's"),
)  # fmt: skip


def reference_page() -> str:
    """docs/configuration.md, whole."""
    rows = [f"| `{row.key}` | {row.kind} | {_default(row)} | {row.meaning} |" for row in keys() if row.key != "kafka.*"]
    kafka = [
        f"| `kafka.{key}` | {'`' + default + '`' if default else 'required'} | {meaning} |"
        for key, default, meaning in KAFKA_KEYS
    ]
    return "\n".join([
        "# Configuration",
        "",
        "Every key of `archive.yaml`, and of a restore's `target.yaml`, which has the section `kafka` alone. Written by `make docs` from the program itself; `archiver config reference` prints it.",
        "",
        "- Dotted and nested spelling of a key are the same. A key that is not known is an error, with the line and a suggestion.",
        "- A size is like `64MiB` or `1.5GB`, a duration like `5min`, `45s` or `7d`, a time like `2026-11-20T14:00:00Z`.",
        "- `${NAME}` in a value is the environment variable NAME, `${file:PATH}` the content of a file without the line ends behind it; `$${` is the text `${`.",
        "- `archiver config show` prints what holds, with secrets masked.",
        "",
        "| key | takes | default | |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        "## kafka",
        "",
        "The names are librdkafka's. A key that one of the two Kafka clients cannot honour is refused. A secret is never shown.",
        "",
        "| key | default | |",
        "| --- | --- | --- |",
        *kafka,
        "",
    ])  # fmt: skip


def _default(row: KeyRow) -> str:
    return f"`{row.default}`" if row.default else "required"
