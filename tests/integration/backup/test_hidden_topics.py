"""Topics that a list of all leaves out, and entries of topics.include that match nothing: both are told, by every command."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from confluent_kafka.admin._acl import AclOperation as Op
from confluent_kafka.admin._resource import ResourceType as Kind

from tests.conftest import kafka_jars
from tests.support.brokers import KAFKA_41, Broker
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, delete_topic, produce_values
from tests.support.round_trip import ArchiveSite
from tests.support.secure_broker import PASSWORD, USER, Certificates, Right, SecureBroker
from tests.support.service import eventually, running, service_config, until_archived

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    folder = tmp_path_factory.mktemp("secure-broker")
    with SecureBroker(kafka_jars(KAFKA_41), folder / "broker", Certificates.make(folder / "keys")) as broker:
        yield broker


def config_of(site: ArchiveSite, secure: SecureBroker, *include: str) -> dict[str, Any]:
    kafka = {
        "bootstrap.servers": secure.address("SASL"),
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    return {**service_config(site, "", *include, group="any"), "kafka": kafka}


def write_config(site: ArchiveSite, config: dict[str, Any]) -> None:
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))


def reading(*topics: str) -> list[Right]:
    of_topics = [(Kind.TOPIC, topic, one) for topic in topics for one in (Op.READ, Op.DESCRIBE_CONFIGS)]
    return [*of_topics, (Kind.GROUP, "*", Op.READ)]


@pytest.fixture
def two_topics(secure: SecureBroker, topic: str) -> tuple[str, str]:
    names = f"{topic}-kept", f"{topic}-lost"
    for name in names:
        create_topic(secure.bootstrap, name)
        produce_values(secure.bootstrap, name, [b"one"] * 10)
    return names


def test_a_name_whose_pattern_matches_others_is_asked_for_too(
    secure: SecureBroker, site: ArchiveSite, topic: str
) -> None:
    """As `a.b` does `a-b`. A broker that tells that there is no such topic is believed."""
    hidden, visible = f"{topic}.x", f"{topic}-x"
    create_topic(secure.bootstrap, visible)
    produce_values(secure.bootstrap, visible, [b"one"])
    write_config(site, config_of(site, secure, hidden))
    secure.grant(*reading(visible, hidden))
    done = site.run_within("backup", "--until-end")
    assert done.returncode == 0, done.stdout + done.stderr
    create_topic(secure.bootstrap, hidden)
    secure.grant(*reading(visible))
    done = site.run_within("backup", "--until-end")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"grant this user Describe on topic {hidden} (and Read, to archive it), or leave it out" in done.stderr
    assert f"write it as ({hidden}) in topics.include if it is a pattern for others" in done.stderr
    write_config(site, config_of(site, secure, f"({hidden})"))
    done = site.run_within("backup", "--until-end")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_running_backup_tells_of_a_topic_that_lost_its_rights(
    secure: SecureBroker,
    site: ArchiveSite,
    topic: str,
    two_topics: tuple[str, str],
    java_oracle: JavaOracle,
    soon_lasting: str,
) -> None:
    """For as long as that lasts: the group gives its partitions to nobody then."""
    kept, lost = two_topics
    secure.grant(*reading(kept, lost))
    with running(site, config_of(site, secure, f"{topic}-.*"), PYTHONPATH=soon_lasting) as instance:
        for name in two_topics:
            until_archived(site, java_oracle, secure.bootstrap, name)
        secure.grant(*reading(kept))
        for name in two_topics:
            produce_values(secure.bootstrap, name, [b"two"] * 10)
        until_archived(site, java_oracle, secure.bootstrap, kept)
        eventually(lambda: instance.value("archiver_partitions_failing", topic=lost) == 1)
        until_s = time.monotonic() + 4.5  # several looks at the topics, and a rebalance
        while time.monotonic() < until_s:
            assert instance.value("archiver_partitions_failing", topic=lost) == 1
            time.sleep(0.5)
        assert instance.value("archiver_rpo_seconds", topic=lost) > 3
        assert instance.value("archiver_partitions_failing", topic=kept) == 0
        assert f"grant this user Describe on topic {lost}" in instance.log
    with running(
        site, config_of(site, secure, f"{topic}-.*"), "two", PYTHONPATH=soon_lasting
    ) as instance:  # it has never seen it
        eventually(lambda: instance.value("archiver_partitions_failing", topic=lost) == 1)
        secure.grant(*reading(kept, lost))
        until_archived(site, java_oracle, secure.bootstrap, lost)
        eventually(lambda: instance.value("archiver_partitions_failing", topic=lost) == 0)
        assert instance.log.count(f"grant this user Describe on topic {lost}") == 1
        assert instance.stop() == 0


def test_a_running_backup_whose_only_topic_is_refused_says_so(
    secure: SecureBroker, site: ArchiveSite, two_topics: tuple[str, str]
) -> None:
    secure.grant(*reading())
    with running(site, config_of(site, secure, two_topics[1])) as instance:
        eventually(lambda: instance.value("archiver_partitions_failing", topic=two_topics[1]) == 1)
        assert not instance.is_ready()


# --- entries that match nothing


def test_each_entry_that_matches_nothing_is_told(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    create_topic(broker_41.bootstrap, topic)
    produce_values(broker_41.bootstrap, topic, [b"one"])
    config = service_config(site, broker_41.bootstrap, topic, f"{topic}-typo", "nobody-.*", group=topic)
    write_config(site, config)
    lines = (site.folder / "archive.yaml").read_text().splitlines()
    told = [
        f"archive.yaml:{lines.index(f'  - {entry}') + 1}: topics.include: '{entry}' matches no topic of the cluster"
        for entry in (f"{topic}-typo", "nobody-.*")
    ]
    done = site.run_within("backup", "--until-end")
    assert done.returncode == 0, done.stderr
    assert [line for line in told if line not in done.stderr] == []
    found = site.run_within("verify", "--against-kafka")
    assert found.returncode == 0, found.stderr
    assert [line for line in told if f"note: {line}" not in found.stdout] == []
    config["topics"]["include"] = [f"{topic}-typo", "nobody-.*"]
    write_config(site, config)
    nothing = site.run_within("backup", "--until-end")
    assert nothing.returncode == 2
    assert nothing.stderr.count("matches no topic of the cluster") == 2


def test_a_running_backup_tells_each_entry_once(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    create_topic(broker_41.bootstrap, topic)
    typo = f"{topic}-typo"
    with running(site, service_config(site, broker_41.bootstrap, topic, typo, group=topic)) as instance:
        eventually(lambda: instance.value("archiver_partitions", topic=topic) == 1)
        assert f"topics.include: '{typo}' matches no topic of the cluster" in instance.log
        create_topic(broker_41.bootstrap, typo)
        eventually(lambda: instance.value("archiver_partitions", topic=typo) == 1)
        assert instance.log.count("matches no topic") == 1
        delete_topic(broker_41.bootstrap, typo)
        eventually(lambda: instance.log.count("matches no topic") == 2)
        assert instance.stop() == 0


# --- archiver topics


def test_topics_tells_what_each_is_and_why(
    secure: SecureBroker, site: ArchiveSite, topic: str, two_topics: tuple[str, str]
) -> None:
    kept, lost = two_topics
    others = {name: f"{topic}-{name}" for name in ("out", "left", "gone")}
    for name in others.values():
        create_topic(secure.bootstrap, name)
        produce_values(secure.bootstrap, name, [b"one"])
    everything = [*two_topics, *others.values()]
    secure.grant(*reading(*everything))
    config = config_of(site, secure, f"{topic}-(kept|lost|out|gone)", "nobody.*")
    write_config(site, config)
    assert site.run_within("backup", "--until-end").returncode == 0
    config["topics"]["exclude"] = [".*-out"]
    write_config(site, config)
    place = {
        entry: f"archive.yaml:{number}"
        for number, line in enumerate((site.folder / "archive.yaml").read_text().splitlines(), 1)
        for entry in (f"{topic}-(kept|lost|out|gone)", "nobody.*", ".*-out")
        if line.strip("- ") == entry
    }
    delete_topic(secure.bootstrap, others["gone"])
    secure.grant(*reading(*(name for name in everything if name != lost)))
    done = site.run_within("topics", "--format", "json")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    rows = {row["topic"]: row for row in found["topics"] if row["topic"].startswith(topic)}
    assert {name: (row["standing"], row["in_archive"]) for name, row in rows.items()} == {
        kept: ("archived", True),
        lost: ("refused", True),
        others["out"]: ("excluded", True),
        others["left"]: ("not included", False),
        others["gone"]: ("gone", True),
    }
    assert rows[kept]["partitions"] == 1
    entry, excluded = f"{topic}-(kept|lost|out|gone)", ".*-out"
    assert rows[kept]["include"] == [{"entry": entry, "place": f"{place[entry]}: topics.include"}]
    assert rows[others["out"]]["exclude"] == [{"entry": excluded, "place": f"{place[excluded]}: topics.exclude"}]
    assert f"grant this user Describe on topic {lost}" in rows[lost]["why"]
    assert found["unmatched"] == [{"entry": "nobody.*", "place": f"{place['nobody.*']}: topics.include"}]
    text = site.run_within("topics")
    assert text.returncode == 3
    lines = {line.split()[0]: line for line in text.stdout.splitlines()}
    assert lines[others["out"]].split()[3:] == ["excluded", f"{place[excluded]}:", "topics.exclude:", excluded]
    assert f"{place['nobody.*']}: topics.include: 'nobody.*' matches no topic of the cluster" in text.stderr
