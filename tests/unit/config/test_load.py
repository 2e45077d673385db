"""archive.yaml: spelling, units, the environment, and messages that name key and line."""

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.format.layout import is_instance
from archiver.config.load import config_from_url, config_of_bucket, load_config, load_target
from archiver.config.model import ArchiverConfig, BackupConfig, CompactedConfig, Sse, StorageConfig, TopicsConfig
from archiver.config.quantities import parse_duration_ms, parse_size_bytes
from archiver.errors import UsageError
from archiver.store.address import archive_mark, group_of

FULL = """
kafka:
  bootstrap.servers: 127.0.0.1:9092
  enable.auto.commit: false
storage:
  url: s3://bucket/some/prefix/
  endpoint: http://127.0.0.1:9000
  region: eu-west-1
  sse: kms
  kms-key-id: alias/archive
  storage-class: STANDARD_IA
  tags: {team: data, cost.centre: "0042"}
topics:
  include: ["orders", "payments\\\\..*"]
  exclude: [payments.test]
backup:
  segment: {bytes: 1MiB, age: 90s, records: 1000}
  codec: deflate
  codec.level: 4
  memory: 64MiB
  spool: {dir: /var/spool/archiver}
"""


def load(folder: Path, text: str) -> ArchiverConfig:
    file = folder / "archive.yaml"
    file.write_text(text, encoding="utf-8")
    return load_config(file)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load(folder, text)
    return str(caught.value).replace(str(folder / "archive.yaml"), "archive.yaml")


def test_every_key(tmp_path: Path) -> None:
    found = load(tmp_path, FULL)
    assert found.kafka == {"bootstrap.servers": "127.0.0.1:9092", "enable.auto.commit": "false"}
    assert (found.storage.bucket, found.storage.prefix) == ("bucket", "some/prefix")
    assert (found.storage.endpoint, found.storage.region) == ("http://127.0.0.1:9000", "eu-west-1")
    assert (found.storage.sse, found.storage.kms_key_id) == (Sse.KMS, "alias/archive")
    assert (found.storage.storage_class, found.storage.tags) == ("STANDARD_IA", {"team": "data", "cost.centre": "0042"})
    assert (found.topics.include, found.topics.exclude) == (("orders", r"payments\..*"), ("payments.test",))
    segment, spool = found.backup.segment, found.backup.spool
    assert (segment.bytes, segment.age_ms, segment.records) == (1 << 20, 90_000, 1000)
    assert spool.dir == Path("/var/spool/archiver")
    assert (found.backup.codec, found.backup.level, found.backup.memory_bytes) == ("deflate", 4, 64 << 20)


def test_defaults_are_those_of_the_design(tmp_path: Path) -> None:
    backup = load(tmp_path, "storage: {url: s3://bucket}").backup
    assert (backup.codec, backup.memory_bytes) == ("zstandard", 256 << 20)
    assert (backup.segment.bytes, backup.segment.age_ms, backup.segment.records) == (64 << 20, 300_000, 0)
    assert backup.spool.dir is None


@pytest.mark.parametrize(
    "text",
    [
        "backup.segment.age: 7d\nbackup.codec: zstandard\nbackup.codec.level: 9\nkafka.client.id: x\n",
        "backup:\n  segment.age: 7d\n  codec: zstandard\n  codec.level: 9\nkafka: {client: {id: x}}\n",
        "backup:\n  segment:\n    age: 7d\nbackup.codec: {level: 9}\nkafka: {client.id: x}\n",
    ],
    ids=["dotted", "mixed", "nested"],
)
def test_dotted_and_nested_spelling_are_the_same(tmp_path: Path, text: str) -> None:
    found = load(tmp_path, "storage.url: s3://bucket\n" + text)
    assert (found.backup.segment.age_ms, found.backup.level) == (7 * 86_400_000, 9)
    assert found.kafka == {"client.id": "x"}


