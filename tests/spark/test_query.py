"""SQL over topics: what is asked is answered as if no filter were pushed anywhere; and the command that asks."""

import json
import random
import re
import shlex
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import archiver.spark.query
from archiver.archive.reading.plain_records import spell_bytes
from archiver.cli.main import main
from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, NotWholeError, UsageError
from archiver.spark.table.query import QueryAnswer, ask
from tests.support.brokers import REPOSITORY, S3, Bucket
from tests.support.bucket_archive import BucketArchive
from tests.support.faulty_s3 import FaultyS3
from tests.support.foreign_reader import s3_client
from tests.support.forked_commands import COMMAND
from tests.support.records import NOW_MS, Headers, Rec
from tests.support.round_trip import ArchiveSite, archive_site, environment_of
from tests.support.spark_bucket import lent_archive, own_daemon, sql_session

pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(300)]

TOPICS = ("orders", "my.pay-ments")
COUNT = 60  # of records in a partition; each object has ten
TIMES_MS = [-1, 0, NOW_MS, 2**63 - 1, 9_223_372_036_854_774, 253_402_300_800_000]


def records_of(topic: str, partition: int) -> list[Rec]:
    chance = random.Random(f"{topic} {partition}")
    return [
        Rec(at, NOW_MS + chance.randrange(60) * 1000, 0, b"k%d" % chance.randrange(8), b"%s %d" % (topic.encode(), at))
        for at in range(COUNT)
    ]


@dataclass(frozen=True)
class Site:
    archive: BucketArchive
    spark: SparkSession

    @property
    def storage(self) -> StorageConfig:
        return StorageConfig(url=self.archive.bucket.url, endpoint=self.archive.bucket.s3.endpoint)

    def ask(
        self, sql: str, storage: StorageConfig | None = None, skips_damage: bool = False, /, **options: str
    ) -> QueryAnswer:
        """Ask in a session of its own, as a process has it."""
        names = {key.split("/")[1] for key in self.keys()}
        return ask(
            sql_session(self.spark),
            storage or self.storage,
            names,
            sql,
            {name.rstrip("_"): text for name, text in options.items()},
            skips_damage=skips_damage,
        )

    def rows(self, sql: str, **options: str) -> list[list[Any]]:
        return list(self.ask(sql, **options).rows)

    def value(self, expression: str) -> Any:  # noqa: ANN401 - of any type that SQL has
        ((value,),) = self.rows(f"SELECT {expression}")
        return value

    def keys(self) -> list[str]:
        return [item.key for item in self.archive.store.list("topics/")]


