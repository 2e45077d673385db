"""TLS, client certificates, passwords, tokens and ACLs against a real broker: what lets us in, and what is said when it does not."""

import asyncio
import base64
import gc
import json
import logging
import re
import secrets
import shlex
import subprocess
import time
import urllib.parse
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin._acl import AclOperation as Op
from confluent_kafka.admin._resource import ResourceType as Kind

import archiver.restore.targets.targets
import archiver.spark.restore_job
from archiver.backup.service.run_backup import run_backup
from archiver.cli.main import main
from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.demo.sandbox import fetch_kafka
from archiver.errors import KafkaError, TargetError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.client_thread import ClientThread
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.kafka.topics.configs import topic_configs
from archiver.restore.fill.partition_restore import run_task
from archiver.restore.plan.request import Existing, RestoreRequest
from archiver.restore.plan.task import RestoreTask, TaskReport
from archiver.restore.report.restore_report import RestoreResult
from archiver.spark.restore import preview_restore, run_restore_job
from tests.integration.groups.test_group_positions import commit
from tests.support.bad_input import KAFKA
from tests.support.brokers import CACHE, KAFKA_41, REPOSITORY
from tests.support.kafka_broker import free_ports
from tests.support.kafka_topics import create_topic, produce_values, with_client
from tests.support.leaks import Watch, session_of
from tests.support.relay import delayed_address
from tests.support.round_trip import ArchiveSite, run_here
from tests.support.secure_broker import PASSWORD, USER, Certificates, Right, SecureBroker
from tests.support.submits import by_project
from tests.support.token_server import CLIENT_ID, CLIENT_SECRET, token_endpoint, unsigned

pytestmark = [pytest.mark.installed, pytest.mark.kafka]

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


def test_a_provider_that_does_not_know_us_is_named(secure: SecureBroker, endpoint: str) -> None:
    wrong = way_in("token of a provider", secure, endpoint) | {"sasl.oauthbearer.client.secret": "hunter2-hunter2"}
    with pytest.raises(KafkaError, match=rf"there is no token: {endpoint} answered 401") as caught:
        asyncio.run(_names(KafkaSettings.parse(wrong)))
    assert "hunter2" not in str(caught.value)


@pytest.mark.s3
@pytest.mark.parametrize(
    "arguments",
    [["backup"], pytest.param(["backup", "--until-end"], marks=pytest.mark.long)],
    ids=["until stopped", "until end"],
)
def test_a_signal_ends_what_waits_for_a_token(arguments: list[str], secure: SecureBroker, site: ArchiveSite) -> None:
    kafka = way_in("token of a function", secure) | {"token_provider": "tests.support.token_server:hang"}
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(site.config("", ["orders"]) | {"kafka": kafka}))
    process = site.command(*arguments, PYTHONPATH=str(REPOSITORY))
    try:
        assert process.stderr is not None
        assert "the badge reader hangs\n" in process.stderr
        process.terminate()
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode in {0, 4}, err
    assert "Traceback" not in err


# --- rights


def reading(topic: str) -> list[Right]:
    return [(Kind.TOPIC, topic, Op.DESCRIBE), (Kind.TOPIC, topic, Op.READ), (Kind.TOPIC, topic, Op.DESCRIBE_CONFIGS)]


def writing(topic: str) -> list[Right]:
    """AlterConfigs implies DescribeConfigs."""
    rights = (Op.DESCRIBE, Op.READ, Op.CREATE, Op.WRITE, Op.ALTER_CONFIGS)
    return [(Kind.TOPIC, topic, one) for one in rights]


ALL_BUT_CONFIGS = (Op.DESCRIBE, Op.READ, Op.CREATE, Op.WRITE, Op.DELETE, Op.DESCRIBE_CONFIGS)


def config_of(site: ArchiveSite, secure: SecureBroker, topic: str) -> ArchiverConfig:
    return ArchiverConfig.model_validate(site.config("", [topic]) | {"kafka": way_in("scram-256", secure)})


def errors_of_backup(site: ArchiveSite, secure: SecureBroker, topic: str) -> list[str]:
    report, _ = run_backup(config_of(site, secure, topic), lambda _: None)
    return [*map(str, report.problems), *(str(one.error) for one in report.partitions if one.error is not None)]


