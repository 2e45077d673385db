"""`config show` and `config reference`: every key, nothing secret."""

import json
from pathlib import Path

import pytest
import yaml

from archiver.cli.main import main
from archiver.config.kafka_keys import KAFKA_KEYS, SECRET_KEYS, KeyGroup, names_of
from archiver.config.load import load_config
from archiver.config.reference import effective, keys, reference_page
from archiver.kafka.login import security, settings
from archiver.process.output.mask import MASK
from archiver.store.address import group_of
from tests.support.brokers import REPOSITORY

SECRETS = {
    "sasl.password": "pa55-word",
    "ssl.key.password": "key-pa55",
    "ssl.key.pem": "-----BEGIN PRIVATE KEY-----",
    "sasl.oauthbearer.client.secret": "cl1ent-secret",
    "token_proxy": "http://me:pr0xy@proxy:3128",
    "sasl.oauthbearer.extensions": "key=ext3nsion",
}


def test_the_page_is_what_the_program_says() -> None:
    """`make docs` writes it again."""
    assert (REPOSITORY / "docs/configuration.md").read_text(encoding="utf-8") == reference_page()


def test_every_kafka_key_is_taken_by_somebody() -> None:
    by_settings = {"bootstrap.servers", security.PROTOCOL, *settings._NUMBERS, *settings._TEXTS}
    assert set(names_of(KeyGroup.CLIENT)) == by_settings
    assert {security.MECHANISM, security._PLURAL} == set(names_of(KeyGroup.SASL))
    by_name = {security._PROVIDER, security._KERBEROS_SERVICE, *security._OIDC_NEEDED, *security._CHOICES}
    assert by_name <= set(security._KEYS)


def test_the_defaults_that_are_told_hold() -> None:
    told = {key.name: key.default for key in KAFKA_KEYS if key.default not in {"", "none"}}
    made = settings.KafkaSettings.parse({"bootstrap.servers": "a:1"}).for_confluent()
    both = told.keys() & made.keys()
    assert {key: told[key] for key in both} == {key: str(made[key]) for key in both}
    assert len(both) >= 6


def test_every_key_tells_what_it_means_and_takes() -> None:
    for row in keys():
        assert row.meaning
        assert row.kind
    assert "storage.url" in {row.key for row in keys() if not row.default}


def test_what_is_shown_can_be_read_back(tmp_path: Path) -> None:
    """The reference's defaults, and all that `config show` prints, mean the same again."""
    path = tmp_path / "archive.yaml"
    path.write_text(
        "kafka: {bootstrap.servers: 'a:1', client.id: me}\nstorage: {url: s3://bucket/p}\ntopics: {include: [a, b.*]}\n"
    )
    first = load_config(path)
    shown: dict[str, object] = dict(effective(first))
    path.write_text(yaml.safe_dump({key: text for key, text in shown.items() if text}))
    assert load_config(path).model_dump() == first.model_dump()


