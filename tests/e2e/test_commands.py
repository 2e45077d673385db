"""The installed command with real files, a real broker and a real S3: what it prints, and how it ends."""

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.bad_input import MACHINE
from tests.support.brokers import REPOSITORY, Broker
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.raw_produce import produce_raw, produce_records
from tests.support.records import NOW_MS, Headers, Rec, generate
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import COMMAND, KEEP_ALL, ArchiveSite, environment_of

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.s3]

COMMANDS = ("demo", "backup", "ls", "cat", "inspect", "verify", "restore", "config show", "config reference")


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without an archive: nothing of ours in the environment."""
    return subprocess.run(
        [str(COMMAND), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environment},
        timeout=60,
        check=False,
    )


def assert_clean(done: subprocess.CompletedProcess[str], exit_code: int) -> None:
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == exit_code, f"{done.returncode}: {done.stdout}{done.stderr}"


# --- without a broker


def test_help_tells_the_commands_and_the_exit_codes(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    assert_clean(done, 0)
    assert all(name.split()[0] in done.stdout for name in COMMANDS)
    for name in COMMANDS:
        done = run(tmp_path, *name.split(), "--help")
        assert_clean(done, 0)
        assert "exit status:" in done.stdout
    assert_clean(run(tmp_path, "--version"), 0)


def test_an_output_that_cannot_be_written_is_told() -> None:
    answer = MACHINE["an output that cannot be written"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(COMMAND), "config", "reference"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == answer.exit_code
    assert answer.says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_place_for_compiled_kernels_is_told_and_stops_nothing(tmp_path: Path) -> None:
    """Where folders should be there are files: permissions would not keep root out."""
    answer = MACHINE["no writable place for compiled kernels"]
    package = tmp_path / "archiver"
    shutil.copytree(REPOSITORY / "archiver", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "codec" / "__pycache__").write_text("")
    (tmp_path / ".cache").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", "import archiver.codec.jit as jit; print(jit.__file__, jit.cache_directory())"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (answer.exit_code, [str(package / "codec" / "jit.py"), "None"])
    assert answer.says in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "COMMAND"),
        (["bakcup"], "bakcup"),
        (["backup"], "no configuration"),
        (["cat"], "TOPIC"),
        (["restore"], "--target"),
        (["backup", "--until-end"], "no configuration"),
        (["backup", "--until-end", "-c", "absent.yaml"], "absent.yaml"),
        (["backup", "--until-end", "-c", "typo.yaml"], "stroage"),
        (["ls", "--url", "file:///tmp"], "s3://"),
        (["cat", "t", "--url", "s3://bucket/x", "--partition", "one"], "--partition"),
        (["cat", "t", "--url", "s3://bucket/x", "--limit", "-1"], "--limit"),
        (["restore", "--target", "absent.yaml", "--url", "s3://bucket/x"], "absent.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes_are_named_and_end_with_2(tmp_path: Path, arguments: list[str], named: str) -> None:
    (tmp_path / "typo.yaml").write_text("stroage:\n  url: s3://bucket\n")
    done = run(tmp_path, *arguments)
    assert_clean(done, 2)
    assert named in done.stderr
    assert done.stdout == ""


# --- there and back


def tell(record: Rec, partition: int) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type,
        "key": tell_bytes(record.key),
        "value": tell_bytes(record.value),
        "headers": tell_headers(record.headers),
    }


def tell_headers(headers: Headers) -> list[list[dict[str, str] | None]]:
    return [[tell_bytes(key), tell_bytes(value)] for key, value in headers]


def tell_bytes(content: bytes | None) -> dict[str, str] | None:
    if content is None:
        return None
    try:
        return {"utf8": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_topic_goes_to_s3_and_comes_back(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int
) -> None:
    create_topic(broker_41.bootstrap, topic, partitions=2, configs=KEEP_ALL | {"segment.ms": "600000"})
    produce_records(broker_41.bootstrap, topic, generate(seed, 400), "zstd")
    source = java_oracle.consume(broker_41.bootstrap, topic).records
    site.write_config(broker_41.bootstrap, topic, records=150)
    site.write_target(broker_41.bootstrap)

    done = site.run("backup", "--until-end", "--format", "json")
    assert_clean(done, 0)
    report = json.loads(done.stdout)["partitions"]
    assert [(row["partition"], row["records"], row["position"], row["error"]) for row in report] == [
        (0, 400, 400, None),
        (1, 0, 0, None),
    ]
    done = site.run("backup", "--until-end")
    assert_clean(done, 0)
    assert "\n0 records archived" in done.stdout

    check_ls(site, topic)
    check_cat(site, topic, source[0])
    done = site.run("restore", "--target", "target.yaml")
    assert_clean(done, 1)
    assert f"{topic} is not empty" in done.stderr

    done = site.run("restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.back")
    assert_clean(done, 0)
    assert "--add-config retention.ms=-1" in done.stdout
    assert done.stdout.count("verified") == 2
    target = java_oracle.consume(broker_41.bootstrap, f"{topic}.back").records
    assert target == {0: [replace(record, timestamp_type=0) for record in source[0]], 1: []}

    damaged = keys_in(site.bucket, f"topics/{topic}/")[1]
    found = s3_client(site.bucket).get_object(Bucket=site.bucket.name, Key=damaged)
    body = bytearray(found["Body"].read())
    body[-1] ^= 1
    s3_client(site.bucket).put_object(
        Bucket=site.bucket.name, Key=damaged, Body=bytes(body), Metadata=found["Metadata"]
    )
    done = site.run("cat", topic)
    assert_clean(done, 3)
    assert damaged in done.stderr
    left = [json.loads(line)["offset"] for line in done.stdout.splitlines()]
    assert left == [*range(150), *range(300, 400)]
    done = site.run("restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.again")
    assert_clean(done, 3)
    assert damaged in done.stderr
    assert "FAILED" in done.stdout
    assert java_oracle.consume(broker_41.bootstrap, f"{topic}.again").records[1] == []


def check_ls(site: ArchiveSite, topic: str) -> None:
    done = site.run("ls")
    assert_clean(done, 0)
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith(topic))
    assert row[1:4] == ["1", "0..400", "400"]
    done = site.run("ls", topic, "--format", "json")
    assert_clean(done, 0)
    rows = json.loads(done.stdout)["holdings"]
    assert [(row["partition"], row["segments"], row["records"], row["gaps"]) for row in rows] == [
        (0, 3, 400, 0),
        (1, 0, 0, 0),
    ]
    done = site.run("ls", "nothing")
    assert_clean(done, 2)
    assert "nothing" in done.stderr


def check_cat(site: ArchiveSite, topic: str, records: Sequence[Rec]) -> None:
    done = site.run("cat", topic)
    assert_clean(done, 0)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [tell(record, 0) for record in records]
    done = site.run("cat", topic, "--partition", "0", "--from-offset", "297", "--limit", "5")
    assert_clean(done, 0)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [tell(record, 0) for record in records[297:302]]
    done = site.run("cat", topic, "--partition", "7")
    assert_clean(done, 2)
    done = site.run("cat", topic, "--url", site.bucket.url)
    assert done.returncode != 0  # that bucket is not on AWS, and no endpoint was named
    assert "Traceback" not in done.stderr


# --- pipes, and parts that are away


@pytest.mark.parametrize("reader", ["head -n 1", "true", "sleep 0.1"])
@pytest.mark.parametrize("count", [3, 20_000])
def test_a_reader_that_goes_away_is_no_error(
    broker_41: Broker, topic: str, site: ArchiveSite, reader: str, count: int
) -> None:
    create_topic(broker_41.bootstrap, topic, configs=KEEP_ALL)
    rows = [Rec(at, NOW_MS, 0, b"k", b"value %d" % at) for at in range(count)]
    produce_raw(broker_41.bootstrap, topic, [encode(batch_of(rows))])
    site.back_up(broker_41.bootstrap, topic)
    site.write_config(broker_41.bootstrap, topic)
    done = subprocess.run(
        ["bash", "-c", f'"{COMMAND}" cat {topic} | {reader}; exit ${{PIPESTATUS[0]}}'],
        capture_output=True,
        text=True,
        cwd=site.folder,
        env=environment_of(site.bucket),
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    if reader.startswith("head"):
        assert json.loads(done.stdout)["offset"] == 0


def test_parts_that_are_away_are_named(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    path = site.write_config("127.0.0.1:9", topic)
    done = site.run("backup", "--until-end")
    assert_clean(done, 4)
    assert "127.0.0.1:9" in done.stderr
    text = path.read_text()
    path.write_text(text.replace(site.bucket.url, "s3://no-such-bucket"))
    done = site.run("ls")
    assert_clean(done, 1)
    assert "no-such-bucket" in done.stderr
    path.write_text(text.replace(site.bucket.s3.endpoint, "http://127.0.0.1:9"))
    done = site.run("ls")
    assert_clean(done, 4)
    site.write_config(broker_41.bootstrap, "nothing-.*")
    done = site.run("backup", "--until-end")
    assert_clean(done, 2)
    assert "nothing to archive" in done.stderr