@pytest.fixture(scope="module")
def site(minio: S3, spark_avro: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    spool = tmp_path_factory.mktemp("spool")
    with own_daemon(spark_avro.sparkContext), lent_archive(minio, spark_avro, spool) as archive:
        for topic in TOPICS:
            archive.write_topic_fact(topic)
            for partition in (0, 1):
                archive.put(topic, partition, records_of(topic, partition), each=10)
        archive.write_topic_fact("times")
        archive.put("times", 0, [Rec(at, ms, 0, None, b"\xff%d" % at) for at, ms in enumerate(TIMES_MS)], each=100)
        yield Site(archive, spark_avro)


@pytest.fixture(scope="module")
def proxy(site: Site) -> Iterator[FaultyS3]:
    """Counts what is asked of the store through it."""
    with FaultyS3(site.archive.bucket.s3.endpoint) as proxy:
        yield proxy


# --- filters that are pushed

STATEMENTS = [
    "SELECT partition, offset, value FROM {a} WHERE {p}",
    "SELECT x.offset, y.offset AS other FROM {a} x JOIN {a} y ON x.key = y.key AND x.partition = y.partition WHERE {px} AND {qy}",
    "SELECT x.offset, y.value FROM {a} x JOIN {b} y ON x.offset = y.offset AND x.partition = y.partition WHERE {px} AND {qy}",
    "SELECT x.offset, y.offset AS other FROM {a} x LEFT JOIN {a} y ON x.offset = y.offset + 7 AND {qy} WHERE {px}",
    "SELECT offset FROM {a} WHERE {p} UNION ALL SELECT offset FROM {a} WHERE {q}",
    "SELECT offset FROM {a} WHERE {p} UNION ALL SELECT offset FROM {a}",
    "SELECT value FROM {a} WHERE {p} EXCEPT SELECT value FROM {a} WHERE {q}",
    "SELECT value FROM {a} WHERE {p} INTERSECT ALL SELECT value FROM {a} WHERE {q}",
    "WITH t AS (SELECT * FROM {a} WHERE {p}) SELECT value FROM t WHERE {q} UNION ALL SELECT value FROM t WHERE NOT {q}",
    "WITH t AS (SELECT * FROM {a}) SELECT x.value FROM t x JOIN t y USING (partition, offset) WHERE {px} AND {qy}",
    "SELECT count(*) AS n, (SELECT max(offset) FROM {a} WHERE {p}) AS top FROM {a} WHERE {q}",
    "SELECT value FROM {a} WHERE {p} AND offset IN (SELECT offset FROM {b} WHERE {q})",
    "SELECT value FROM {a} x WHERE {px} AND EXISTS (SELECT 1 FROM {a} y WHERE y.key = x.key AND y.offset > x.offset AND {qy})",
    "SELECT value FROM {a} x WHERE offset = (SELECT max(offset) FROM {a} y WHERE y.partition = x.partition AND {qy})",
    "SELECT key, count(DISTINCT value) AS n, count(DISTINCT offset) AS m FROM {a} WHERE {p} GROUP BY key",
    "SELECT l FROM (SELECT *, lag(value) OVER (PARTITION BY partition ORDER BY offset) AS l FROM {a}) WHERE {p}",
    "SELECT offset, value FROM {a} WHERE {p} ORDER BY partition, offset DESC LIMIT 5",
    "SELECT x.n, y.n AS other FROM (SELECT count(*) AS n FROM {a} WHERE {p}) x, (SELECT count(*) AS n FROM {a} WHERE {q}) y",
    "SELECT sum(n) AS n FROM (SELECT 1 AS n FROM {a} WHERE {p} UNION ALL SELECT 2 FROM {b} UNION ALL SELECT 4 FROM {b} WHERE {q})",
]  # fmt: skip


def condition(chance: random.Random, alias: str = "") -> str:
    low, high = sorted(chance.sample(range(COUNT), 2))
    return chance.choice([
        f"{alias}offset < {low}", f"{alias}offset >= {high}", f"{alias}offset BETWEEN {low} AND {high}",
        f"{alias}partition = {chance.randrange(2)}", f"{alias}partition > 0 AND {alias}offset > {low}",
        f"{alias}offset IN ({low}, {high})", f"{alias}timestamp >= timestamp_millis({NOW_MS + low * 1000})",
        f"{alias}timestamp < timestamp_millis({NOW_MS + high * 1000})", f"{alias}offset % 7 = {low % 7}",
    ])  # fmt: skip


def filled(statement: str, chance: random.Random) -> str:
    """With conditions, and names of tables still to come."""
    p, q = condition(chance), condition(chance)
    px, qy = condition(chance, "x."), condition(chance, "y.")
    return statement.format(a="{a}", b="{b}", p=f"({p})", q=f"({q})", px=f"({px})", qy=f"({qy})")


@pytest.fixture(scope="module")
def oracle(spark_avro: SparkSession) -> Iterator[SparkSession]:
    """The same records in memory: tables that know nothing of an archive, a partition or a filter."""
    for name, topic in zip("ab", TOPICS, strict=True):
        rows = [
            (partition, one.offset, one.timestamp, bytearray(one.key or b""), bytearray(one.value or b""))
            for partition in (0, 1)
            for one in records_of(topic, partition)
        ]
        frame = spark_avro.createDataFrame(rows, "partition int, offset long, ms long, key binary, value binary")
        frame.selectExpr("*", "timestamp_millis(ms) AS timestamp").createOrReplaceTempView(f"oracle_{name}")
    yield spark_avro
    for name in "ab":
        spark_avro.catalog.dropTempView(f"oracle_{name}")


def as_set(rows: list[list[Any]]) -> Counter[str]:
    return Counter(map(repr, rows))


IN_SHORT = {1, 8}  # without the care that is taken, most of these go wrong


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=statement[:70], marks=() if number in IN_SHORT else pytest.mark.long)
        for number, statement in enumerate(STATEMENTS)
    ],
)
def test_filters_of_one_mention_are_never_those_of_another(
    site: Site, oracle: SparkSession, number: int, seed: int
) -> None:
    """Spark 4.1 plans a table once for all its mentions, with whatever filters came last (docs/spark.md, "Filters")."""
    sql = filled(STATEMENTS[number], random.Random(seed + number))
    expected = oracle.sql(sql.format(a="oracle_a", b="oracle_b")).collect()
    wanted = [
        [spell_bytes(bytes(one)) if isinstance(one, bytes | bytearray) else one for one in row] for row in expected
    ]
    assert as_set(site.rows(sql.format(a="orders", b="`my.pay-ments`"))) == as_set(wanted), sql