def test_instances_of_compacted_topics(tmp_path: Path) -> None:
    text = (
        "compacted: {enabled: true, instances: [a, b-2], log.backup.length.days: 0.25, clear.delay: 36h, takeover: 30min,\n"
        " margin: 2h, interval: 3min, keep.generations: 2}\nrestores.pin: 14d\n"
    )
    found = load(tmp_path, f"storage.url: s3://bucket\n{text}")
    compacted = found.compacted
    assert (compacted.enabled, compacted.instances, compacted.length_ms) == (True, ("a", "b-2"), 6 * 3_600_000)
    assert (compacted.takeover_ms, compacted.interval_ms, compacted.margin_ms) == (1_800_000, 180_000, 7_200_000)
    assert (compacted.clear_delay_ms, compacted.keep_generations) == (36 * 3_600_000, 2)
    assert found.restores.pin_ms == 14 * 86_400_000


def test_without_a_word_of_compacted_topics_no_instance_takes_them(tmp_path: Path) -> None:
    found = load(tmp_path, "storage.url: s3://bucket")
    compacted = found.compacted
    assert (compacted.enabled, compacted.instances, compacted.length_ms) == (False, (), 7 * 86_400_000)
    assert (compacted.takeover_ms, compacted.interval_ms, compacted.margin_ms) == (3_600_000, 60_000, None)
    assert (compacted.clear_delay_ms, compacted.keep_generations) == (86_400_000, 0)
    assert found.restores.pin_ms == 7 * 86_400_000


@pytest.mark.parametrize("name", ["a", "A-1.b_c", "x" * 64, "x" * 65, "-a", "_a", "a/b", "\u00e9", "a\n", "a b", ".."])
def test_a_name_of_an_instance_is_one_that_keys_take(name: str) -> None:
    section = {"instances": (name, "other")}
    if is_instance(name):
        assert CompactedConfig.model_validate(section).instances == (name, "other")
    else:
        with pytest.raises(ValueError, match="an instance's name is 1 to 64 of"):
            CompactedConfig.model_validate(section)


def test_empty_sections_are_no_error(tmp_path: Path) -> None:
    assert load(tmp_path, "storage.url: s3://bucket\nkafka:\nbackup: {spool: {}}\n").kafka == {}


def test_codec_null_is_the_codec_of_that_name(tmp_path: Path) -> None:
    assert load(tmp_path, "{storage.url: s3://bucket, backup.codec: null}").backup.codec == "null"


def test_the_environment_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "a: #b {c}")
    text = "{storage.url: s3://bucket, kafka: {sasl.password: '${SECRET}', client.id: 'x-$${SECRET}-$y', client.rack: '$${a-$$'}}"
    found = load(tmp_path, text)
    assert found.kafka == {"sasl.password": "a: #b {c}", "client.id": "x-${SECRET}-$y", "client.rack": "${a-$$"}
    assert "#b" not in repr(found)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bakup.codec: x", "archive.yaml:2: unknown key; did you mean backup.codec?"),
        ("backup: {segment: {size: 1}}", "archive.yaml:2: unknown key below backup.segment"),
        ("storage.kms_key_id: k", "archive.yaml:2: unknown key below storage; did you mean storage.kms-key-id?"),
        (
            "compacted.enabled: true",
            "archive.yaml: compacted: compacted.enabled goes with compacted.instances: give two",
        ),
        ("compacted.instances: [a, b, c]", "archive.yaml:2: compacted.instances: must be two different names"),
        ("compacted.instances: [a, .b]", "archive.yaml:2: compacted.instances: an instance's name is 1 to 64 of"),
        (
            "compacted.log.backup.length.days: 0",
            "archive.yaml:2: compacted.log.backup.length.days: Input should be greater",
        ),
        ("compacted.log.backup.length.days: inf", "archive.yaml:2: compacted.log.backup.length.days: Input should be"),
        ("compacted.keep.generations: -1", "archive.yaml:2: compacted.keep.generations: Input should be greater"),
        (
            "compacted.takeover: 9min",
            "archive.yaml: compacted: compacted.interval (1min) must be at most a tenth of compacted.takeover (9min)",
        ),
        ("nonsense: {}", "archive.yaml:2: unknown key"),
        ("backup: zstandard", "archive.yaml:2: backup holds keys, not a value"),
        ("kafka: {client.id: }", "archive.yaml:2: kafka.client.id has no value"),
        (
            "storage:\n  url: s3://b/p\nstorage:\n  region: r",
            "archive.yaml:4: storage is given a second time (first in line 2); join the two",
        ),
        ("topics:\n\tinclude: [a]", "archive.yaml:3: not YAML: a tab indents this line; YAML takes only spaces there"),
        ("storage.url: s3://other", "archive.yaml:2: storage.url is given a second time (first in line 1)"),
        ("topics.include: ['a', '(']", "archive.yaml:2: topics.include: is not a regular expression: missing )"),
        ("topics.include: [{a: b}]", "archive.yaml:2: topics.include is no mapping"),
        ("storage.ca-file: /nowhere", "archive.yaml:2: storage.ca-file: there is no such file"),
        (
            "backup.start: 1763647200",
            "archive.yaml:2: backup.start: is before 1973 as milliseconds",
        ),
        ("backup.segment.age: 5m", "archive.yaml:2: backup.segment.age: is not like 5min"),
        ("backup.segment.bytes: 0", "archive.yaml:2: backup.segment.bytes: Input should be greater than or equal to 1"),
        ("backup.codec: gzip", "archive.yaml:2: backup.codec: Input should be 'zstandard', 'snappy', 'deflate' or"),
        ("backup: {codec: snappy, codec.level: 1}", "archive.yaml: backup: codec snappy has no levels"),
        ("storage.kms-key-id: k", "archive.yaml: storage: kms-key-id goes with sse: kms only"),
    ],
)
def test_what_is_wrong_is_named_with_key_and_line(tmp_path: Path, line: str, message: str) -> None:
    assert message in refusal(tmp_path, f"storage.url: s3://bucket\n{line}\n")


