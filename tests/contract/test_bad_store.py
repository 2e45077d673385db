"""Stores that refuse, are not there, or cannot be trusted: the lines of the table in docs/messages.md."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.auth
import pytest
import yaml

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.segments.probe import probe_store
from archiver.cli.main import main
from tests.contract.conftest import FaultyStore, new_bucket, open_bucket
from tests.support.bad_input import STORE
from tests.support.brokers import S3, Bucket
from tests.support.faulty_s3 import Fault, FaultyS3, Quirk

pytestmark = pytest.mark.s3

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def minio_bucket(minio: S3, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return new_bucket(minio, monkeypatch)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(url: str, endpoint: str, *arguments: str) -> tuple[int, str]:
        path = tmp_path / "archive.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "kafka": {"bootstrap.servers": "127.0.0.1:9"},
                    "storage": {"url": url, "endpoint": endpoint},
                    "topics": {"include": ["orders"]},
                }
            )
        )
        exit_code = main([*arguments, "-c", str(path)])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return exit_code, err

    return run


def check(kind: str, told: tuple[int, str]) -> None:
    exit_code, err = told
    (line,) = (line for line in err.splitlines() if line.startswith("archiver: "))  # moto logs in this process, too
    assert exit_code == STORE[kind].exit_code
    assert STORE[kind].says in line


def test_nobody_is_there(run: Run, faulty: FaultyStore) -> None:
    check("a store that does not answer", run(faulty.bucket.url, "http://127.0.0.1:9", "ls"))


def test_no_bucket(run: Run, faulty: FaultyStore) -> None:
    check("a bucket that does not exist", run("s3://no-such-bucket", faulty.bucket.s3.endpoint, "ls"))


def test_wrong_credentials(run: Run, minio_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    check("a wrong secret key", run(minio_bucket.url, minio_bucket.s3.endpoint, "ls"))


def test_no_credentials(run: Run, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    check("no credentials", run(faulty.bucket.url, faulty.bucket.s3.endpoint, "ls"))


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"])
def test_credentials_that_no_header_takes_are_not_shown(
    run: Run, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As when they are read of a file with its line end."""
    monkeypatch.setenv(name, "pa55-word\n")
    told = run(faulty.bucket.url, faulty.bucket.s3.endpoint, "ls")
    check("a session token with a line break", told)
    assert "pa55-word" not in told[1]


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("http://me:pa55-word@127.0.0.1:9", "no server listens at http://********@127.0.0.1:9; check"),
        ("http://me:pa55-word@127.0.0.1:99999", "http://********@127.0.0.1:99999"),
        ("me:pa55-word@127.0.0.1:9", "storage: Invalid endpoint"),
    ],
)
def test_an_endpoint_of_the_environment_is_named_without_its_user(
    faulty: FaultyStore,
    endpoint: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert main(["ls", "--url", faulty.bucket.url]) in {1, 2, 4}
    _, err = capsys.readouterr()
    assert said in err
    assert "pa55-word" not in err


@pytest.mark.parametrize(("token", "said"), [("t0ken", "records and the session token go"), ("", "records go")])
def test_a_store_that_others_can_listen_to_is_told(
    run: Run, moto_bucket: Bucket, token: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.0.0.0 leads to this machine, and its spelling does not say so."""
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    endpoint = moto_bucket.s3.endpoint.replace("127.0.0.1", "0.0.0.0")
    exit_code, err = run(moto_bucket.url, endpoint, "ls")
    assert exit_code == 0
    (line,) = (line for line in err.splitlines() if " WARNING archiver: " in line)
    assert line.endswith(f"storage.endpoint: to {endpoint} {said} in clear; take https")
    _, err = run(moto_bucket.url, moto_bucket.s3.endpoint, "ls")
    assert "in clear" not in err


@pytest.mark.parametrize("is_of_environment", [False, True])
def test_a_store_without_tls_is_asked_through_no_proxy(
    minio_bucket: Bucket,
    proxied: list[str],
    is_of_environment: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It would read the records, and a session token."""
    endpoint = minio_bucket.s3.endpoint
    (tmp_path / "archive.yaml").write_text(yaml.safe_dump({"storage": {"url": minio_bucket.url, "endpoint": endpoint}}))
    given = ["-c", str(tmp_path / "archive.yaml")]
    if is_of_environment:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        given = ["--url", minio_bucket.url]
    assert main(["ls", *given]) == 0
    assert "nothing is archived there yet" in capsys.readouterr().err
    assert proxied == []


@pytest.mark.parametrize(
    ("kind", "method", "arguments"),
    [
        ("no right to list", "GET", ["ls"]),
        ("no right to read", "GET", ["inspect", "topics/nothing"]),
        ("no right to write", "PUT", ["backup", "--until-end"]),
    ],
)
def test_a_right_is_missing(run: Run, faulty: FaultyStore, kind: str, method: str, arguments: list[str]) -> None:
    with faulty.proxy.failing(Fault.DENIED, method):
        check(kind, run(faulty.bucket.url, faulty.proxy.endpoint, *arguments))


def test_a_clock_is_wrong(run: Run, minio_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    later = datetime.now(UTC) + timedelta(hours=2)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: later.replace(tzinfo=None))
    check("a clock that is wrong", run(minio_bucket.url, minio_bucket.s3.endpoint, "ls"))


@pytest.mark.parametrize("command", [["backup"], ["backup", "--until-end"]])
@pytest.mark.parametrize(
    ("kind", "quirk"),
    [
        ("a store that knows no conditions", Quirk.NO_CONDITIONS),
        ("a store that drops empty metadata", Quirk.DROPS_EMPTY_METADATA),
    ],
)
def test_a_store_is_no_place_for_an_archive(
    run: Run, moto_bucket: Bucket, kind: str, quirk: Quirk, command: list[str]
) -> None:
    """The store will never be usable: also a backup that runs until stopped says so, and ends."""
    with FaultyS3(moto_bucket.s3.endpoint, quirk) as proxy:
        check(kind, run(moto_bucket.url, proxy.endpoint, *command))


def test_a_store_overwrites(run: Run, moto_bucket: Bucket) -> None:
    probe_store(Archive(open_bucket(moto_bucket), Layout()))
    with FaultyS3(moto_bucket.s3.endpoint, Quirk.OVERWRITES) as proxy:
        check("a store that overwrites", run(moto_bucket.url, proxy.endpoint, "backup", "--until-end"))
