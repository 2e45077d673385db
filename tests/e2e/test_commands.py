"""The installed command with real files, a real broker and a real S3: what it prints, and how it ends."""

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from archiver.cli.main import main
from archiver.store.port import ObjectKind
from tests.support.bad_input import MACHINE
from tests.support.brokers import REPOSITORY, S3, Broker, Bucket
from tests.support.bucket_archive import BucketArchive
from tests.support.cat_lines import cat_line
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.forked_commands import COMMAND
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.raw_produce import produce_raw, produce_records
from tests.support.records import NOW_MS, Rec, generate
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, archive_site, environment_of

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.s3]

SPARK_S = 240.0  # a start takes 50 s where others want both cores, too
COMMANDS = (
    "demo", "backup", "ls", "cat", "inspect", "verify", "restore", "query", "spark-env pack", "spark-env entry",
    "config show", "config reference", "compacted run", "compacted status", "compacted clear", "groups show", "groups translate", "groups apply", "groups rollback", "groups fold",
    "retention", "hold add", "hold list", "hold release",
)  # fmt: skip


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


def test_help_tells_the_commands_and_the_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(tmp_path, "--help")
    assert_clean(done, 0)
    assert all(name.split()[0] in done.stdout for name in COMMANDS)
    for name in (*COMMANDS, "spark-env", "config"):
        assert exit_code_of(*name.split(), "--help") == 0
        assert "exit status:" in capsys.readouterr().out
    assert_clean(run(tmp_path, "--version"), 0)


def exit_code_of(*arguments: str) -> object:
    """Of the command in this process."""
    try:
        return main(arguments)
    except SystemExit as left:  # argparse's own end
        return left.code


