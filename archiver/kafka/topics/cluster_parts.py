"""Reads ACLs, quotas, SCRAM users and broker configs of a cluster as rows of text, and adds rows. Notes and `archiver cluster` use it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Any, Final

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import broker_error
from archiver.kafka.brokers.wire import Call
from archiver.kafka.topics import cluster_calls as calls
from archiver.kafka.topics.configs import BROKER, DescribeConfigsCall

Row = tuple[str | None, ...]

SENSITIVE: Final = "sensitive"
_SOURCES: Final = {2: "this broker", 3: "all brokers", 4: "its file"}  # of a broker's config
_ALL_BROKERS: Final = 3
_ANY: Final = 1  # the code for any operation, permission, type and pattern
_ACLS_AT_ONCE: Final = 1_000  # a KRaft controller takes 10,000
# Codes as Kafka's tools spell them; unknown codes are spelled as numbers.
_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_OPERATIONS: Final = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
_TYPES: Final = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_MECHANISMS: Final = ("UNKNOWN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Part(StrEnum):
    """The parts of a cluster's metadata, each a table."""

    ACLS = "acls"
    QUOTAS = "quotas"
    USERS = "users"
    CONFIGS = "broker-configs"
    TOPICS = "topic-configs"  # noted with each topic, and set by restores

    @property
    def columns(self) -> Sequence[str]:
        return _COLUMNS[self]

    def identity(self, row: Row) -> Row:
        """Return the cells that identify a row; the others are its values."""
        return row if self is Part.ACLS else row[:2]


NOTED: Final = (Part.ACLS, Part.QUOTAS, Part.USERS, Part.CONFIGS)
_COLUMNS: Final = {
    Part.ACLS: ("permission", "principal", "host", "operation", "type", "name", "pattern"),
    Part.QUOTAS: ("entity", "quota", "value"),
    Part.USERS: ("user", "mechanism", "iterations"),
    Part.CONFIGS: ("broker", "config", "value", "source", "kind"),
    Part.TOPICS: ("topic", "config", "value"),
}