def test_what_is_printed_is_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "archive.yaml"
    path.write_text(
        """
storage: {url: s3://bucket/p, tags: {team: shop, "a b": "c, d: e", "x: y": "$${z", "g\u00fc": "#"}}
topics: {include: ["a,b", "c{1,2}", "x", "\\\\d+"], exclude: []}
backup: {start: "20301120000", codec: null, segment: {age: 90s}}
kafka: {bootstrap.servers: "a:1,b:2", client.id: "$${NAME}"}
""".replace('"20301120000"', "1970-08-23T23:25:20Z")
    )
    first = load_config(path)
    assert first.topics.include == ("a,b", "c{1,2}", "x", r"\d+")
    assert main(["config", "show", "-c", str(path)]) == 0
    path.write_text(capsys.readouterr().out)
    again = load_config(path)
    assert again.backup.group == group_of(first)  # which is spelled out now
    assert again.model_dump(exclude={"backup": {"group"}}) == first.model_dump(exclude={"backup": {"group"}})
    assert main(["config", "show", "-c", str(path), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["topics.include"], shown["topics.exclude"]) == (list(first.topics.include), [])
    assert (shown["backup.start"], shown["kafka.client.id"]) == ("1970-08-23T23:25:20.000Z", "${NAME}")


def test_what_a_kafka_key_takes_is_what_is_taken() -> None:
    takes = {key.name: key.takes for key in KAFKA_KEYS}
    assert takes[security.PROTOCOL].split(", ") == list(security.SecurityProtocol)
    assert takes[security.MECHANISM].split(", ") == list(security._BY_MECHANISM)
    assert {key: tuple(takes[key].split(", ")) for key in security._CHOICES} == dict(security._CHOICES)
    numbers = {key for key, kind in takes.items() if kind == "milliseconds"}
    assert numbers == set(settings._NUMBERS) & takes.keys()


def test_secrets_are_masked_wherever_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(SECRETS) == SECRET_KEYS
    (tmp_path / "password").write_text(f"{SECRETS['sasl.password']}\r\n")
    monkeypatch.setenv("KEY_PASSWORD", SECRETS["ssl.key.password"])
    kafka = {"bootstrap.servers": "a:1", **SECRETS}
    kafka |= {"sasl.password": f"${{file:{tmp_path / 'password'}}}", "ssl.key.password": "${KEY_PASSWORD}"}
    path = tmp_path / "archive.yaml"
    path.write_text(yaml.safe_dump({"kafka": kafka, "storage": {"url": "s3://bucket"}}))
    config = load_config(path)
    assert config.kafka["sasl.password"] == SECRETS["sasl.password"]
    shown = dict(effective(config))
    assert [shown[f"kafka.{key}"] for key in SECRETS] == [MASK] * len(SECRETS)
    assert not [secret for secret in SECRETS.values() if secret in repr(config)]
    # They cannot go together: what is refused is told without them, too.
    assert main(["config", "show", "-c", str(path)]) == 2
    said = "".join(capsys.readouterr())
    assert f"{path}:" in said
    assert not [secret for secret in SECRETS.values() if secret in said]


def test_a_key_in_a_token_endpoint_is_masked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafka = {
        "bootstrap.servers": "a:1",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "cl1ent-secret",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token?api_key=hunter2",
    }
    path = tmp_path / "archive.yaml"
    path.write_text(yaml.safe_dump({"kafka": kafka, "storage.url": "s3://bucket"}))
    assert main(["config", "show", "-c", str(path)]) == 0
    said = "".join(capsys.readouterr())
    assert f"https://login/token?{MASK}" in said
    assert not [secret for secret in ("hunter2", "cl1ent") if secret in said]


def test_show_prints_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "archive.yaml"
    path.write_text("storage: {url: s3://bucket/p}\nbackup: {segment: {bytes: 1.5MiB}}\n")
    assert main(["config", "show", "-c", str(path), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["backup.segment.bytes"], shown["backup.segment.age"]) == ("1536KiB", "5min")
    assert main(["config", "show", "-c", str(path)]) == 0
    assert 'backup.segment.bytes: "1536KiB"' in capsys.readouterr().out
    assert main(["config", "reference", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert "kafka.sasl.password" in {row["key"] for row in rows}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("${file:/nowhere/at/all}", "/nowhere/at/all cannot be read: No such file"),
        ("${NOBODY_HAS_SET_THIS}", "the environment has no NOBODY_HAS_SET_THIS"),
    ],
)
def test_a_secret_that_is_not_there_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, named: str
) -> None:
    path = tmp_path / "archive.yaml"
    path.write_text(f"storage:\n  url: s3://bucket\nkafka:\n  sasl.password: {text}\n")
    assert main(["config", "show", "-c", str(path)]) == 2
    assert f"{path}:4: kafka.sasl.password: {named}" in capsys.readouterr().err


def test_a_password_that_goes_in_clear_is_told_at_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "hunter2"}
    kafka = {"bootstrap.servers": "broker:1", "security.protocol": "sasl_plaintext", **login}
    path = tmp_path / "archive.yaml"
    path.write_text(yaml.safe_dump({"storage": {"url": "s3://bucket"}, "kafka": kafka}))
    assert main(["config", "show", "-c", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    (line,) = err.splitlines()
    assert f" WARNING archiver: {path}:" in line
    assert "kafka.security.protocol: with sasl_plaintext and PLAIN the password goes in clear to the brokers" in line
