"""ACLs, quotas, users and broker configs: noted from one cluster, added to another one, and compared there by Kafka's own tools."""

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from archiver.demo.sandbox import JAVA_OPTIONS
from archiver.process.machine.jvm_classes import options_to_read
from tests.conftest import kafka_jars
from tests.support.brokers import KAFKA_39, Broker
from tests.support.foreign_reader import keys_in
from tests.support.kafka_broker import KafkaBroker, classes_of
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import ArchiveSite
from tests.support.zookeeper import KAFKA_28, ZooKeeperBroker

pytestmark = [pytest.mark.installed, pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]

ACLS = 5
PREFIX = "control/cluster-metadata/"
_RESOURCE = re.compile(r"resourceType=(\w+), name=(.*), patternType=(\w+)\)")
_ENTRY = re.compile(r"\(principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)\)")


@pytest.fixture(scope="module")
def source() -> Iterator[ZooKeeperBroker]:
    """The oldest brokers that are supported."""
    guard = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
    with (
        tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder,
        ZooKeeperBroker(kafka_jars(KAFKA_28), Path(folder), properties=guard) as broker,
    ):
        fill(broker)
        yield broker


@pytest.fixture(scope="module")
def guarded(new_module_broker: Any) -> KafkaBroker:  # noqa: ANN401 - a StartBroker
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    broker: KafkaBroker = new_module_broker(**{"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"})
    return broker


