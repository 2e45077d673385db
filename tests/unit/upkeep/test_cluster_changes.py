"""Rows of a cluster's metadata: how they are noted, compared and added, without a broker."""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

import archiver.upkeep.cluster_changes as changes
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.cluster_metadata import ClusterPart, NotedPart, note_part, read_noted_parts, survey_part
from archiver.errors import KafkaError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import Code
from archiver.kafka.brokers.wire import AnswerReader, Call
from archiver.kafka.topics.cluster_calls import DescribeClientQuotasCall
from archiver.kafka.topics.cluster_parts import NOTED, Part, Row, add_rows
from archiver.upkeep.cluster_changes import ClusterDiff, RowState
from tests.support.memory_store import MemoryStore

DENY = ("DENY", "User:a", "*", "READ", "TOPIC", "t", "LITERAL")
ALLOW = ("ALLOW", "User:*", "*", "READ", "TOPIC", "t", "LITERAL")
DEFAULT_USER, NO_NAME = '{"user": null}', '{"user": ""}'


class Brokers:
    """A client of brokers with these answers, by the name of the call; it keeps what it sent."""

    def __init__(self, **answers: object) -> None:
        self._answers = answers
        self.sent: list[tuple[str, bytes]] = []

    async def send_any(self, call: Call[Any]) -> Any:  # noqa: ANN401
        prepared = call.prepare({call.api_key: (0, 9)})
        self.sent.append((call.name, b"".join(prepared.pieces(b""))))
        return self._answers.get(call.name, ([(0, "")],))

    async def persist(self, once: Any) -> Any:  # noqa: ANN401
        return await once()


def archive() -> Archive:
    return Archive(MemoryStore(), Layout())


def compare(monkeypatch: pytest.MonkeyPatch, source: ClusterPart, target: ClusterPart) -> ClusterDiff:
    async def survey(*_: object) -> ClusterPart:
        return target

    monkeypatch.setattr(changes, "survey_part", survey)
    return asyncio.run(changes._compare(cast("KafkaClient", None), {source.part: NotedPart(source, 0)}))


def acls(*rows: Row) -> ClusterPart:
    return ClusterPart(part=Part.ACLS, rows=rows)


UNREAD = ClusterPart(part=Part.ACLS, unread="denied")


def test_what_could_not_be_read_is_never_taken_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    diff = compare(monkeypatch, UNREAD, acls(DENY))  # else the target's would be called surplus
    assert (diff.changes, diff.unknown) == ([], ["acls: unknown in the archive: denied"])
    diff = compare(monkeypatch, acls(DENY), UNREAD)  # else it would be added
    assert (diff.changes, diff.unknown) == ([], ["acls: unknown on the target: denied"])
    assert read_noted_parts(archive(), NOTED)[Part.ACLS].found.unread == "no backup has noted this part"


def test_refusals_are_noted_as_such_and_brokers_without_an_authorizer_have_none() -> None:
    denied = Brokers(DescribeAcls=(Code.CLUSTER_AUTHORIZATION_FAILED, "no", []))
    found = asyncio.run(survey_part(cast("KafkaClient", denied), Part.ACLS))
    assert "grant this user Describe on the cluster" in (found.unread or "")
    off = Brokers(DescribeAcls=(Code.SECURITY_DISABLED, "no authorizer", []))
    assert asyncio.run(survey_part(cast("KafkaClient", off), Part.ACLS)) == acls()


def test_a_note_says_what_is_unread_and_the_one_before_stays() -> None:
    of = archive()
    assert [note_part(of, one) for one in (acls(DENY), UNREAD, UNREAD)] == [True, True, False]
    assert read_noted_parts(of, [Part.ACLS])[Part.ACLS].found == UNREAD
    assert sorted(item.key for item in of.store.list("control/")) == [
        "control/cluster-metadata/acls/000000.json",
        "control/cluster-metadata/acls/000001.json",
    ]


