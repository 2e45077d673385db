"""Bad input of every kind: one clear line, the right exit code, nothing lost. The table is in docs/messages.md."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import archiver.archive.format.handle
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import record_cluster
from archiver.archive.segments.segment_facts import facts_from_metadata
from archiver.archive.segments.segment_writer import OpenSegment
from archiver.archive.segments.spool import Spool
from archiver.cli.main import main
from archiver.codec.avro import encode_header
from archiver.codec.compression import BlockCodec
from archiver.errors import NotWholeError
from archiver.store.port import ObjectKind
from tests.support.bad_input import ALL, ARCHIVE, COMMAND_LINE, CONFIGURATION, Answer, table
from tests.support.brokers import REPOSITORY
from tests.support.frames import frame_of
from tests.support.memory_store import MemoryStore, StoredObject
from tests.support.records import Rec
from tests.support.secure_broker import Certificates
from tests.support.segments import NO_LIMIT, SOURCE, content_of

LAYOUT = Layout("p")
PROGRESS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO archiver\.progress: .+ activity=\w+ seconds=[\d.]+")
Told = tuple[int, str, str]  # exit code, standard output, standard error


def check(answer: Answer, told: Told) -> None:
    """One line says it; what else is on standard error are lines of progress, as the log writes them."""
    exit_code, out, err = told
    assert exit_code == answer.exit_code
    lines = [line for line in err.splitlines() if not PROGRESS.fullmatch(line)]
    if answer.exit_code:
        (line,) = lines
        assert line.startswith("archiver: ")
        assert answer.says in line
    else:
        assert lines == []
        assert answer.says in out


def test_the_table_is_in_the_documents() -> None:
    """Written from tests/support/bad_input.py."""
    assert table() in (REPOSITORY / "docs/messages.md").read_text(encoding="utf-8")


def test_there_are_many() -> None:
    assert len(ALL) >= 40


# --- the configuration


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


TREE: dict[str, dict[str, object]] = {
    "storage": {"url": "s3://bucket/p"},
    "topics": {"include": ["orders"]},
    "kafka": {"bootstrap.servers": "a:1"},
}
SCRAM = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice"}
TLS = {"security.protocol": "ssl"}

# What stands in the file, as text, or what is changed in a good one: by dotted key, None takes it out.
CHANGES: dict[str, str | dict[str, object]] = {
    "a file that is not YAML": "storage: [",
    "a password that YAML takes for an alias": "kafka.sasl.password: *pa55-word",
    "a password that YAML takes for a tag": "kafka.sasl.password: !pa55-word",
    "a password that YAML takes for keys": "storage.url: s3://bucket\nkafka: {sasl.password: {pa55-word}}",
    "a key that is a list": "storage.url: s3://bucket\nkafka:\n  ? [sasl.password, pa55-word]\n  : x\n",
    "an alias of what it stands in": "storage.url: s3://bucket\ntopics.include: &x [a, [*x]]",
    "merge keys": "storage.url: s3://bucket\nkafka: {<<: {client.id: me}}",
    "a list instead of keys": "- storage",
    "a password that YAML takes for keys, under an unknown one": "storage.url: s3://bucket\nkafka: {sasl.passwort: {pa55-word: x}}",
    "an unknown key": {"storage.ulr": "s3://b"},
    "a key that is given twice": "storage.url: s3://bucket\nstorage: {url: s3://bucket}\n",
    "a required key that is missing": {"storage.url": None},
    "a size that is none": {"backup.segment.bytes": "lots"},
    "a duration without a unit": {"backup.segment.age": "5"},
    "a number that is too small": {"backup.memory": "1KiB"},
    "a level that the codec does not have": {"backup.codec.level": "30"},
    "a regular expression that is none": {"topics.include": ["("]},
    "a text where a list goes": {"topics.include": "orders"},
    "a port that is none": {"metrics.listen": "127.0.0.1:99999"},
    "a start that is a date without its dashes": {"backup.start": "20261120"},
    "a store's CA file that is a folder": {"storage.ca-file": "/"},
    "a URL that is not S3": {"storage.url": "http://bucket/p"},
    "a name that no bucket can have": {"storage.url": "s3://b/p"},
    "an endpoint that is no address": {"storage.endpoint": "127.0.0.1:9000"},
    "a storage class that cannot be read at once": {"storage.storage-class": "GLACIER"},
    "an environment variable that is not set": {"kafka.client.id": "${NOBODY_SET_THIS}"},
    "a variable that is spelled wrong": {"kafka.sasl.password": "${PASSWORD:-pa55-word}"},
    "a secret's file that is not there": {"kafka.sasl.password": "${file:/nowhere/secret}"},
    "a backup without topics": {"topics.include": None},
    "a backup without brokers": {"kafka.bootstrap.servers": None},
    "a broker's address that is none": {"kafka.bootstrap.servers": "http://broker"},
    "an unknown Kafka key": {"kafka.client.ids": "me"},
    "a password without security.protocol": {"kafka.sasl.password": "pa55-word"},
    "an unknown security.protocol": {"kafka.security.protocol": "tls"},
    "an unknown sasl.mechanism": {**{f"kafka.{key}": text for key, text in SCRAM.items()}, "kafka.sasl.mechanism": "MD5"},
    "two mechanisms that differ": {**{f"kafka.{key}": text for key, text in SCRAM.items()}, "kafka.sasl.mechanisms": "PLAIN"},
    "a key's text in place of its file": {
        "kafka.security.protocol": "ssl",
        "kafka.ssl.certificate.location": "CLIENT.pem",
        "kafka.ssl.key.location": "-----BEGIN PRIVATE KEY-----\npa55-word",
    },
    "SCRAM without a password": {f"kafka.{key}": text for key, text in SCRAM.items()},
    "a CA file that is not there": {"kafka.security.protocol": "ssl", "kafka.ssl.ca.location": "/nowhere/ca.pem"},
    "a CA file that is none": {"kafka.security.protocol": "ssl", "kafka.ssl.ca.location": __file__},
    "a certificate without its key": {"kafka.security.protocol": "ssl", "kafka.ssl.certificate.location": "CLIENT.pem"},
    "a key that is another certificate's": {
        "kafka.security.protocol": "ssl",
        "kafka.ssl.certificate.location": "CLIENT.pem",
        "kafka.ssl.key.location": "BROKER.key",
    },
    "a token_provider that is not there": {
        "kafka.security.protocol": "sasl_plaintext",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.token_provider": "no_such_module:token",
    },
    "a token_provider that cannot be imported": {
        "kafka.security.protocol": "sasl_plaintext",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.token_provider": "tests.support.broken_tokens:token",
    },
    "a choice that is none": {"kafka.security.protocol": "ssl", "kafka.enable.ssl.certificate.verification": "no"},
    "a password in an endpoint": {"storage.endpoint": "http://root:secret@127.0.0.1:9000"},
    "a signed address in place of a URL of S3": {
        "storage.url": "https://b.s3.amazonaws.com/p?X-Amz-Security-Token=pa55-word"
    },
    "a token in place of its provider": {
        "kafka.security.protocol": "sasl_ssl",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.token_provider": "eyJhbGciOiJub25lIn0.pa55-word",
    },
    "a token endpoint elsewhere without TLS": {
        "kafka.security.protocol": "sasl_ssl",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.client.id": "me",
        "kafka.sasl.oauthbearer.client.secret": "pa55-word",
        "kafka.sasl.oauthbearer.token.endpoint.url": "http://login.example.org/token?key=pa55-word",
    },
    "a password in a URL of S3": {"storage.url": "s3://me:pa55-word@bucket/p"},
    "a password in a broker's address": {"kafka.bootstrap.servers": "me:pa55-word@broker:1"},
    "OAUTHBEARER without a source of tokens": {
        "kafka.security.protocol": "sasl_plaintext",
        "kafka.sasl.mechanism": "OAUTHBEARER",
    },
    "GSSAPI without the libraries": {"kafka.security.protocol": "sasl_plaintext", "kafka.sasl.mechanism": "GSSAPI"},
    "a spool folder that cannot be written": {"backup.spool.dir": "/proc/archiver"},
}  # fmt: skip


def written(folder: Path, kind: str, certificates: Certificates) -> Path:
    path = folder / "archive.yaml"
    changes = CHANGES[kind]
    if isinstance(changes, str):
        path.write_text(changes)
        return path
    tree: dict[str, object] = {f"{part}.{key}": text for part, keys in TREE.items() for key, text in keys.items()}
    for key, text in changes.items():
        tree.pop(key, None)
        if text is not None:
            places = {"CLIENT.pem": certificates.chain("client"), "BROKER.key": certificates.key("broker")}
            tree[key] = str(places[text]) if isinstance(text, str) and text in places else text
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.mark.parametrize("kind", CONFIGURATION)
def test_configuration(
    kind: str,
    tmp_path: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARCHIVER_CONFIG", raising=False)
    arguments = ["backup", "--until-end"]
    if kind == "a configuration file that cannot be read":
        arguments += ["-c", str(tmp_path / "nothing.yaml")]
    elif kind == "a file without end":
        arguments += ["-c", "/dev/zero"]
    elif kind != "no configuration file":
        arguments += ["-c", str(written(tmp_path, kind, certificates))]
    exit_code = main(arguments)
    out, err = capsys.readouterr()
    check(CONFIGURATION[kind], (exit_code, out, err))
    assert not [secret for secret in ("pa55-word", "root:secret") if secret in out + err]
    if isinstance(CHANGES.get(kind), dict) and kind != "a spool folder that cannot be written":
        assert re.search(r"archive\.yaml(:\d+)?: |topics\.include", err)


# --- the command line, and archives that are not whole


def archive_of_orders(spool: Path) -> MemoryStore:
    """Two partitions, three objects in the first one."""
    store = MemoryStore()
    record_cluster(Archive(store, LAYOUT), "c")
    record_topic(Archive(store, LAYOUT), topic="orders", topic_id="A", cluster_id="c", partitions=2, configs={})
    for partition, base in ((0, 0), (0, 10), (0, 20), (1, 0)):
        segment = OpenSegment(replace(SOURCE, partition=partition), base, NO_LIMIT, Spool(spool))
        segment.append(frame_of([Rec(base + at, 5, 0, b"k", b"v") for at in (0, 5)]), 0)
        segment.cover(base + 10, leader_epoch=4, source_bytes=1000)
        finished = segment.finish()
        store.put_if_absent(
            key_of(base, partition), content_of(finished), finished.facts.to_metadata(), kind=ObjectKind.SEGMENT
        )
    return store


def key_of(base: int, partition: int = 0) -> str:
    return LAYOUT.segment_key(SegmentKey(topic="orders", partition=partition, base=base))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    made = archive_of_orders(tmp_path)
    monkeypatch.setattr(archiver.archive.format.handle, "open_archive", lambda _: Archive(made, LAYOUT))
    for door in ("backup.service.run_backup", "spark.query", "spark.restore", "spark.verify", "upkeep.inspection"):
        monkeypatch.setattr(f"archiver.{door}.open_archive", lambda _: Archive(made, LAYOUT))
    return made


Run = Callable[..., Told]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> Told:
        try:
            exit_code = main([*arguments, "--url", "s3://bucket/p"])
        except SystemExit as ended:  # argparse does not understand
            exit_code = int(ended.code or 0)
        return (exit_code, *capsys.readouterr())

    return run


COMMANDS: dict[str, list[str]] = {
    "a topic that is not archived": ["cat", "payments"],
    "a partition that is not archived": ["cat", "orders", "--partition", "9"],
    "a life that is not archived": ["cat", "orders", "--life", "7"],
    "a range that ends before it begins": ["cat", "orders", "--from-offset", "5", "--until-offset", "4"],
    "a time without a zone": ["cat", "orders", "--from", "2026-11-20T14:00:00"],
    "a time in seconds": ["cat", "orders", "--from", "1763647200"],
    "--topics that match nothing": ["restore", "--topics", "nothing"],
    "--topics that are no regular expression": ["restore", "--topics", "("],
    "--rename of a topic that is not restored": ["restore", "--rename", "another=one"],
    "--rename to a name that no topic can have": ["restore", "--rename", "orders=a/b"],
    "a --where without a predicate": ["restore", "--where", ""],
    "a --replication-factor of none": ["restore", "--replication-factor", "0"],
    "an --id that cannot stand in a key": ["restore", "--id", "a/b"],
    "an object that is not there": ["inspect", "s3://bucket/p/topics/nothing"],
    "an object without a name": ["inspect", "s3://bucket/p/"],
    "a number that no offset can be": ["cat", "orders", "--limit", str(2**63)],
    "a life where a topic's name goes": ["ls", "orders@1"],
    "a configuration and a URL": ["ls", "-c", "archive.yaml"],
}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("kind", COMMAND_LINE)
def test_command_line(kind: str, run: Run, tmp_path: Path) -> None:
    arguments = COMMANDS[kind]
    if arguments[0] == "restore":
        (tmp_path / "target.yaml").write_text("kafka: {bootstrap.servers: '127.0.0.1:9'}")
        arguments = [*arguments, "--target", str(tmp_path / "target.yaml")]
    check(COMMAND_LINE[kind], run(*arguments))


def change(store: MemoryStore, content: bytes | None = None, **metadata: str) -> None:
    found = store.objects[key_of(10)]
    changed = {**found.metadata, **{f"archiver-{name}": text for name, text in metadata.items()}}
    store.objects[key_of(10)] = StoredObject(found.body if content is None else content, changed, found.last_modified)


def strip(store: MemoryStore) -> None:
    found = store.objects[key_of(10)]
    store.objects[key_of(10)] = StoredObject(found.body, {}, found.last_modified)


def flip(store: MemoryStore) -> None:
    body = store.objects[key_of(10)].body
    change(store, body[:-20] + bytes([body[-20] ^ 4]) + body[-19:])


DAMAGES: dict[str, Callable[[MemoryStore], object]] = {
    "an object that is gone": lambda store: store.delete([key_of(10)]),
    "an object that was cut": lambda store: change(store, store.objects[key_of(10)].body[:-5]),
    "an object with a flipped bit": flip,
    "an empty object": lambda store: change(store, b""),
    "facts that are damaged": lambda store: change(store, next="x"),
    "an object without facts": strip,
    "an object from the future": lambda store: change(store, format="3"),
    "a topic's control fact that is damaged": lambda store: store.put_if_absent(
        LAYOUT.fact_key("topics/orders", 1), b'{"format": 1}', {}, kind=ObjectKind.FACT
    ),
    "a foreign object under the prefix": lambda store: store.put_if_absent(
        "p/topics/README", b"", {}, kind=ObjectKind.FACT
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_archive(kind: str, store: MemoryStore, run: Run) -> None:
    DAMAGES[kind](store)
    told = run("ls") if kind == "a foreign object under the prefix" else run("cat", "orders")
    check(ARCHIVE[kind], told)
    if kind != "a foreign object under the prefix":
        rows = [json.loads(line) for line in told[1].splitlines()]
        left = [row["offset"] for row in rows if row["partition"] == 0]
        whole = kind == "a topic's control fact that is damaged"
        assert left == ([0, 5, 10, 15, 20, 25] if whole else [0, 5, 20, 25])  # the rest is printed all the same


def test_wrong_counts(store: MemoryStore, run: Run) -> None:
    """Both copies of the facts agree, and so do the bytes: only the records are fewer."""
    found = store.objects[key_of(10)]
    facts = facts_from_metadata(found.metadata, key_of(10))
    assert facts is not None
    lying = replace(facts, records=3, unserved=0)
    sync = found.body[-16:]
    body = found.body[found.body.index(sync) + 16 :]
    content = encode_header(BlockCodec.ZSTANDARD, sync, lying.to_header()) + body
    store.objects[key_of(10)] = StoredObject(content, lying.to_metadata(), found.last_modified)
    check(ARCHIVE["wrong counts in the facts"], run("cat", "orders"))


def test_another_cluster(store: MemoryStore) -> None:
    """A backup asks this before anything else."""
    other = MemoryStore()
    record_cluster(Archive(other, LAYOUT), "another")
    answer = ARCHIVE["the prefix of another cluster"]
    with pytest.raises(NotWholeError) as caught:
        record_cluster(Archive(other, LAYOUT), "c")
    assert answer.says in str(caught.value)
    assert caught.value.exit_code == answer.exit_code
    record_cluster(Archive(store, LAYOUT), "c")  # one's own is no error


def test_every_kind_has_its_test() -> None:
    """Those of brokers, stores and machines are in test_security.py and test_commands.py."""
    here = {*CHANGES, "no configuration file", "a configuration file that cannot be read", "a file without end"}
    assert here == set(CONFIGURATION)
    assert COMMANDS.keys() == COMMAND_LINE.keys()
    assert ARCHIVE.keys() - DAMAGES.keys() == {"wrong counts in the facts", "the prefix of another cluster"}