def restored(
    site: ArchiveSite, secure: SecureBroker, topic: str, existing: Existing = Existing.EMPTY, *, address: str = ""
) -> RestoreResult:
    kafka = way_in("scram-256", secure)
    return run_restore_job(
        config_of(site, secure, topic).storage,
        TargetConfig(kafka=kafka | {"bootstrap.servers": address or kafka["bootstrap.servers"]}),
        RestoreRequest(topics=topic, renames={topic: f"{topic}.back"}, existing=existing),
        restore_id=None,
        notice=lambda _: None,
    )


@pytest.fixture
def filled(topic: str, secure: SecureBroker) -> str:
    create_topic(secure.bootstrap, topic)
    produce_values(secure.bootstrap, topic, [b"one", b"two"])
    return topic


@pytest.mark.s3
def test_the_command_of_the_report_comes_in_too(
    filled: str, secure: SecureBroker, site: ArchiveSite, tmp_path: Path
) -> None:
    secure.grant(*reading(filled), *writing(f"{filled}.back"))
    assert errors_of_backup(site, secure, filled) == []
    (back,) = restored(site, secure, filled).topics
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{USER}" password="{PASSWORD}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={secure.certificates.ca}\n"
    )
    tool, *options = shlex.split(back.retention_command)
    assert tool == "kafka-configs.sh"
    java = ["java", "-cp", f"{fetch_kafka(KAFKA_41, CACHE)}/*", "kafka.admin.ConfigCommand", *options]
    done = subprocess.run(java, cwd=tmp_path, capture_output=True, text=True, timeout=45, check=False)
    assert (done.returncode, "Completed updating config for topic" in done.stdout) == (0, True), done.stderr
    configs = with_client(secure.bootstrap, lambda client: topic_configs(client, f"{filled}.back"))
    assert not configs.own.keys() & {"retention.ms", "retention.bytes"}


@pytest.mark.s3
def test_nothing_is_purged_that_could_then_not_be_configured(
    filled: str, secure: SecureBroker, site: ArchiveSite
) -> None:
    target = f"{filled}.back"
    secure.grant(*reading(filled), *((Kind.TOPIC, target, one) for one in ALL_BUT_CONFIGS))
    assert errors_of_backup(site, secure, filled) == []
    create_topic(secure.bootstrap, target)
    produce_values(secure.bootstrap, target, [b"theirs"])
    with pytest.raises(TargetError, match=f"{target} is not purged: .*grant this user AlterConfigs on topic {target}"):
        restored(site, secure, filled, Existing.PURGE)
    rights = [(Kind.TOPIC, target, one) for one in (*ALL_BUT_CONFIGS, Op.ALTER_CONFIGS)]
    secure.grant(*rights)
    with pytest.raises(TargetError, match=f"{target} is not purged: .*grant this user Create on .* prefix {target}"):
        restored(site, secure, filled, Existing.PURGE)
    assert with_client(secure.bootstrap, lambda client: client.offsets([(target, 0)]))[target, 0].high_watermark == 1
    secure.grant(*rights, (Kind.TOPIC, f"{target}-", Op.CREATE))
    (back,) = restored(site, secure, filled, Existing.PURGE).topics
    assert (back.records, back.errors, back.is_finished) == (2, (), True)


@pytest.mark.s3
@pytest.mark.parametrize(
    ("rights", "told"),
    [
        pytest.param(
            [(Kind.GROUP, "some", Op.DESCRIBE)],
            "offsets that 1 consumer group has committed for it: some; of others that is not known: this user may not describe",
            marks=pytest.mark.long,
        ),
        (
            [(Kind.BROKER, "kafka-cluster", Op.DESCRIBE), (Kind.GROUP, "some", Op.DESCRIBE)],
            "for it: some; of others that is not known: the positions of group hidden could not be read",
        ),
        (
            [(Kind.BROKER, "kafka-cluster", Op.DESCRIBE), (Kind.GROUP, "*", Op.DESCRIBE)],
            "offsets that 2 consumer groups have committed for it: hidden, some",
        ),
    ],
)
def test_a_purge_tells_of_the_groups_that_this_user_may_see(
    filled: str,
    secure: SecureBroker,
    site: ArchiveSite,
    caplog: pytest.LogCaptureFixture,
    rights: list[Right],
    told: str,
) -> None:
    """And goes on."""
    target = f"{filled}.back"
    secure.grant(*reading(filled))
    assert errors_of_backup(site, secure, filled) == []
    create_topic(secure.bootstrap, target)
    for group in ("hidden", "some"):
        commit(secure, group, TopicPartition(target, 0, 0))
    own = (*ALL_BUT_CONFIGS, Op.ALTER_CONFIGS)
    secure.grant(*((Kind.TOPIC, target, one) for one in own), (Kind.TOPIC, f"{target}-", Op.CREATE), *rights)
    caplog.set_level(logging.INFO)
    (back,) = restored(site, secure, filled, Existing.PURGE).topics
    assert (back.records, back.errors) == (2, ())
    (note,) = [one for one in caplog.messages if one.startswith(f"target topic {target} goes, without a record,")]
    assert told in note