def test_the_default_entity_is_not_the_one_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple((entity, "producer_byte_rate", "1.0") for entity in (NO_NAME, DEFAULT_USER))
    source, target = (ClusterPart(part=Part.QUOTAS, rows=some) for some in (rows, rows[:1]))
    diff = compare(monkeypatch, source, target)
    assert [(one.row[0], one.state) for one in diff.changes] == [(DEFAULT_USER, RowState.ADDED)]
    brokers = Brokers()
    asyncio.run(add_rows(cast("KafkaClient", brokers), {Part.QUOTAS: rows}))
    ((_, sent),) = brokers.sent
    user, quota, value = b"\x05user", b"\x13producer_byte_rate", struct.pack(">d", 1.0)
    entries = [b"\x02" + user + name + b"\0\x02" + quota + value + b"\0\0\0" for name in (b"\x01", b"\0")]
    assert sent == b"\x03" + b"".join(entries) + b"\0\0"
    told = [b"\x02" + user + name + b"\0\x02" + quota + value + b"\0\0" for name in (b"\x01", b"\0")]
    answer = AnswerReader(memoryview(bytes(6) + b"\0\x03" + b"".join(told) + b"\0"), flexible=True)
    read = Brokers(DescribeClientQuotas=DescribeClientQuotasCall((), False).read(answer, 1))
    assert set(asyncio.run(survey_part(cast("KafkaClient", read), Part.QUOTAS)).rows) == set(rows)


def test_configs_and_quotas_come_first_and_then_acls_that_deny() -> None:
    brokers = Brokers()
    rows: Mapping[Part, Sequence[Row]] = {
        Part.ACLS: [ALLOW, DENY],
        Part.QUOTAS: [(DEFAULT_USER, "producer_byte_rate", "1.0")],
        Part.CONFIGS: [(None, "log.retention.ms", "1", "all brokers", "")],
    }
    asyncio.run(add_rows(cast("KafkaClient", brokers), rows))
    assert [name for name, _ in brokers.sent] == [
        "IncrementalAlterConfigs",
        "AlterClientQuotas",
        "CreateAcls",
        "CreateAcls",
    ]
    assert [b"User:a" in sent for _, sent in brokers.sent[2:]] == [True, False]


def test_no_acl_allows_where_one_that_denies_was_refused() -> None:
    brokers = Brokers(CreateAcls=([(Code.CLUSTER_AUTHORIZATION_FAILED, "no")],))
    with pytest.raises(KafkaError, match=r"acls: could not be added: .*grant this user Alter on the cluster"):
        asyncio.run(add_rows(cast("KafkaClient", brokers), {Part.ACLS: [ALLOW, DENY]}))
    assert [b"User:a" in sent for _, sent in brokers.sent] == [True]


def test_secrets_and_settings_of_one_broker_are_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ClusterPart(
        part=Part.CONFIGS,
        rows=(
            (None, "plugin.secret", None, "all brokers", "sensitive"),
            ("1", "log.dirs", "/data", "its file", "read-only"),
            ("1", "log.cleaner.threads", "2", "this broker", ""),
        ),
    )
    diff = compare(monkeypatch, source, ClusterPart(part=Part.CONFIGS))
    assert [(one.row[1], one.state) for one in diff.changes] == [("plugin.secret", RowState.BY_HAND)]


@pytest.mark.parametrize(
    ("part", "row"),
    [
        ("acls", ["DENY", "User:a", "*", "READ", "TOPIC", "t"]),
        ("acls", ["DENY", "User:a", "*", "FLY", "TOPIC", "t", "LITERAL"]),
        ("acls", ["DENY", "User:a", "*", "128", "TOPIC", "t", "LITERAL"]),
        ("acls", ["DENY", None, "*", "READ", "TOPIC", "t", "LITERAL"]),
        ("quotas", ["[" * 10_000, "producer_byte_rate", "1.0"]),
        ("quotas", ['{"user": 5}', "producer_byte_rate", "1.0"]),
        ("quotas", [DEFAULT_USER, "producer_byte_rate", "many"]),
    ],
)
def test_a_forged_row_is_refused(part: str, row: list[Any]) -> None:
    with pytest.raises(ValueError, match=f"is no row of {part}"):
        ClusterPart(part=Part(part), rows=(tuple(row),))