def test_what_is_not_near_is_not_suggested(tmp_path: Path) -> None:
    assert refusal(tmp_path, "storage: {url: s3://b-1, force_path_style: x}").endswith("unknown key below storage")


def test_all_problems_are_named_at_once(tmp_path: Path) -> None:
    found = refusal(tmp_path, "storage: {sse: x}\nbackup.memory: 1MiB\n").splitlines()
    assert [line.split(" ")[1] for line in found] == ["storage.url:", "storage.sse:", "backup.memory:"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "topics.include: &x [a, [*x]]",
            "archive.yaml: is nested too deep, or an alias (*) stands within what it stands for",
        ),
        ("backup:\n  <<: {codec: snappy}", "archive.yaml:3: merge keys (<<) are not taken; write the keys out"),
        *[
            (f"kafka.sasl.password: '{text}'", "archive.yaml:2: kafka.sasl.password: a ${ that is neither ${NAME} nor")
            for text in ("${MY-PASS}", "${PASS:-hunter2}", "${file:}", "${env:PASS}", "${PASS", "a${1}", "${}")
        ],
    ],
)
def test_what_would_be_taken_wrong_is_refused(tmp_path: Path, text: str, message: str) -> None:
    said = refusal(tmp_path, f"storage.url: s3://bucket\n{text}\n")
    assert message in said
    assert "hunter2" not in said