@pytest.mark.s3
def test_a_restore_that_is_refused_leaves_no_connection_behind(
    filled: str, secure: SecureBroker, site: ArchiveSite
) -> None:
    """Also to a broker so far away that its goodbye comes when the restore has ended."""
    secure.grant(*reading(filled))
    assert errors_of_backup(site, secure, filled) == []
    secure.grant(*(right for right in writing(f"{filled}.back") if right[2] != Op.CREATE))
    with (
        delayed_address(secure.address("SASLTLS"), late_s=0.2) as address,
        warnings.catch_warnings(record=True) as seen,
    ):
        warnings.simplefilter("always")
        with pytest.raises(TargetError, match="Create on topic"):
            restored(site, secure, filled, address=address)
        gc.collect()
    assert [str(one.message) for one in seen if issubclass(one.category, ResourceWarning)] == []


WAYS_OF: dict[str, tuple[str, str, dict[str, str | None]]] = {
    "a broker that does not answer": ("plain", "127.0.0.1:9", {}),
    "a broker's name that does not resolve": ("plain", "nowhere.invalid:9092", {}),
    "a wrong password": ("scram-256", "", {"sasl.password": "pa55-word"}),
    "a token that has expired": (
        "token of a function",
        "",
        {"token_provider": "tests.support.token_server:give_late"},
    ),
    "a token_provider that gives no token": (
        "token of a function",
        "",
        {"token_provider": "tests.support.token_server:give_bytes"},
    ),
    "a token_provider that hangs": ("token of a function", "", {"token_provider": "tests.support.token_server:hang"}),
    "a token_provider that ends the program": (
        "token of a function",
        "",
        {"token_provider": "tests.support.token_server:leave"},
    ),
    "a token_provider that is away": (
        "token of a provider",
        "",
        {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/token"},
    ),
    "a password to a listener that asks for none": ("plain without tls", "PLAINTEXT", {}),
    "an expired certificate": ("tls", "EXPIRED", {}),
    "a certificate of a stranger": ("tls", "", {"ssl.ca.location": "STRANGER"}),
    "a certificate for another name": ("tls", "OTHERNAME", {}),
    "a client certificate that is missing": (
        "client certificate",
        "",
        {"ssl.certificate.location": None, "ssl.key.location": None},
    ),
    "plaintext to a TLS port": ("nothing", "TLS", {}),
    "TLS to a plaintext port": ("tls", "PLAINTEXT", {}),
}


@pytest.mark.s3
@pytest.mark.parametrize("kind", KAFKA)
def test_every_way_that_does_not_lead_in_is_one_line(
    kind: str,
    secure: SecureBroker,
    site: ArchiveSite,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the table in docs/reference.md."""
    if kind == "a token_provider that hangs":
        monkeypatch.setattr("archiver.kafka.login.tokens.TOKEN_PATIENCE_S", 1.0)
    way, place, changes = WAYS_OF[kind]
    kafka = {} if way in {"plain", "nothing"} else way_in(way, secure)
    if place:
        addresses = {"PLAINTEXT": secure.bootstrap, **{name: secure.address(name) for name in secure.ports}}
        kafka["bootstrap.servers"] = addresses.get(place, place)
    for key, text in changes.items():
        kafka.pop(key)
        if text is not None:
            kafka[key] = str(secure.certificates.stranger) if text == "STRANGER" else text
    path = site.folder / "archive.yaml"
    path.write_text(yaml.safe_dump(site.config("", ["orders"]) | {"kafka": kafka}))
    exit_code = main(["backup", "--until-end", "-c", str(path)])
    out, err = capsys.readouterr()
    err = err.replace("the badge reader hangs\n", "")  # what the function says itself
    assert exit_code == KAFKA[kind].exit_code
    (line,) = err.splitlines()
    assert KAFKA[kind].says in line
    assert out == ""
    assert not [secret for secret in (PASSWORD, "pa55-word") if secret in line]


# --- secrets


SPARK_SECRET = secrets.token_hex(16)
KEY_PASSWORD = "k3y's pa55, word"
TENANT = "ext3nsion+s3cret"
URL_KEY = "k3y-of-url"


@dataclass(frozen=True, slots=True)
class Guarded:
    """An archive of which everything that can be a secret is one: given in the file, by the environment, and by files."""

    topic: str
    site: ArchiveSite
    watch: Watch
    kafka: Properties
    target: Properties
    environment: Mapping[str, str]

    def write(self, **metrics: object) -> None:
        config = self.site.config("", [self.topic]) | {"kafka": self.kafka, "metrics": metrics}
        (self.site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
        (self.site.folder / "target.yaml").write_text(yaml.safe_dump({"kafka": self.target}))


@pytest.fixture
def guarded(filled: str, secure: SecureBroker, site: ArchiveSite) -> Iterator[Guarded]:
    secure.grant(*EVERYTHING)
    folder, made = site.folder, secure.certificates
    (folder / "password").write_text(PASSWORD)
    (folder / "tmp").mkdir()
    store = session_of(site.bucket)
    environment = {**store, "OIDC_SECRET": CLIENT_SECRET}
    given: list[str] = []
    with token_endpoint(given=given) as endpoint:
        kafka = way_in("scram-512", secure) | {
            "sasl.password": f"${{file:{folder / 'password'}}}",
            "ssl.certificate.location": str(made.chain("client")),
            "ssl.key.location": str(made.locked_key("client", KEY_PASSWORD)),
            "ssl.key.password": KEY_PASSWORD,
        }
        target = way_in("token of a provider", secure, f"{endpoint}?key={URL_KEY}") | {
            "sasl.oauthbearer.client.secret": "${OIDC_SECRET}",
            "sasl.oauthbearer.extensions": f"tenant={TENANT}",
            "ssl.certificate.location": str(made.chain("client")),
            "ssl.key.pem": made.key("client").read_text(),
        }
        values = {
            "the broker's password": PASSWORD,
            "the key's password": KEY_PASSWORD,
            "the key": made.key("client").read_text().splitlines()[3],
            "the client secret": CLIENT_SECRET,
            "an extension": TENANT,
            "the endpoint's key": URL_KEY,
            "the store's key": store["AWS_SECRET_ACCESS_KEY"],
            "the session token": store["AWS_SESSION_TOKEN"],
            "Spark's secret": SPARK_SECRET,
            "a token": unsigned(USER)[:50],  # all of this user's begin so
        }
        files = [folder / name for name in ("archive.yaml", "target.yaml", "password", "spark.properties")]
        of_user = {**environment, "_SPARK_AUTH_SECRET": SPARK_SECRET}  # so Spark itself tells executors on a cluster
        yield Guarded(filled, site, Watch(values, of_user, files), kafka, target, environment)
    assert not [token for token in given if not token.startswith(unsigned(USER)[:50])]


@pytest.mark.s3
@pytest.mark.spark
@pytest.mark.timeout(400)  # six commands and a job, each of which is looked at from many sides while it runs
def test_no_secret_is_in_anything_that_is_written(guarded: Guarded, pytestconfig: pytest.Config) -> None:
    """Logs, results, metrics, arguments, environments, temporary files, Spark's pages and events, and the archive itself."""
    site, watch, topic = guarded.site, guarded.watch, guarded.topic
    listen, ui = (f"127.0.0.1:{port}" for port in free_ports(2))
    guarded.write(listen=listen)
    temporary = {name: str(site.folder / "tmp") for name in ("TMPDIR", "SPARK_LOCAL_DIRS")}
    (site.folder / "events").mkdir()

    def follow(process: subprocess.Popen[str], what: str, *, is_submitted: bool = False, stop: str = "") -> None:
        while process.poll() is None:
            watch.search_processes(process.pid, java_has_ours=is_submitted)
            watch.search_folder(site.folder)
            watch.search_spark(int(ui.rpartition(":")[2])) if is_submitted else None
            if stop and stop in watch.search_page(f"http://{listen}/metrics").decode():
                process.terminate()
                break
            time.sleep(0.1)
        out, err = process.communicate(timeout=60)
        watch.search(f"stdout of {what}", out)
        watch.search(f"stderr of {what}", err)
        assert process.returncode == 0, out + err

    def run(*arguments: str, stop: str = "") -> None:
        process = site.command(*arguments, "--verbose", **guarded.environment, **temporary)
        follow(process, " ".join(arguments[:2]), stop=stop)

    run("config", "show")
    run("backup", stop=f'topic="{topic}"')
    run("backup", "--until-end", "--log-format", "json")
    run("cat", topic)
    run("verify", "--against-kafka", "--topics", topic)
    run("query", f"SELECT count(*) FROM `{topic}`")
    submits, confs = by_project(site)
    confs |= {
        "spark.master": "local-cluster[1,1,1024]" if pytestconfig.getoption("--long") else "local[1]",
        "spark.authenticate.secret": SPARK_SECRET,
        "spark.ui.enabled": "true",
        "spark.ui.port": ui.rpartition(":")[2],
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{site.folder / 'events'}",
        **{f"spark.executorEnv.{name}": text for name, text in guarded.environment.items()},
    }
    asked = ("--target", "target.yaml", "--topics", topic, "--rename", f"{topic}={topic}.back", "--verbose")
    environment = {**guarded.environment, **temporary}
    submitted = submits.start_by_project("restore", *asked, confs=confs, environment=environment)
    follow(submitted, "spark-submit restore", is_submitted=True)
    assert watch.search_bucket(site.bucket) > 3
    assert not watch.found, watch.describe()
    names = "\n".join(sorted(watch.seen))
    for place in (
        "arguments of java",
        "environment of java",
        "environment of python",
        r"file events/.*(local|app)-",
        "file tmp/",
        "object .*control/restores/",
        "page /metrics",
        "page /api/v1/applications/.*/environment",
        "stderr of backup --until-end",
        "stdout of query",
    ):
        assert re.search(place, names), place


WRONG: dict[str, dict[str, str]] = {
    "a password": {"sasl.password": f"{PASSWORD}x"},
    "a key's password": {"ssl.key.password": f"{KEY_PASSWORD}x"},
    "a key's text for its file": {"ssl.key.location": "KEY"},
}


@pytest.mark.s3
@pytest.mark.parametrize("kind", [*WRONG, "a client secret", "a session token", "a store's key", "a defect"])
def test_no_secret_is_in_what_is_said_when_it_is_wrong(
    kind: str,
    guarded: Guarded,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, watch = guarded.site, guarded.watch
    monkeypatch.setattr("tempfile.tempdir", str(site.folder / "tmp"))
    for name, text in guarded.environment.items():
        is_wrong = name == {"a session token": "AWS_SESSION_TOKEN", "a store's key": "AWS_SECRET_ACCESS_KEY"}.get(kind)
        monkeypatch.setenv(name, f"{text}x" if is_wrong else text)
    if kind == "a client secret":
        guarded.kafka.clear()
        guarded.kafka.update(guarded.target)
        monkeypatch.setenv("OIDC_SECRET", f"{CLIENT_SECRET}x")
    key = (
        Path(guarded.kafka["ssl.key.location"]).with_suffix(".key").read_text() if "KEY" in str(WRONG.get(kind)) else ""
    )
    guarded.kafka.update({name: text.replace("KEY", key) for name, text in WRONG.get(kind, {}).items()})
    guarded.write()
    if kind == "a defect":
        monkeypatch.setattr("aiokafka.client.AIOKafkaClient.__init__", broken)
    assert main(["backup", "--until-end", "-c", str(site.folder / "archive.yaml"), "--verbose"]) in {1, 2}
    out, err = capsys.readouterr()
    watch.search("stdout", out)
    watch.search("stderr", err)
    watch.search_folder(site.folder)
    assert not watch.found, watch.describe()
    assert any("archiver-defect-" in place for place in watch.seen) == (kind == "a defect")


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a thing that cannot be")


@pytest.mark.parametrize("before", ["", "x", "xy", "alice\0"])
def test_a_secret_is_seen_however_it_is_spelled(before: str) -> None:
    secret = PASSWORD
    whole = f"{before}{secret}"
    for text in (
        whole,
        f"{whole}!",
        json.dumps({"password": whole}),
        urllib.parse.quote(whole),
        urllib.parse.urlencode({"password": whole}),
        whole.encode().hex(),
        base64.b64encode(whole.encode()).decode(),
        base64.urlsafe_b64encode(f"{whole}, and more".encode()).decode(),
        repr({"password": whole}),
    ):
        watch = Watch({"it": secret}, {})
        watch.search("there", f"before {text} behind")
        assert watch.found == {"it in there"}, text
    watch = Watch({"it": secret}, {})
    watch.search("there", "before and behind")
    assert watch.found == set()


@pytest.mark.s3
@pytest.mark.parametrize("length", [150, pytest.param(246, marks=pytest.mark.long), 249])
def test_a_purge_of_a_long_name_asks_for_a_right_that_helps(
    filled: str, secure: SecureBroker, site: ArchiveSite, length: int
) -> None:
    """Whether it could be created again is asked by another name, and names cannot be longer than 249."""
    secure.grant(*reading(filled))
    assert errors_of_backup(site, secure, filled) == []
    target = (filled + "-" + "x" * length)[: length - 9] + "-xxxxxxx-"  # rights on what ends so are prefixed
    create_topic(secure.bootstrap, target)
    storage, kafka = config_of(site, secure, filled).storage, TargetConfig(kafka=way_in("scram-256", secure))
    request = RestoreRequest(topics=filled, renames={filled: target}, existing=Existing.PURGE)
    literal = [(Kind.TOPIC, target, one) for one in (*ALL_BUT_CONFIGS, Op.ALTER_CONFIGS) if one != Op.CREATE]
    secure.grant(*reading(filled), *literal)
    (said,) = preview_restore(storage, kafka, request, restore_id=None).refused
    asked_for = said.partition("Create on topics with the prefix ")[2].partition(", or delete it")[0]
    assert target.startswith(asked_for)
    assert len(asked_for) == (length if length < 249 else 241)
    secure.grant(*reading(filled), *literal, (Kind.TOPIC, asked_for, Op.CREATE))
    found = preview_restore(storage, kafka, request, restore_id=None)
    assert [*found.refused, *found.problems] == []


@pytest.mark.s3
def test_restore_outlives_idle_connections_and_tokens(
    topic: str, certificates: Certificates, tmp_path: Path, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client asks the target from the beginning to the end. Brokers close its connections, and its token expires."""
    short = {"connections.max.idle.ms": "1500", "connections.max.reauth.ms": "3000"}
    clients: list[KafkaClient] = []
    connections: set[object] = set()
    ask = ClientThread.ask

    def watched(thread: ClientThread, step: Callable[[KafkaClient], Awaitable[Any]]) -> Any:  # noqa: ANN401
        async def noted(client: KafkaClient) -> Any:  # noqa: ANN401
            found = await step(client)
            clients.append(client)
            connections.update(client._connections.open)
            return found

        return ask(thread, noted)

    def fill_slowly(spark: object, tasks: Sequence[RestoreTask], *_: object) -> list[TaskReport]:
        time.sleep(5)
        return run_here(spark, tasks, run_task)

    monkeypatch.setattr(ClientThread, "ask", watched)
    monkeypatch.setattr(archiver.spark.restore_job, "run_on_spark", fill_slowly)
    with SecureBroker(fetch_kafka(KAFKA_41, CACHE), tmp_path / "broker", certificates, **short) as broker:
        broker.grant(*EVERYTHING, user="*")
        create_topic(broker.bootstrap, topic)
        produce_values(broker.bootstrap, topic, [b"one", b"two"])
        assert errors_of_backup(site, broker, topic) == []
        login = {"token_provider": "tests.support.token_server:give_brief"}
        result = run_restore_job(
            config_of(site, broker, topic).storage,
            TargetConfig(kafka=way_in("token of a function", broker) | login),
            RestoreRequest(topics=topic, renames={topic: f"{topic}.back"}),
            restore_id=None,
            notice=lambda _: None,
        )
    (report,) = result.topics
    assert (report.records, report.errors, report.is_finished) == (2, (), True)
    assert len(set(map(id, clients))) == 1
    assert len(connections) > 1
