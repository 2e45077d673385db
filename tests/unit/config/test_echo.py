"""No error of the configuration repeats what somebody wrote there: a secret may stand under any key, or be one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

import pytest
import yaml

from archiver.config.kafka_keys import KAFKA_KEYS, KeyGroup
from archiver.config.load import config_from_url, load_config
from archiver.config.reference import keys
from archiver.errors import UsageError
from archiver.kafka.login.settings import KafkaSettings

SECRET = "hunter2"
SHAPES = (
    "{}",
    "{}!x",
    "4{}",
    "{} word",
    "a,{}",
    "u:{}",
    "u:{}@h:1",
    "{}@h:1",
    "h:1@{}",
    "h:{}",
    "s3://AK:{}/p",
    "s3://{}@bucket/p",
    "SASL://u:{}",
    "https://u:{}@h",
    "https://h:{}/p",
    "https://h/?{}",
    "https://h?{}",
    "https://h/p#{}",
    "http://elsewhere/{}",
    "(?P={})",
    "({}",
    "/nowhere/{}",
    "-----BEGIN {}",
    ["{}"],
    [["{}"]],
    [{"{}": "{}"}],
    {"{}": "{}"},
    {"a": {"{}": "{}"}},
    {"{}": None},
)
MECHANISMS = {KeyGroup.PASSWORD: "PLAIN", KeyGroup.KERBEROS: "GSSAPI", KeyGroup.TOKEN: "OAUTHBEARER"}
OIDC = {
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "x",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
}


def filled(shape: object) -> object:
    match shape:
        case str():
            return shape.format(SECRET)
        case list():
            return [filled(one) for one in shape]
        case dict():
            return {filled(key): filled(one) for key, one in shape.items()}
        case _:
            return shape


def places() -> Iterator[tuple[str, dict[str, object]]]:
    """Every key that there is, and what it goes with; and places where there is none."""
    for row in keys():
        if not row.key.startswith("kafka"):
            yield row.key.replace(".*", ".a"), {}
    for key in KAFKA_KEYS:
        mechanism = MECHANISMS.get(key.group, "PLAIN")
        with_sasl = {"security.protocol": "sasl_ssl", "sasl.mechanism": mechanism}
        beside = with_sasl if key.group in {*MECHANISMS, KeyGroup.SASL} else {}
        beside |= {"security.protocol": "ssl"} if key.group is KeyGroup.TLS else {}
        beside |= OIDC if key.group is KeyGroup.TOKEN and key.name != "token_provider" else {}
        beside |= (
            {"sasl.username": "u", "sasl.password": "x"} if mechanism == "PLAIN" and "sasl.mechanism" in beside else {}
        )
        yield f"kafka.{key.name}", {f"kafka.{name}": value for name, value in beside.items() if name != key.name}
    for section in ("", "storage.", "storage.tags.", "backup.", "backup.segment.", "kafka.", "kafka.sasl.", "metrics."):
        for name in (SECRET, f"sasl.password={SECRET}", f"sasl.password {SECRET}", f"sasl.pasword.{SECRET}"):
            yield f"{section}{name}", {}


def problem_of(path: Path, tree: Mapping[str, object]) -> str:
    path.write_text(yaml.safe_dump(dict(tree), allow_unicode=True), encoding="utf-8")
    try:
        config = load_config(path)
        KafkaSettings.of(config)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("key", "beside"), list(places()), ids=lambda one: one if isinstance(one, str) else "")
def test_no_error_repeats_a_value_or_a_key_that_nobody_knows(
    tmp_path: Path, pytestconfig: pytest.Config, key: str, beside: Mapping[str, object]
) -> None:
    """Without --long each key with every third shape, and with each shape some keys."""
    shapes = SHAPES if pytestconfig.getoption("--long") else SHAPES[crc32(key.encode()) % 3 :: 3]
    good = {"storage.url": "s3://bucket", "kafka.bootstrap.servers": "127.0.0.1:1"}
    path = tmp_path / "archive.yaml"
    for shape in shapes:
        said = problem_of(path, {**good, **beside, key: filled(shape)})
        assert SECRET not in said.lower(), shape
        assert not said or str(path) in said


def test_each_error_tells_its_place(tmp_path: Path) -> None:
    path = tmp_path / "archive.yaml"
    path.write_text(f"storage.url: s3://bucket\nkafka:\n  bootstrap.servers: a:1\n  sasl.pasword={SECRET}: x\n")
    config = load_config(path)
    with pytest.raises(UsageError, match=rf"^{path}:4: a key below kafka.sasl has an = in it") as caught:
        KafkaSettings.of(config)
    assert SECRET not in str(caught.value)


def test_an_address_of_the_command_line_is_not_repeated_either() -> None:
    for url in ("s3://AK:hunter2/p", "https://u:hunter2@h/p", "s3://bucket/a b#hunter2"):
        with pytest.raises(UsageError, match=r"^--url: ") as caught:
            config_from_url(url)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("port", ["99999", "abc", "0", "1:2", ""])
def test_a_port_that_there_cannot_be_is_told_with_the_configuration(tmp_path: Path, port: str) -> None:
    key = "sasl.oauthbearer.token.endpoint.url"
    beside = {f"kafka.{name}": value for name, value in OIDC.items()}
    beside |= {
        "kafka.security.protocol": "sasl_ssl",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "storage.url": "s3://bucket",
    }
    beside |= {"kafka.bootstrap.servers": "a:1"}
    said = problem_of(tmp_path / "archive.yaml", {**beside, f"kafka.{key}": f"https://login.example.org:{port}/token"})
    assert f"kafka.{key}: is not like https://host:port/path" in said