def check_row(part: Part, row: Row) -> None:
    """Raise ValueError for an invalid row."""
    if len(row) != len(part.columns) or None in (row[1:2] if part is Part.CONFIGS else row):
        raise ValueError(f"{row} is no row of {part}")
    try:
        if part is Part.ACLS:
            _acl(row)
        elif part is Part.QUOTAS:
            _entity(str(row[0]))
            float(str(row[2]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{row} is no row of {part}: {error}") from None


def _sort_key(row: Row) -> list[tuple[bool, str]]:
    """Return the key by which rows are sorted: None comes first."""
    return [(cell is not None, cell or "") for cell in row]


def _spell(names: Sequence[str], code: int) -> str:
    return names[code] if 0 <= code < len(names) else str(code)


def _code(names: Sequence[str], text: str | None) -> int:
    code = names.index(text) if text in names else int(str(text))
    if not 0 <= code <= 127:
        raise ValueError(f"{text} is no code")
    return code


def _acl(row: Row) -> tuple[Any, ...]:
    """Return an ACL as fields of a request."""
    permission, principal, host, operation, kind, name, pattern = row
    codes = _code(_OPERATIONS, operation), _code(_PERMISSIONS, permission)
    return _code(_TYPES, kind), name, _code(_PATTERNS, pattern), principal, host, *codes


def _entity(text: str) -> Sequence[tuple[str, str | None]]:
    """Return the entity of a quota. A null name means the default entity; it differs from the empty name."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(name, str | None) for name in found.values()):
        raise ValueError(f"{text} is no entity of a quota")
    return list(found.items())


# --- reading


async def read_part(client: KafkaClient, part: Part) -> Sequence[Row]:
    """Return the sorted rows of one of NOTED. Raises KafkaError if it cannot be read, KafkaTemporaryError."""
    read = _READERS[part]
    return sorted(await client.persist(lambda: read(client)), key=_sort_key)


async def _ask(client: KafkaClient, call: Call[tuple[Any, ...]], what: str, right: str) -> Any:  # noqa: ANN401 - rows
    code, said, found = await client.send_any(call)
    if code:
        raise broker_error(code, f"{what} could not be read", said, right=f"{right} on the cluster")
    return found


async def _acls(client: KafkaClient) -> Sequence[Row]:
    call = calls.DescribeAclsCall(_ANY, None, _ANY, None, None, _ANY, _ANY)
    return [
        (
            *(_spell(_PERMISSIONS, permission), principal, host, _spell(_OPERATIONS, operation)),
            *(_spell(_TYPES, kind), name, _spell(_PATTERNS, pattern)),
        )
        for kind, name, pattern, acls in await _ask(client, call, "ACLs", "Describe")
        for principal, host, operation, permission in acls
    ]


async def _quotas(client: KafkaClient) -> Sequence[Row]:
    found = await _ask(client, calls.DescribeClientQuotasCall((), False), "quotas", "DescribeConfigs")
    return [
        (json.dumps(dict(entity), sort_keys=True, ensure_ascii=False), quota, repr(value))
        for entity, quotas in found
        for quota, value in quotas
    ]


async def _users(client: KafkaClient) -> Sequence[Row]:
    # Not null, which also means all users: brokers (4.1) do not answer it if the right is missing.
    found = await _ask(client, calls.DescribeUserScramCredentialsCall(()), "SCRAM users", "Describe")
    return [
        (user, _spell(_MECHANISMS, mechanism), str(iterations))
        for user, _, _, credentials in found
        for mechanism, iterations in credentials
    ]


async def _broker_configs(client: KafkaClient) -> Sequence[Row]:
    """Return configs of all brokers together (None), and of each broker."""

    async def of(node: int) -> Sequence[Row]:
        return await _configs_of(str(node), lambda call: client.send(node, call))

    found = [await _configs_of("", client.send_any), *await asyncio.gather(*map(of, await client.brokers()))]
    return [row for rows in found for row in rows]


async def _configs_of(name: str, send: Callable[[DescribeConfigsCall], Awaitable[Sequence[Any]]]) -> Sequence[Row]:
    answers = await send(DescribeConfigsCall([name], kind=BROKER))
    for error_code, said in ((one.error_code, one.error_message) for one in answers if one.error_code):
        what, right = "configs of brokers could not be read", "DescribeConfigs on the cluster"
        raise broker_error(error_code, what, said, right=right)
    kinds = {(True, False): SENSITIVE, (True, True): SENSITIVE, (False, True): "read-only", (False, False): ""}
    return [
        (
            *(name or None, row.name, None if row.is_sensitive else row.value, _SOURCES[row.source]),
            kinds[row.is_sensitive, row.is_read_only],
        )
        for answer in answers
        for row in answer.rows
        if row.source in _SOURCES and (row.source == _ALL_BROKERS) is not bool(name)
    ]


_READERS: Final = {Part.ACLS: _acls, Part.QUOTAS: _quotas, Part.USERS: _users, Part.CONFIGS: _broker_configs}


# --- adding


async def add_rows(client: KafkaClient, rows: Mapping[Part, Sequence[Row]]) -> None:
    """Add configs, quotas, ACLs that deny, and ACLs that allow. Stops at the first refusal; a second call adds the rest."""
    for part, call in _changes(rows):
        await client.persist(partial(_change, client, part, call))


def _changes(rows: Mapping[Part, Sequence[Row]]) -> Iterator[tuple[Part, Call[tuple[Any, ...]]]]:
    configs = [(name, 0, value) for _, name, value, *_ in rows.get(Part.CONFIGS, ())]
    if configs:
        yield Part.CONFIGS, calls.IncrementalAlterConfigsCall([(BROKER, "", configs)], False)
    quotas = [
        (_entity(str(entity)), [(quota, float(str(value)), False) for _, quota, value in some])
        for entity, some in groupby(rows.get(Part.QUOTAS, ()), lambda row: row[0])
    ]
    if quotas:
        yield Part.QUOTAS, calls.AlterClientQuotasCall(quotas, False)
    for denies in (True, False):
        some = [_acl(row) for row in rows.get(Part.ACLS, ()) if (row[0] == "DENY") is denies]
        for at in range(0, len(some), _ACLS_AT_ONCE):
            yield Part.ACLS, calls.CreateAclsCall(some[at : at + _ACLS_AT_ONCE])


async def _change(client: KafkaClient, part: Part, call: Call[tuple[Any, ...]]) -> None:
    right = f"{'Alter' if part is Part.ACLS else 'AlterConfigs'} on the cluster"
    for code, said, *_ in (await client.send_any(call))[0]:
        if code:
            raise broker_error(code, f"{part}: could not be added", said, right=right)