def test_an_alias_is_what_it_stands_for(tmp_path: Path) -> None:
    found = load(
        tmp_path, "storage: {url: &here s3://bucket, tags: {a: *here}}\ntopics: {include: &x [a], exclude: *x}"
    )
    assert (found.storage.tags, found.topics.include, found.topics.exclude) == ({"a": "s3://bucket"}, ("a",), ("a",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka:\n  sasl.password: !hunter2!x", "archive.yaml:3: not YAML: found undefined tag handle; a text with"),
        ("topics.include: [a, !hunter2 b]", "archive.yaml:2: a tag (!) is not taken; a text with any of"),
        ("kafka:\n  sasl.password: {a: {hunter2: b}}", "archive.yaml:3: kafka.sasl.password takes a value, not keys"),
        ("kafka: {sasl.password: a,hunter2}", "archive.yaml:2: kafka: a key has no value; a text with any of"),
        (
            "kafka: {sasl.passwrd: {hunter2}}",
            "archive.yaml:2: unknown key below kafka.sasl; did you mean kafka.sasl.password?",
        ),
        ("sasl.password: {hunter2: x}", "archive.yaml:2: unknown key; did you mean kafka.sasl.password?"),
        ("? {hunter2: x}\n: x", "archive.yaml:2: the file: a key is a text, not a list or a mapping"),
        ('kafka:\n  sasl.password: "\\q hunter2"', "archive.yaml:3: not YAML: found unknown escape character 'q'"),
        (
            "kafka:\n  sasl.password: 'x' hunter2",
            "archive.yaml:3: not YAML: expected <block end>, but found '<scalar>'",
        ),
    ],
)
def test_messages_do_not_repeat_what_may_be_a_password(tmp_path: Path, text: str, message: str) -> None:
    said = refusal(tmp_path, f"storage.url: s3://bucket\n{text}\n")
    assert message in said
    assert "hunter2" not in said


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARCHIVER_CONFIG", raising=False)
    with pytest.raises(UsageError, match=r"give -c FILE, set \$ARCHIVER_CONFIG, or write ./archive.yaml"):
        load_config()
    (tmp_path / "archive.yaml").write_text("storage.url: s3://here")
    assert load_config().storage.bucket == "here"
    (tmp_path / "other.yaml").write_text("storage.url: s3://named")
    monkeypatch.setenv("ARCHIVER_CONFIG", "other.yaml")
    assert load_config().storage.bucket == "named"
    assert load_config(tmp_path / "archive.yaml").storage.bucket == "here"
    with pytest.raises(UsageError, match=r"absent\.yaml: cannot be read"):
        load_config(tmp_path / "absent.yaml")


def test_a_target_is_a_cluster_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "target.yaml"
    file.write_text("kafka.bootstrap.servers: 127.0.0.1:9092")
    assert load_target(file).kafka == {"bootstrap.servers": "127.0.0.1:9092"}
    file.write_text("storage.url: s3://bucket")
    with pytest.raises(UsageError, match=r"unknown key$"):
        load_target(file)


def test_a_url_alone_is_enough_to_read() -> None:
    assert config_from_url("s3://bucket").storage.prefix == ""
    hostile = ("s3://bucket/\x1b[31m", "s3://bucket/\udcff")
    for wrong in ("bucket/prefix", "s3://", "s3://bucket//x", "gs://bucket", "s3://bucket/with space", *hostile):
        with pytest.raises(UsageError, match=r"^--url: is not like s3://bucket/prefix"):
            config_from_url(wrong)


def test_storage_travels_to_spark_tasks() -> None:
    storage = StorageConfig(url="s3://bucket/p", tags={"a": "b"})
    assert pickle.loads(pickle.dumps(storage)) == storage


@pytest.mark.parametrize(
    ("include", "exclude", "selected"),
    [
        ([], [], []),
        (["orders"], [], ["orders"]),
        ([".*"], [], ["orders", "orders-dlq", "payments.eu"]),
        (["orders.*"], [".*-dlq"], ["orders"]),
        (["payments\\..*", "orders"], [], ["orders", "payments.eu"]),
        (["__consumer_offsets", "__.*"], [], ["__consumer_offsets"]),
        (["__consumer_offsets", "orders"], ["__.*", "orders"], []),
    ],
    ids=["none", "literal", "all but internal", "exclude", "several", "internal spelled out", "exclude wins"],
)
def test_topics_are_selected(include: list[str], exclude: list[str], selected: list[str]) -> None:
    names = ["payments.eu", "orders-dlq", "orders", "__consumer_offsets", "__transaction_state"]
    topics = TopicsConfig.model_validate({"include": include, "exclude": exclude})
    assert topics.select(names) == tuple(selected)


def named_by(url: str, endpoint: str | None = None) -> str:
    config = ArchiverConfig(storage=StorageConfig(url=url, endpoint=endpoint))
    return group_of(config)