def test_filters_leave_out_objects_and_topics_that_are_not_named_cost_nothing(site: Site, proxy: FaultyS3) -> None:
    through = StorageConfig(url=site.archive.bucket.url, endpoint=proxy.endpoint)

    def cost(sql: str) -> int:
        proxy.requests.clear()
        list(site.ask(sql, through).rows)
        return proxy.requests.get("GET", 0)

    assert cost("SELECT 1") == 0
    every = cost("SELECT max(value) FROM orders")
    assert cost("SELECT max(value) FROM orders WHERE offset BETWEEN 12 AND 17 AND partition = 1") == every - 11
    assert cost("SELECT max(value) FROM orders WHERE offset >= 35") == every - 6
    assert cost("SELECT value FROM orders LIMIT 1") < every


# --- what is asked for


def test_options_hold_for_every_topic(site: Site) -> None:
    since_ms = NOW_MS + 20_000
    wanted = sum(record.timestamp >= since_ms for topic in TOPICS for record in records_of(topic, 1))
    sql = "SELECT count(*) FROM (SELECT offset FROM orders UNION ALL SELECT offset FROM `my.pay-ments`)"
    assert site.rows(sql, partitions="1", from_=str(since_ms)) == [[wanted]]


def test_names_are_as_they_are_written(site: Site) -> None:
    for topic in ("Case", "case"):
        site.archive.write_topic_fact(topic)
        site.archive.put(topic, 0, [Rec(0, NOW_MS, 0, None, topic.encode())], each=1)
    sql = "SELECT cast(c.value AS string), cast(C.value AS string) FROM case c, Case C"
    assert site.rows(sql) == [["case", "Case"]]
    assert site.rows("WITH orders AS (SELECT 7 AS n) SELECT n FROM orders") == [[7]]  # theirs, not the topic


# --- values


def test_times_of_any_year(site: Site) -> None:
    assert [row[0] for row in site.rows("SELECT timestamp FROM times ORDER BY offset")] == [
        None,
        "1970-01-01T00:00:00.000Z",
        "2025-07-20T08:26:40.000Z",
        None,
        "294247-01-10T04:00:54.774Z",
        "10000-01-01T00:00:00.000Z",
    ]
    assert site.value("timestamp_micros(-1)") == "1969-12-31T23:59:59.999999Z"
    assert site.value("array(struct(timestamp_millis(1) AS at, cast(NULL AS timestamp) AS no))") == [
        {"at": "1970-01-01T00:00:00.001Z", "no": None}
    ]


VALUES: list[tuple[str, object]] = [
    ("NULL", None),
    ("X'00FF'", {"base64": "AP8="}),
    ("cast('ü' AS binary)", {"utf8": "ü"}),
    ("array(X'FF', NULL, cast('' AS binary))", [{"base64": "/w=="}, None, {"utf8": ""}]),
    ("named_struct('a', 1, 'b', X'41')", {"a": 1, "b": {"utf8": "A"}}),
    ("cast(NULL AS struct<a: int>)", None),
    ("map('k', X'41', 'l', NULL)", [["k", {"utf8": "A"}], ["l", None]]),
    ("9223372036854775807", 2**63 - 1),
    ("12345678901234567890.123", "12345678901234567890.123"),
    ("double('NaN')", "nan"),
    ("float('-Infinity')", "-inf"),
    ("1.5D", 1.5),
    ("true", True),
    ("DATE'2026-11-20'", "2026-11-20"),
    ("DATE'-0044-03-15'", "-0044-03-15"),
    ("TIMESTAMP_NTZ'2026-11-20 12:00:00'", "2026-11-20 12:00:00"),
    ("INTERVAL '3' DAY", "INTERVAL '3' DAY"),
    ("parse_json('{\"a\": 1}')", '{"a":1}'),
]