def test_an_output_that_cannot_be_written_is_told() -> None:
    answer = MACHINE["an output that cannot be written"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(COMMAND), "config", "reference"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == answer.exit_code
    assert answer.says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("shell", "exit_code", "said"),
    [
        ("--help > /dev/full", 1, "the output could not be written: No space left on device"),
        ("--help | true", 0, ""),
        ("config reference >&-", 0, ""),
        ("config show -c absent.yaml >&-", 2, "absent.yaml: cannot be read"),
        ("config show -c absent.yaml 2>&-", 2, ""),
        ("config show -c absent.yaml 2>/dev/full", 2, ""),
        ("config show -c absent.yaml --log-format json 2>/dev/full", 2, ""),
        ("config show -c polish.yaml <&-", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full_or_know_ascii_alone(
    tmp_path: Path, shell: str, exit_code: int, said: str
) -> None:
    (tmp_path / "polish.yaml").write_text("{storage.url: s3://bucket, kafka.bootstrap.servers: żółw-🐢}", "utf-8")
    done = subprocess.run(
        ["bash", "-c", f'"{COMMAND}" {shell}; exit ${{PIPESTATUS[0]}}'],
        capture_output=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "PYTHONIOENCODING": "ascii"},
        timeout=60,
        check=False,
    )
    assert done.returncode == exit_code, done.stderr
    (line,) = done.stderr.decode().splitlines() or [""]
    assert said in line
    assert bool(line) == bool(said)
    if "polish" in shell:
        assert "żółw-🐢" in done.stdout.decode()


def test_no_place_for_compiled_kernels_is_told_and_stops_nothing(tmp_path: Path) -> None:
    """Where folders should be there are files: permissions would not keep root out."""
    answer = MACHINE["no writable place for compiled kernels"]
    package = tmp_path / "archiver"
    shutil.copytree(REPOSITORY / "archiver", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "codec" / "kernels" / "__pycache__").write_text("")
    (tmp_path / ".cache").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", "import archiver.codec.kernels.jit as jit; print(jit.__file__, jit.kernel_cache())"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (
        answer.exit_code,
        [str(package / "codec" / "kernels" / "jit.py"), "None"],
    )
    assert answer.says in done.stderr


@pytest.mark.parametrize(("arguments", "named"), [(["bakcup"], "bakcup"), (["backup"], "no configuration")])
def test_a_mistake_ends_the_program_with_2(tmp_path: Path, arguments: list[str], named: str) -> None:
    """One that the command line tells by itself, and one of ours."""
    done = run(tmp_path, *arguments)
    assert_clean(done, 2)
    assert named in done.stderr
    assert done.stdout == ""


# --- there and back


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_topic_goes_to_s3_and_comes_back(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int, pytestconfig: pytest.Config
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
    assert done.stdout.startswith("0 records archived")

    check_ls(site, topic)
    check_cat(site, topic, source[0])
    done = site.run("restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.back", timeout_s=SPARK_S)
    assert_clean(done, 0)
    assert "--delete-config retention.bytes" in done.stdout
    assert "--add-config retention.ms=-1" not in done.stdout  # that holds already
    assert done.stdout.count("verified") == 2
    target = java_oracle.consume(broker_41.bootstrap, f"{topic}.back").records
    assert target == {0: [replace(record, timestamp_type=0) for record in source[0]], 1: []}

    check_other_targets(site.run if pytestconfig.getoption("--long") else site.run_within, topic)
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
    done = site.run("restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.again", timeout_s=SPARK_S)
    assert_clean(done, 3)
    assert damaged in done.stderr
    assert "FAILED" in done.stdout
    assert java_oracle.consume(broker_41.bootstrap, f"{topic}.again").records[1] == []


def check_other_targets(run: Callable[..., subprocess.CompletedProcess[str]], topic: str) -> None:
    """What is there already is refused; what was restored comes behind it, and in its place."""
    done = run("restore", "--target", "target.yaml")
    assert_clean(done, 2)
    assert f"{topic} is not empty" in done.stderr
    command = ["restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.back", "--format", "json"]
    done = run(*command, "--into-existing")
    assert_clean(done, 0)
    (told,) = json.loads(done.stdout)["topics"]
    assert (told["appends"], told["records"], told["partitions"][0]["already_there"]) == (True, 400, 0)
    done = run(*command, "--purge-target", "--retention", "archived", "--replication-factor", "1")
    assert_clean(done, 0)
    assert f"{topic}.back: was deleted with all its records" in done.stderr
    (told,) = json.loads(done.stdout)["topics"]
    assert (told["appends"], told["records"], told["expiring"]) == (False, 400, {"at_least": 0, "at_most": 0})
    assert told["retention"].startswith("retention.ms=-1")


def check_ls(site: ArchiveSite, topic: str) -> None:
    done = site.run("ls")
    assert_clean(done, 0)
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith(topic))
    assert row[1:4] == ["1", "0..400", "400"]
    done = site.run_within("ls", topic, "--format", "json")
    assert_clean(done, 0)
    rows = json.loads(done.stdout)["holdings"]
    assert [(row["partition"], row["segments"], row["records"], row["gaps"]) for row in rows] == [
        (0, 3, 400, 0),
        (1, 0, 0, 0),
    ]
    done = site.run_within("ls", "nothing")
    assert_clean(done, 2)
    assert "nothing" in done.stderr


def check_cat(site: ArchiveSite, topic: str, records: Sequence[Rec]) -> None:
    done = site.run("cat", topic)
    assert_clean(done, 0)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [cat_line(record, 0) for record in records]
    done = site.run_within("cat", topic, "--partition", "0", "--from-offset", "297", "--limit", "5")
    assert_clean(done, 0)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        cat_line(record, 0) for record in records[297:302]
    ]
    done = site.run_within("cat", topic, "--partition", "7")
    assert_clean(done, 2)
    done = site.run("cat", topic, "--url", site.bucket.url)
    assert done.returncode != 0  # that bucket is not on AWS, and no endpoint was named
    assert "Traceback" not in done.stderr


# --- pipes, and parts that are away


@pytest.mark.parametrize(
    ("count", "reader"),
    [
        pytest.param(*case, marks=() if case in {(3, "true"), (20_000, "head -n 1")} else pytest.mark.long)
        for case in product([3, 20_000], ["head -n 1", "true", "sleep 0.1"])
    ],
)
def test_a_reader_that_goes_away_is_no_error(whole: ArchiveSite, reader: str, count: int) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"{COMMAND}" cat of-{count} | {reader}; exit ${{PIPESTATUS[0]}}'],
        capture_output=True,
        text=True,
        cwd=whole.folder,
        env=environment_of(whole.bucket),
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    if reader.startswith("head"):
        assert json.loads(done.stdout)["offset"] == 0