def test_each_archive_has_a_group_of_its_own() -> None:
    places = [
        ("s3://bucket/a/b", None),
        ("s3://bucket/a-b", None),
        ("s3://bucket/a", None),
        ("s3://bucket", None),
        ("s3://bucket/a/b", "http://one:9000"),
        ("s3://bucket/a/b", "http://two:9000"),
        ("s3://bucket/" + "x" * 900, None),
        ("s3://bucket/" + "x" * 901, None),
        ("s3://bucket/\u00e4\u00f6", None),
        ("s3://bucket/\u00e4\u00fc", None),
    ]
    groups = [named_by(*place) for place in places]
    assert len(set(groups)) == len(places)
    assert [group for group in groups if not re.fullmatch(r"archiver-bucket[A-Za-z0-9._-]{0,150}", group)] == []
    assert named_by("s3://bucket/a/b/", "http://one:9000/") == groups[4]
    assert named_by("s3://bucket", "http://One:80") == named_by("s3://bucket", "http://one")
    # Instances of two versions must not be two groups.
    assert named_by("s3://my-bucket/kafka") == "archiver-my-bucket-kafka-ef79aeda"
    named = ArchiverConfig.model_validate({"storage": {"url": "s3://bucket"}, "backup": {"group": "archiver"}})
    assert group_of(named) == "archiver"


def test_a_store_that_the_environment_names_is_another_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two stores may have buckets of one name. However the store was told: it is the same one."""
    of_aws = named_by("s3://bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one:9000")
    assert named_by("s3://bucket") == named_by("s3://bucket", "http://one:9000") != of_aws
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://two:9000")
    assert named_by("s3://bucket") == named_by("s3://bucket", "http://two:9000")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    (tmp_path / "config").write_text("[profile far]\nendpoint_url = http://three:9000\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "far")
    assert named_by("s3://bucket") == named_by("s3://bucket", "http://three:9000")
    assert len(archive_mark(StorageConfig(url="s3://bucket"))) == 8
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(UsageError, match=r"storage: The config profile \(absent\) could not be found"):
        named_by("s3://bucket")


@pytest.mark.parametrize(
    "include",
    [
        "topics.include:\n- orders\n- typo\n\n- __.*\n- 'o.*'",
        "topics:\n  include: [orders,\n typo,\n\n __.*, 'o.*']",
    ],
    ids=["a line each", "in brackets"],
)
def test_an_entry_that_matches_nothing_is_known_by_its_line(tmp_path: Path, include: str) -> None:
    path = tmp_path / "archive.yaml"
    path.write_text(f"storage.url: s3://bucket\n{include}\n")
    config = load_config(path)
    unmatched = config.topics.unmatched(["orders", "__consumer_offsets"])
    assert unmatched == [1, 2]
    lines = path.read_text().splitlines()
    for number in unmatched:
        file, line, key = config.place_of_include(number).rsplit(":", 2)
        assert (file, key) == (str(path), " topics.include")
        assert config.topics.include[number] in lines[int(line) - 1]


@given(st.integers(0, 2**53), st.sampled_from(["B", "kB", "MB", "GB", "KiB", "MiB", "GiB", "TiB"]))
def test_sizes(amount: int, unit: str) -> None:
    scale = 1024 if "i" in unit else 1000
    power = "BkMGT".index("k" if unit.startswith("K") else unit[0])
    assert parse_size_bytes(f"{amount}{unit}") == parse_size_bytes(f"{amount} {unit}") == amount * scale**power


def test_quantities() -> None:
    assert [parse_size_bytes(text) for text in ("4096", 4096, "1.5KiB", "0")] == [4096, 4096, 1536, 0]
    assert [parse_duration_ms(text) for text in ("250ms", "1.5h", "2w", "0", 0)] == [
        250,
        5_400_000,
        1_209_600_000,
        0,
        0,
    ]
    for wrong in ("", "-1B", "1e3", "1.5B", "1..5kB", "٣kB", "5 apples", "KiB"):
        with pytest.raises(ValueError, match="is not"):
            parse_size_bytes(wrong)


def test_levels_have_defaults() -> None:
    assert [BackupConfig(codec=codec).level for codec in ("zstandard", "deflate", "snappy", "null")] == [1, 6, 0, 0]


def test_an_object_s_address_goes_the_way_that_the_configuration_of_its_bucket_knows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARCHIVER_CONFIG", raising=False)
    assert config_of_bucket("s3://bucket").storage.endpoint is None
    Path("archive.yaml").write_text("storage: {url: s3://bucket/kafka, endpoint: 'http://localhost:9000'}\n", "utf-8")
    found = config_of_bucket("s3://bucket").storage
    assert (found.url, found.endpoint) == ("s3://bucket", "http://localhost:9000")
    assert config_of_bucket("s3://bucket-2").storage.endpoint is None