def tool(name: str, bootstrap: str, *options: str) -> str:
    """Kafka's own kafka-acls or kafka-configs."""
    jars = kafka_jars(KAFKA_39)
    java = ["java", *JAVA_OPTIONS, *options_to_read(classes_of(jars)), "-cp", f"{jars}/*", f"kafka.admin.{name}"]
    command = [*java, "--bootstrap-server", bootstrap, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def change_acls(bootstrap: str, words: str) -> None:
    tool("AclCommand", bootstrap, *words.split())


def set_config(bootstrap: str, value: str, words: str) -> None:
    tool("ConfigCommand", bootstrap, "--alter", "--add-config", value, *words.split())


def acls(bootstrap: str) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    resource: tuple[str, ...] = ()
    for line in tool("AclCommand", bootstrap, "--list").splitlines():
        if match := _RESOURCE.search(line):
            resource = match.groups()
        elif match := _ENTRY.search(line):
            principal, host, operation, permission = match.groups()
            found.add((permission, principal, host, operation, *resource))
    return found


def configs(bootstrap: str, *entities: str) -> set[str]:
    return set(tool("ConfigCommand", bootstrap, "--describe", *entities).strip().splitlines())


QUOTAS = (
    ("--entity-type", "users", "--entity-type", "clients"),
    ("--entity-type", "users"),
    ("--entity-type", "clients"),
    ("--entity-type", "ips"),
)
DEFAULTS = ("--entity-type", "brokers", "--entity-default")


def fill(broker: KafkaBroker) -> None:
    there = broker.bootstrap
    change_acls(there, "--add --allow-principal User:alice --deny-principal User:* --operation Read --topic orders")
    tool(
        "AclCommand", there, "--add", "--allow-principal", "User:Jörg von A", "--allow-host", "10.0.0.1",
        "--operation", "All", "--topic", "pay-", "--group", "g", "--transactional-id", "*", "--cluster",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    set_config(there, "consumer_byte_rate=1024", "--entity-type users --entity-default")
    set_config(there, "consumer_byte_rate=2048", "--entity-type users --entity-name alice")
    of_alice = "--entity-type users --entity-name alice --entity-type clients --entity-default"
    set_config(there, "request_percentage=12.5", of_alice)
    set_config(there, "producer_byte_rate=7", "--entity-type clients --entity-name app")
    set_config(there, "connection_creation_rate=9", "--entity-type ips --entity-name 127.0.0.9")
    set_config(there, "SCRAM-SHA-256=[iterations=4096,password=hunter2]", "--entity-type users --entity-name bob")
    set_config(there, "log.retention.ms=86400000,plugin.secret=hunter2", " ".join(DEFAULTS))
    set_config(there, "log.cleaner.threads=2", "--entity-type brokers --entity-name 1")
    create_topic(broker.bootstrap, "orders", 1, {"retention.ms": "-1"})
    produce_values(broker.bootstrap, "orders", [b"one"])


@pytest.fixture
def archived(source: ZooKeeperBroker, guarded: KafkaBroker, site: ArchiveSite) -> ArchiveSite:
    site.write_config(source.bootstrap, "orders")
    site.write_target(guarded.bootstrap)
    back_up(site)
    return site


def back_up(site: ArchiveSite) -> None:
    done = site.run_within("backup", "--until-end")
    assert done.returncode == 0, done.stderr


def shown(site: ArchiveSite, *options: str) -> dict[str, list[dict[str, Any]]]:
    done = site.run_within("cluster", "show", "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    return {part["part"]: part["rows"] for part in json.loads(done.stdout)["parts"]}


def compared(site: ArchiveSite, way: str, exit_code: int, *options: str) -> tuple[dict[str, list[Any]], str]:
    """Run diff or apply. Returns the rows by state, and what was complained of."""
    done = site.run_within("cluster", way, "--target", "target.yaml", "--format", "json", *options)
    assert done.returncode == exit_code, done.stderr
    found: dict[str, list[Any]] = {}
    for change in json.loads(done.stdout)["changes"]:
        found.setdefault(change["state"], []).append([change["part"], *change["row"].values()])
    return found, done.stderr


def test_what_is_shown_is_what_the_tools_show(source: ZooKeeperBroker, archived: ArchiveSite) -> None:
    rows = shown(archived)
    assert {tuple(row.values()) for row in rows["acls"]} == acls(source.bootstrap)
    assert len(rows["acls"]) == ACLS
    assert [tuple(row.values()) for row in rows["users"]] == [("bob", "SCRAM-SHA-256", "4096")]
    assert ("1", "log.cleaner.threads", "2", "this broker", "") in {
        tuple(row.values()) for row in rows["broker-configs"]
    }
    assert rows["topic-configs"] == [{"topic": "orders", "config": "retention.ms", "value": "-1"}]


def test_apply_adds_what_the_target_lacks_and_nothing_else(
    source: ZooKeeperBroker, guarded: KafkaBroker, archived: ArchiveSite
) -> None:
    target = guarded.bootstrap
    change_acls(target, "--add --allow-principal User:other --topic t --operation Read")
    before = acls(target)
    create_topic(target, "orders", 1)

    planned, said = compared(archived, "diff", 3)
    by_hand = [
        ["broker-configs", None, "plugin.secret", None, "all brokers", "sensitive"],
        ["users", "bob", "SCRAM-SHA-256", "4096"],
        ["topic-configs", "orders", "retention.ms", "-1"],
    ]
    assert sorted(planned["by_hand"], key=str) == sorted(by_hand, key=str)
    assert "brokers do not return passwords" in said
    assert acls(target) == before
    added, _ = compared(archived, "apply", 3)
    assert added["added"] == planned["added"]
    assert_added(source, guarded, before)

    # As a run would go on that was killed behind some of its effects.
    change_acls(target, "--remove --force --allow-principal User:alice --topic orders --operation Read")
    set_config(target, "producer_byte_rate=8", "--entity-type clients --entity-name app")
    again, _ = compared(archived, "apply", 3)
    assert again["added"] == [["acls", "ALLOW", "User:alice", "*", "READ", "TOPIC", "orders", "LITERAL"]]
    assert again["differs"] == [["quotas", '{"client-id": "app"}', "producer_byte_rate", "7.0"]]
    assert [row for row in again["extra"] if row[0] == "acls"] == [
        ["acls", "ALLOW", "User:other", "*", "READ", "TOPIC", "t", "LITERAL"]
    ]
    assert "producer_byte_rate=8.0" in "".join(configs(target, *QUOTAS[2]))
    assert "added" not in compared(archived, "apply", 3)[0]


def assert_added(source: ZooKeeperBroker, guarded: KafkaBroker, before: set[tuple[str, ...]]) -> None:
    """The target has what it had, and by Kafka's own tools all that can be added of the source."""
    assert acls(guarded.bootstrap) == before | acls(source.bootstrap)
    for entities in QUOTAS:
        wanted = without_users(configs(source.bootstrap, *entities))
        assert wanted
        assert without_users(configs(guarded.bootstrap, *entities)) == wanted
    defaults = configs(guarded.bootstrap, *DEFAULTS)
    (line,) = [line for line in defaults if "retention" in line]
    assert "log.retention.ms=86400000" in line
    assert not [line for line in defaults if "plugin" in line]


def without_users(lines: set[str]) -> set[str]:
    return {line for line in lines if "SCRAM" not in line}


def test_a_change_makes_one_note(source: ZooKeeperBroker, archived: ArchiveSite) -> None:
    noted = keys_in(archived.bucket, PREFIX)
    assert [key.removeprefix(PREFIX) for key in noted] == [
        f"{part}/000000.json" for part in ("acls", "broker-configs", "quotas", "users")
    ]
    back_up(archived)
    assert keys_in(archived.bucket, PREFIX) == noted
    before = shown(archived, "--part", "quotas")
    time.sleep(1.1)  # the store's clock has whole seconds
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    time.sleep(1.1)
    set_config(source.bootstrap, "producer_byte_rate=5", "--entity-type clients --entity-name late")
    back_up(archived)
    assert [key for key in keys_in(archived.bucket, PREFIX) if key not in noted] == [f"{PREFIX}quotas/000001.json"]
    assert len(shown(archived, "--part", "quotas")["quotas"]) == len(before["quotas"]) + 1
    assert shown(archived, "--part", "quotas", "--as-of", at) == before


def test_a_refused_row_is_named(broker_41: Broker, archived: ArchiveSite) -> None:
    archived.write_target(broker_41.bootstrap)
    done = archived.run_within("cluster", "apply", "--target", "target.yaml", "--part", "acls")
    assert (done.returncode, done.stdout) == (1, "")
    assert "acls: could not be added: SECURITY_DISABLED" in done.stderr
    assert "; set authorizer.class.name on the brokers" in done.stderr
    assert [part for part, *_ in compared(archived, "diff", 3, "--part", "acls")[0]["added"]] == ["acls"] * ACLS


def test_a_restore_elsewhere_ends_with_what_did_not_come_back(
    broker_41: Broker, archived: ArchiveSite, topic: str
) -> None:
    archived.write_target(broker_41.bootstrap)
    done = archived.run_within("restore", "--target", "target.yaml", "--rename", f"orders={topic}", "--format", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["not_restored"]
    assert f"acls: {ACLS} missing, apply adds it" in told
    assert "users: 1 missing, apply cannot add it" in told