@pytest.mark.sampled(5)
@pytest.mark.parametrize("reader", ["head -n 1", "true"])
@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("ls", 3),
        ("ls --format json", 3),
        ("cat orders", 3),
        ("cat orders --from-offset 20", 0),  # what is damaged is not wanted
        ("verify --quiet", 3),
        ("verify --quiet --format json", 3),
        ("verify 2>&1", 3),
        ("config reference", 0),
    ],
)
def test_a_reader_that_goes_away_does_not_hide_what_is_wrong(
    damaged: ArchiveSite, command: str, exit_code: int, reader: str
) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"{COMMAND}" {command} | {reader}; exit ${{PIPESTATUS[0]}}'],
        capture_output=True,
        text=True,
        cwd=damaged.folder,
        env=environment_of(damaged.bucket),
        timeout=60,
        check=False,
    )
    assert done.returncode == exit_code
    assert all(line.startswith("archiver: ") for line in done.stderr.splitlines())


@contextmanager
def laid_out(minio: S3, folder: Path) -> Iterator[tuple[ArchiveSite, BucketArchive]]:
    bucket = Bucket(minio, f"laid-out-{uuid.uuid4().hex[:12]}")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    with archive_site(bucket, folder) as site:
        site.write_config("127.0.0.1:9", "orders")
        yield site, BucketArchive(bucket, folder)


@pytest.fixture(scope="module")
def whole(minio: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveSite]:
    """A topic that a pipe holds, and one that it does not."""
    with laid_out(minio, tmp_path_factory.mktemp("whole")) as (site, archive):
        for count in (3, 20_000):
            archive.write_topic_fact(f"of-{count}")
            rows = [Rec(at, NOW_MS, 0, b"k", b"value %d" % at) for at in range(count)]
            archive.put(f"of-{count}", 0, rows, each=count)
        yield site


@pytest.fixture(scope="module")
def damaged(minio: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveSite]:
    """An archive with a gap, and with more to tell than a pipe holds."""
    with laid_out(minio, tmp_path_factory.mktemp("damaged")) as (site, archive):
        archive.write_topic_fact("orders")
        keys = archive.put("orders", 0, [Rec(at, NOW_MS, 0, b"k", b"v" * 1000) for at in range(200)], each=10)
        archive.store.delete(keys[1:2])
        for number in range(300):
            archive.store.put_if_absent(f"topics/orders/{'stranger' * 25}{number}", b"", {}, kind=ObjectKind.FACT)
        yield site


@pytest.mark.parametrize(
    ("until", "other"),
    [(["--until-end"], ""), ([], ""), (["--until-end"], "-other")],
    ids=["until-end", "ever", "other"],
)
def test_a_second_cluster_is_kept_out_of_a_prefix(
    broker_41: Broker, broker_39: Broker, topic: str, site: ArchiveSite, until: list[str], other: str
) -> None:
    """Two configurations with one prefix, each with a cluster of its own, which have a topic of one name, or none in common."""
    for broker, name, count in ((broker_41, topic, 3), (broker_39, topic + other, 5)):
        create_topic(broker.bootstrap, name, configs=KEEP_ALL)
        produce_raw(broker.bootstrap, name, [encode(batch_of([Rec(at, NOW_MS, 0, b"k", b"v") for at in range(count)]))])
    site.back_up(broker_41.bootstrap, topic)
    before = objects_of(site)
    site.write_config(broker_39.bootstrap, topic + other)
    done = site.run("backup", "--quiet", *until)
    assert_clean(done, 3)
    (line,) = done.stderr.splitlines()
    assert line.startswith("archiver: control/cluster/000000.json: this archive belongs to cluster ")
    assert f"belongs to cluster {cluster_of(broker_41)}, and this is {cluster_of(broker_39)};" in line
    assert objects_of(site) == before
    assert [report.position for report in site.back_up(broker_41.bootstrap, topic).values()] == [3]


def objects_of(site: ArchiveSite) -> dict[str, str]:
    client = s3_client(site.bucket)
    return {key: client.head_object(Bucket=site.bucket.name, Key=key)["ETag"] for key in keys_in(site.bucket)}


def cluster_of(broker: Broker) -> str:
    return str(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).cluster_id)


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