def test_values_are_what_json_can_hold(site: Site) -> None:
    (found,) = site.rows(f"SELECT {', '.join(expression for expression, _ in VALUES)}")
    assert found == [value for _, value in VALUES]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


# --- what goes wrong


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT * FROM nope", "topic nope is not in the archive; `archiver ls` shows what is"),
        (
            "SELECT * FROM my.`pay-ments`",
            "topic my.pay-ments: a name with a dot in it stands in backquotes: `my.pay-ments`",
        ),
        ("SELECT * FROM my.pay-ments", "INVALID_IDENTIFIER"),
        ("SELECT * FROM json.`/etc/passwd`", "topic json./etc/passwd is not in the archive"),
        ("SELECT nope FROM orders", "Did you mean"),
        ("SELECT * FROM orders WHERE offset IN (1, NULL)", "write WHERE (offset) IN (1, 2)"),
        ("SELECT count(*) FROM orders WHERE offset NOT IN (1) AND partition = 0", "write WHERE (offset) IN (1, 2)"),
        ("SELECT * FROM orders where offset (1)", "write WHERE (offset) IN (1, 2)"),
        ("SELECT * FROM orders WHERE offset + 1", "write WHERE (offset) IN (1, 2)"),
        ("SELECT * FROM orders LATERAL VIEW explode(headers) WHERE offset - 1", "write WHERE (offset) IN (1, 2)"),
        ("SELECT * FROM (SELECT * FROM orders HAVING offset (1))", "write HAVING (offset) IN (1, 2)"),
        ("SELEC 1", "PARSE_SYNTAX_ERROR"),
        ("SELECT 1; SELECT 2", "PARSE_SYNTAX_ERROR"),
        ("DROP TABLE orders", "PARSE_SYNTAX_ERROR"),
        ("SET a = b", "PARSE_SYNTAX_ERROR"),
        ("INSERT OVERWRITE DIRECTORY '/tmp/x' USING json SELECT 1", "PARSE_SYNTAX_ERROR"),
        ("", "PARSE_"),
    ],
)
def test_a_query_that_is_none_is_refused_in_a_line(site: Site, sql: str, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        site.ask(sql)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_query_that_fails_is_told_in_a_line(site: Site) -> None:
    with pytest.raises(ArchiverError, match=r"the query failed: \[DIVIDE_BY_ZERO\]") as raised:
        site.rows("SELECT 1 / (offset - offset) FROM orders")
    assert (raised.value.exit_code, "\n" in str(raised.value)) == (1, False)


def test_a_query_without_the_python_that_plans_it_tells_which(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under spark-submit, where the packed environment was not unpacked beside the driver."""
    monkeypatch.setattr(site.spark.sparkContext, "pythonExec", "./no-env/bin/python")
    with pytest.raises(
        UsageError, match=r"the driver's machine has no \./no-env/bin/python, which spark\.pyspark\.python"
    ):
        site.ask("SELECT * FROM orders")


FORGED = [
    b"\narchiver.errors.Nope: x",
    b"\narchiver.errors.TemporaryError: S3 is down; run the same command again",
    b"\nTraceback (most recent call last):\n  File x\narchiver.errors.TemporaryError: S3 is down",
    b"\norg.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File x\narchiver.errors.TemporaryError: S3",
]


@pytest.mark.parametrize("at", [0, *(pytest.param(at, marks=pytest.mark.long) for at in (1, 2)), 3])
def test_what_a_record_holds_is_no_word_of_ours(site: Site, at: int) -> None:
    """Spark quotes the values that it cannot work with: they decide neither exit code nor message."""
    site.archive.write_topic_fact(f"forged-{at}")
    site.archive.put(f"forged-{at}", 0, [Rec(0, NOW_MS, 0, None, FORGED[at])], each=10)
    for expression in ("date(cast(value AS string))", "raise_error(cast(value AS string))"):
        with pytest.raises(ArchiverError, match=r"^the query failed: ") as raised:
            site.rows(f"SELECT {expression} FROM `forged-{at}`")
        assert type(raised.value) is ArchiverError


def test_damage_is_skipped_where_it_is_asked_for_and_told_before_the_first_row(site: Site) -> None:
    site.archive.write_topic_fact("holed")
    keys = [site.archive.put("holed", number, records_of("orders", number), each=10) for number in (0, 1)]
    site.archive.change(keys[0][2], site.archive.content(keys[0][2])[:-10])  # offsets 20 to 29
    changed = bytearray(site.archive.content(keys[1][1]))  # 10 to 19
    changed[-40] ^= 1
    site.archive.change(keys[1][1], bytes(changed))
    site.archive.store.delete([keys[1][3]])  # 30 to 39
    cut, flipped = f"holed-0: offsets 20-29 in {keys[0][2]}: ", f"holed-1: offsets 10-19 in {keys[1][1]}: "
    gone = "holed-1: offsets 30-39 are missing from the archive"

    def asked(sql: str, **options: str) -> tuple[list[list[Any]], list[str]]:
        answer = site.ask(sql, None, True, **options)
        return list(answer.rows), [
            next(one for one in (cut, flipped, gone, "?") if told.startswith(one)) for told in answer.skipped
        ]

    counted = "SELECT partition, count(*), sum(offset) FROM holed GROUP BY partition ORDER BY partition"
    left = [
        [0, 50, sum(range(60)) - sum(range(20, 30))],
        [1, 40, sum(range(60)) - sum(range(10, 20)) - sum(range(30, 40))],
    ]
    assert asked(counted) == (left, [gone, cut, flipped])
    assert asked(counted, partitions="0") == (left[:1], [cut])
    # Only what the plan reads: of each mention with its own filters, if they are pushed at all.
    assert asked("SELECT count(*) FROM holed WHERE offset >= 40") == ([[40]], [])
    assert asked("SELECT count(*) FROM holed WHERE offset BETWEEN 15 AND 25 AND partition = 0") == ([[5]], [cut])
    assert asked("SELECT (SELECT max(offset) FROM orders), count(*) FROM holed WHERE offset < 20") == (
        [[59, 30]],
        [flipped],
    )
    assert asked("SELECT count(*) FROM holed a JOIN holed b USING (partition, offset)") == (
        [[90]],
        [gone, cut, flipped],
    )
    rows, skipped = asked("SELECT offset FROM holed WHERE partition = 1 AND offset > 5 LIMIT 5")
    assert ([row[0] for row in rows], skipped) == ([6, 7, 8, 9, 20], [gone, flipped])
    assert asked("SELECT count(*) FROM orders") == ([[2 * COUNT]], [])


def test_damage_that_was_not_told_before_fails_the_query_that_skips(site: Site) -> None:
    """It comes between the look and the query: what was told is all that is left out."""
    site.archive.write_topic_fact("rotting")
    keys = site.archive.put("rotting", 0, records_of("orders", 0), each=20)
    whole = site.archive.content(keys[1])
    site.archive.change(keys[1], whole[:-10])
    answer = site.ask("SELECT count(*) FROM rotting", None, True)
    assert len(answer.skipped) == 1
    site.archive.change(keys[2], site.archive.content(keys[2])[:-10])
    with pytest.raises(NotWholeError, match=r"0040\.data: its bytes are not those"):
        list(answer.rows)


# --- the command


def lay_out_shop(archive: BucketArchive) -> None:
    """What docs/spark.md asks: two partitions of orders, and what was paid."""
    article = (b"jam", b"tea", b"jam", b"oats", b"jam", b"tea")
    orders = [
        Rec(at, FOUR_MS + 500 * at, 0, b"order-%d" % (at % 4), b'{"article": "%s"}' % article[at], HEADERS[: at % 3])
        for at in range(6)
    ]
    paid = [Rec(at, FOUR_MS, 0, b"order-%d" % at, b"%d.50" % (at + 3)) for at in (0, 2)]
    for topic in ("orders", "shop.payments-v1"):
        archive.write_topic_fact(topic)
    archive.put("orders", 0, orders[:3], each=2)
    archive.put("orders", 1, [replace(one, offset=one.offset - 3) for one in orders[3:]], each=2)
    archive.put("shop.payments-v1", 0, paid, each=2)


SELEC = "the SQL is refused: [PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'."
SLOW_S = 240.0  # a start of Spark takes 50 s where others want both cores, too
FOUR_MS = 1_795_183_200_000  # 2026-11-20T14:00:00Z
HEADERS: Headers = ((b"tag", b"gift"), (b"tag", b"\xff"))


@pytest.fixture
def shop(bucket: Bucket, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveSite]:
    with archive_site(bucket, tmp_path) as site:
        site.write_config("127.0.0.1:9", "x")
        lay_out_shop(BucketArchive(bucket, tmp_path_factory.mktemp("spool")))
        yield site


@pytest.fixture
def run(
    site: Site, minio: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command in this process, on the session of the tests."""
    bucket = Bucket(minio, f"shop-{uuid.uuid4().hex[:12]}")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    shop = Site(BucketArchive(bucket, tmp_path), site.spark)
    lay_out_shop(shop.archive)

    @contextmanager
    def run_query(
        _storage: object, sql: str, options: Mapping[str, str], _notice: object, *, skips_damage: bool
    ) -> Iterator[QueryAnswer]:
        yield shop.ask(sql, None, skips_damage, **options)

    def run(*arguments: str) -> tuple[int, str, str]:
        exit_code = main([*arguments, "--url", bucket.url])
        return exit_code, *capsys.readouterr()

    monkeypatch.setattr(archiver.spark.query, "run_query", run_query)
    return run


def test_the_examples_of_the_documentation(run: Callable[..., tuple[int, str, str]]) -> None:
    text = (REPOSITORY / "docs" / "spark.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    for command, printed in blocks:
        program, *arguments = shlex.split(command)
        assert program == "archiver"
        assert run(*arguments) == (0, printed, "")


def test_mistakes_are_told_in_a_line(run: Callable[..., tuple[int, str, str]]) -> None:
    for arguments, told in (
        (["SELEC 1"], SELEC),
        (["SELECT * FROM nope"], "topic nope is not in the archive; `archiver ls` shows what is"),
        (["SELECT 1 AS a, 2 AS a", "--format", "json"], "two columns are called a; name them with AS"),
        (["SELECT * FROM orders", "--from", "yesterday"], "--from"),
        (["SELECT * FROM orders", "--partitions", "x"], "option partitions: 'x' is not like 3 or 3-5"),
        (["SELECT * FROM orders", "--life", "7"], "orders has no life 7 in the archive; it has 0"),
        (
            ["SELECT * FROM orders", "--instance", "blue"],
            "instance blue has no complete copy of topic orders; no instance",
        ),
    ):
        exit_code, out, err = run("query", *arguments)
        assert (exit_code, out, len(err.splitlines())) == (2, "", 1)
        assert told in err


def test_a_table_of_anything(run: Callable[..., tuple[int, str, str]]) -> None:
    sql = "SELECT 'a\\nb\\u001b[1m' AS lines, NULL AS nothing, 'ü' AS umlaut, array(1, NULL) AS some, 1 AS `a\tb`, 2 AS umlaut"
    assert run("query", sql) == (
        0,
        "lines        nothing  umlaut  some       a\\tb  umlaut\na\\nb\\x1b[1m  NULL     ü       [1, null]  1     2\n",
        "",
    )


@pytest.mark.e2e
@pytest.mark.timeout(3 * SLOW_S)
def test_the_command_meets_damage_and_a_reader_that_goes_away(shop: ArchiveSite, tmp_path: Path) -> None:
    archive = BucketArchive(shop.bucket, tmp_path)
    many = [Rec(at, NOW_MS, 0, None, b"v" * 500) for at in range(20_000)]
    archive.write_topic_fact("many")
    keys = archive.put("many", 0, many, each=5000)

    def first_row(*options: str) -> tuple[int, str]:
        """And then the reader is gone."""
        asked = shlex.join([str(COMMAND), "query", "SELECT * FROM many", "--format", "json", "--quiet", *options])
        done = subprocess.run(
            ["bash", "-c", f"{asked} | head -n 1; exit ${{PIPESTATUS[0]}}"],
            capture_output=True,
            text=True,
            cwd=shop.folder,
            env=environment_of(shop.bucket),
            timeout=SLOW_S,
            check=False,
        )
        assert json.loads(done.stdout)["offset"] == 0
        assert not {"spark-warehouse", "metastore_db", "derby.log"} & {path.name for path in shop.folder.iterdir()}
        return done.returncode, done.stderr

    archive.change(keys[3], archive.content(keys[3])[:-10])
    skipped = f"archiver: skipped: many-0: offsets 15000-19999 in {keys[3]}: "
    exit_code, said = first_row("--skip-damaged")
    assert (exit_code, said.startswith(skipped), len(said.splitlines())) == (3, True, 1)
