"""SQL of users only reads: every way out that Spark's grammar and its functions offer is refused before anything is done."""

import contextlib
import re
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from archiver.config.model import StorageConfig
from archiver.errors import UsageError
from archiver.spark.table import permitted
from archiver.spark.table.permitted import Query, filtered
from archiver.spark.table.query import ask
from tests.support.spark_bucket import sql_session

pytestmark = pytest.mark.spark

NOWHERE = StorageConfig(url="s3://none/at-all", endpoint="http://127.0.0.1:9")
# Each is refused, whatever its arguments are: it runs code, opens files or connections, or tells of the process.
REFUSED = {
    "reflect", "java_method", "try_reflect",
    "from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf",  # a schema may be a file or an address
    "from_xml", "schema_of_xml", "to_xml",  # rowValidationXSDPath
    "xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number", "xpath_short",
    "xpath_string",  # a record that names an external DTD has it fetched
    "version", "current_user", "session_user", "user", "current_catalog", "current_database", "current_schema",
    "input_file_name", "input_file_block_start", "input_file_block_length",
    "python_worker_logs", "collations", "sql_keywords",
}  # fmt: skip
REFUSED_OPTIONS = {
    "compression", "codec",  # any class by its name, which Spark loads
    "extension", "useunsaferow",  # of files that are written, and of Spark's own
}  # fmt: skip


def jvm_of(session: SparkSession) -> Any:  # noqa: ANN401 - PySpark shows no type of it
    return session._jvm


@dataclass
class Witness:
    """A file that is only there, and a server that is only asked, when something went out."""

    file: Path
    port: int
    asked: list[str] = field(default_factory=list)

    def filled(self, sql: str) -> str:
        filled = sql.replace("{file}", str(self.file)).replace("{url}", f"http://127.0.0.1:{self.port}/x")
        return filled.replace("{class}", "org.apache.derby.jdbc.EmbeddedDriver")


@pytest.fixture
def witness(tmp_path: Path, spark_avro: SparkSession) -> Iterator[Witness]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        found = Witness(tmp_path / "witness", server.server_address[1])
        # The driver of a database that Spark brings begins this file when its class is loaded.
        java = jvm_of(spark_avro).java.lang.System
        java.setProperty("derby.stream.error.file", str(found.file))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield found
        java.clearProperty("derby.stream.error.file")
        server.shutdown()
        thread.join()


@pytest.fixture
def session(spark_avro: SparkSession) -> SparkSession:
    """As `archiver query` has it."""
    return sql_session(spark_avro)


def rows(session: SparkSession, sql: str) -> list[list[Any]]:
    return list(ask(session, NOWHERE, [], sql, {}).rows)


EVIL = "reflect('java.lang.Runtime', 'version')"
WAYS_OUT = [
    # Programs, and what leads to Java.
    ("SELECT TRANSFORM(a) USING 'sh -c \"touch {file}\"' AS (b) FROM VALUES (1) AS t(a)", "ScriptTransformation"),
    ("FROM VALUES (1) AS t(a) SELECT TRANSFORM(a) USING 'sh -c \"touch {file}\"' AS (b)", "ScriptTransformation"),
    ("FROM VALUES (1) AS t(a) MAP a USING 'sh -c \"touch {file}\"' AS (b)", "ScriptTransformation"),
    ("FROM (SELECT * FROM VALUES (1) AS t(a)) REDUCE a USING 'sh -c \"touch {file}\"' AS (b)", "ScriptTransformation"),
    ("SELECT reflect('java.lang.System', 'getenv', 'PATH')", "function reflect"),
    ("SELECT `ReFlect`('java.lang.System', 'getenv', 'PATH')", "function reflect"),
    ("SELECT java_method('java.lang.System', 'load', '{file}')", "function java_method"),
    ("SELECT try_reflect('java.lang.System', 'getenv', 'PATH')", "function try_reflect"),
    ("SELECT builtin.reflect('java.lang.System', 'getenv', 'PATH')", "function builtin.reflect"),
    ("SELECT system.builtin.reflect('java.lang.System', 'getenv', 'PATH')", "function system.builtin.reflect"),
    ("SELECT java.lang.System.getenv('PATH')", "function java.lang.system.getenv"),
    ("SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv', 'PATH')", "ExpressionWithUnresolvedIdentifier"),
    # Wherever a plan has room for an expression, or an expression for a plan.
    (f"SELECT 1 + length(upper({EVIL}))", "function reflect"),
    (f"SELECT CASE WHEN true THEN {EVIL} END", "function reflect"),
    (f"SELECT transform(array(1), x -> {EVIL})", "function reflect"),
    (f"SELECT (SELECT {EVIL})", "function reflect"),
    (f"SELECT 1 WHERE EXISTS (SELECT 1 WHERE {EVIL} > '')", "function reflect"),
    (f"SELECT 1 WHERE 'a' IN (SELECT {EVIL})", "function reflect"),
    (f"WITH t AS (SELECT {EVIL}) SELECT * FROM t", "function reflect"),
    (f"WITH t AS (SELECT {EVIL}) SELECT 1", "function reflect"),
    (f"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + length({EVIL}) FROM r WHERE n < 5) SELECT * FROM r", "function reflect"),
    (f"SELECT * FROM VALUES ({EVIL})", "function reflect"),
    (f"SELECT * FROM range(length({EVIL}))", "function reflect"),
    (f"SELECT * FROM explode(array({EVIL}))", "function reflect"),
    (f"SELECT * FROM VALUES (1) AS t(a) LATERAL VIEW explode(array({EVIL})) u AS b", "function reflect"),
    ("SELECT * FROM VALUES (1) AS t(a) LATERAL VIEW reflect('a', 'b') u AS b", "function reflect"),
    (f"SELECT * FROM VALUES (1) AS t(a), LATERAL (SELECT {EVIL})", "function reflect"),
    (f"SELECT * FROM VALUES (1) AS t(a) JOIN VALUES (1) AS u(a) ON {EVIL} > ''", "function reflect"),
    (f"SELECT sum(a) FROM VALUES (1) AS t(a) GROUP BY ROLLUP({EVIL})", "function reflect"),
    (f"SELECT sum(a) FILTER (WHERE {EVIL} > '') FROM VALUES (1) AS t(a)", "function reflect"),
    (f"SELECT sum(a) FROM VALUES (1) AS t(a) HAVING {EVIL} > ''", "function reflect"),
    (f"SELECT sum(a) OVER (ORDER BY {EVIL}) FROM VALUES (1) AS t(a)", "function reflect"),
    (f"SELECT sum(a) OVER w FROM VALUES (1) AS t(a) WINDOW w AS (PARTITION BY {EVIL})", "function reflect"),
    (f"SELECT sum(a) OVER (ORDER BY a ROWS length({EVIL}) PRECEDING) FROM VALUES (1) AS t(a)", "must be a literal"),
    (f"SELECT a FROM VALUES (1) AS t(a) ORDER BY {EVIL}", "function reflect"),
    (f"SELECT a FROM VALUES (1) AS t(a) DISTRIBUTE BY {EVIL}", "function reflect"),
    (f"SELECT 1 LIMIT length({EVIL})", "function reflect"),
    (f"SELECT 1 OFFSET length({EVIL})", "function reflect"),
    (f"SELECT * FROM orders TABLESAMPLE (length({EVIL}) ROWS)", "function reflect"),
    (f"SELECT * FROM VALUES (1) AS t(a) PIVOT (count(1) FOR a IN ({EVIL}))", "function reflect"),
    (f"SELECT /*+ COALESCE(length({EVIL})) */ 1", "function reflect"),
    (f"SELECT from_json('1', {EVIL})", "function reflect"),
    (f"FROM VALUES (1) AS t(a) |> EXTEND {EVIL}", "function reflect"),
    (f"FROM VALUES (1) AS t(a) |> WHERE {EVIL} > ''", "function reflect"),
    (f"FROM VALUES (1) AS t(a) |> SET a = {EVIL}", "function reflect"),
    (f"SELECT 1 UNION ALL SELECT {EVIL}", "function reflect"),
    # Files and connections.
    ("SELECT * FROM IDENTIFIER('text.`/etc/passwd`')", "PlanWithUnresolvedIdentifier"),
    ("SELECT * FROM text.`/etc/passwd`", "topic text./etc/passwd is not in the archive"),
    ("SELECT * FROM parquet.`/etc/passwd`", "topic parquet./etc/passwd is not in the archive"),
    ("SELECT * FROM `kafka-archive`.`x`", "topic kafka-archive.x is not in the archive"),
    ("SELECT * FROM orders WITH ('url' = 's3://other')", "option url"),
    ("SELECT * FROM orders VERSION AS OF 1", "RelationTimeTravel"),
    ("SELECT * FROM orders TIMESTAMP AS OF '2026-01-01'", "RelationTimeTravel"),
    ("SELECT * FROM TABLE(orders)", "function table"),
    ("SELECT * FROM read_files('/etc/passwd')", "function read_files"),
    ("SELECT * FROM python_worker_logs()", "function python_worker_logs"),
    ("SELECT from_protobuf(X'00', 'M', '/etc/passwd')", "function from_protobuf"),
    ("SELECT from_avro(X'00', '{}', map('avroSchemaUrl', '/etc/passwd'))", "function from_avro"),
    ("SELECT from_xml('<a/>', 'a int', map('rowValidationXSDPath', '/etc/passwd'))", "function from_xml"),
    ("SELECT xpath_string('<!DOCTYPE a SYSTEM \"{url}\"><a/>', 'a')", "function xpath_string"),
    # Options of functions: what is no codec that Spark knows is a class, which is loaded.
    *[
        (f"SELECT {function}({before}map('{option}', '{{class}}'))", f"option {option.lower()} is not allowed")
        for function, before in [
            ("to_json", "named_struct('a', 1), "), ("to_csv", "named_struct('a', 1), "), ("schema_of_json", "'1', "),
            ("schema_of_csv", "'1', "), ("from_json", "'1', 'a int', "), ("from_csv", "'1', 'a int', "),
        ]
        for option in ("compression", "Codec", "ComPression")
    ],
    ("SELECT `TO_CSV`(named_struct('a', 1), `MAP`('sep', ';', 'compression', '{class}'))", "option compression"),
    ("SELECT to_csv(named_struct('a', 1), (map('codec', '{class}')))", "option codec"),
    ("SELECT to_csv(named_struct('a', 1), map('co' || 'dec', '{class}'))", "option that is computed"),
    ("SELECT to_csv(named_struct('a', 1), map(concat('co', 'dec'), '{class}'))", "option that is computed"),
    ("SELECT to_csv(named_struct('a', 1), map_from_arrays(array('codec'), array('{class}')))", "option that is computed"),
    ("SELECT to_csv(named_struct('a', 1), str_to_map('codec:{class}'))", "option that is computed"),
    ("SELECT to_csv(named_struct('a', 1), map_concat(map('codec', '{class}')))", "option that is computed"),
    ("SELECT to_csv(named_struct('a', 1), m) FROM (SELECT map('codec', '{class}') AS m)", "option that is computed"),
    ("SELECT from_json('1', schema_of_json('1', map('compression', '{class}')))", "option compression"),
    ("SELECT to_json(named_struct('a', 1), map(NULL, 'a'))", "option null"),
    ("SELECT to_json(named_struct('a', 1), map('of a table', 'a'))", "option of a table"),
    # What the process is.
    ("SELECT current_user", "CurrentUser"),
    ("SELECT user", "CurrentUser"),
    ("SELECT version()", "function version"),
    ("SELECT :a", "NamedParameter"),
    ("SELECT ?", "PosParameter"),
    # Commands.
    *[(sql, "PARSE_SYNTAX_ERROR") for sql in (
        "SET", "SET a = b", "RESET", "ADD JAR '{file}'", "ADD FILE '{file}'", "LIST FILES", "USE x", "SHOW TABLES",
        "EXPLAIN SELECT 1", "CACHE TABLE t AS SELECT 1", "CREATE TABLE t (a int) USING json LOCATION '{file}'",
        "CREATE TABLE t USING json LOCATION '{file}' AS SELECT 1", "CREATE VIEW v AS SELECT 1", "DROP VIEW orders",
        "CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime'", "CREATE FUNCTION f() RETURNS int RETURN 1",
        "INSERT INTO t VALUES (1)", "INSERT OVERWRITE DIRECTORY '{file}' USING json SELECT 1",
        "FROM VALUES (1) AS t(a) INSERT OVERWRITE DIRECTORY '{file}' USING json SELECT a",
        "WITH t AS (SELECT 1) INSERT OVERWRITE DIRECTORY '{file}' USING json SELECT * FROM t",
        "EXECUTE IMMEDIATE 'SELECT 1'", "DECLARE a int", "SET VAR a = 1", "BEGIN SELECT 1; END", "CALL f()",
        "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE t", "REFRESH '{file}'", "dfs -ls /",
    )],
]  # fmt: skip


@pytest.mark.parametrize(("sql", "told"), WAYS_OUT)
def test_each_way_out_is_refused_before_anything_is_done(
    session: SparkSession, witness: Witness, sql: str, told: str
) -> None:
    with pytest.raises(UsageError) as refused:
        rows(session, witness.filled(sql))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not witness.file.exists()
    assert witness.asked == []


PREDICATES = [
    (f"{EVIL} > ''", "function reflect"),
    (f"exists(headers, h -> {EVIL} > '')", "function reflect"),
    ("to_csv(named_struct('a', 1), map('codec', 'a.B')) > ''", "option codec"),
    ("offset IN (TABLE orders)", "UnresolvedRelation"),
    ("offset IN (SELECT 1)", "Project"),
    ("EXISTS (VALUES (1))", "LocalRelation"),
    ("offset = (SELECT * FROM range(1))", "UnresolvedTableValuedFunction"),
    ("topic = current_user", "CurrentUser"),
]


@pytest.mark.parametrize(("predicate", "told"), PREDICATES)
def test_a_predicate_reads_a_record_and_nothing_else(session: SparkSession, predicate: str, told: str) -> None:
    frame = session.range(1).selectExpr("id AS offset", "'a' AS topic", "array(1) AS headers")
    with pytest.raises(UsageError, match=r"not allowed, for (it|they) may do more than read records") as refused:
        filtered(frame, predicate)
    assert told in str(refused.value)
    assert filtered(frame, "topic = '${env:PATH}' OR exists(headers, h -> h = 1)").count() == 1


@pytest.mark.parametrize("predicate", ["rand() < 0.5", "monotonically_increasing_id() < 5", "spark_partition_id() = 0"])
def test_a_predicate_chooses_the_same_each_time(session: SparkSession, predicate: str) -> None:
    with pytest.raises(UsageError, match="chooses other records each time"):
        filtered(session.range(1), predicate)


def test_text_is_not_looked_up(session: SparkSession) -> None:
    """Spark's parser puts the environment, system properties and settings into a statement before it looks at it."""
    texts = ["${env:PATH}", "${system:user.home}", "${spark.app.name}", "${hiveconf:spark.app.name}"]
    assert rows(session, f"SELECT {', '.join(map(repr, texts))}") == [texts]


def functions_of(session: SparkSession) -> dict[str, str]:
    """All that this Spark has, by name, with their examples."""
    state = session._jsparkSession.sessionState()
    found: dict[str, str] = {}
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        names = registry.listFunction().iterator()
        while names.hasNext():
            name = names.next()
            found[name.funcName()] = registry.lookupFunction(name).get().getExamples()
    return found


def test_every_function_is_permitted_or_refused(session: SparkSession) -> None:
    """One that a new version of Spark brings is refused until somebody has looked at what it does, and put it in either list."""
    listed = (Path(permitted.__file__).parent / "permitted_sql.txt").read_text(encoding="utf-8").splitlines()
    names = {line.removeprefix("function ") for line in listed if line.startswith("function ")}
    known = set(functions_of(session))
    assert names.isdisjoint(REFUSED)
    assert names | REFUSED == known
    assert listed == sorted(set(listed))
    for name in REFUSED:
        with pytest.raises(UsageError, match=f"^function {name} is not allowed"):
            Query(session, f"SELECT {name}()", ())
        with pytest.raises(UsageError, match=f"^function {name} is not allowed"):
            Query(session, f"SELECT * FROM {name}()", ())
    with pytest.raises(UsageError, match=r"^function brand_new is not allowed, for it may do more than read records"):
        rows(session, "SELECT brand_new(1)")


def test_every_option_is_permitted_or_refused(session: SparkSession) -> None:
    """Of the functions that take options; as test_every_function_is_permitted_or_refused."""
    catalyst = jvm_of(session).org.apache.spark.sql.catalyst
    known = {
        name.lower()
        for options in (catalyst.json.JSONOptions, catalyst.csv.CSVOptions)
        for name in options.getAllOptions().mkString(" ").split()
    }
    listed = (Path(permitted.__file__).parent / "permitted_sql.txt").read_text(encoding="utf-8").splitlines()
    names = {line.removeprefix("option ") for line in listed if line.startswith("option ")}
    assert names.isdisjoint(REFUSED_OPTIONS)
    assert names | REFUSED_OPTIONS == known


def test_options_that_only_tell_how_text_is_read_are_permitted(session: SparkSession) -> None:
    sql = "SELECT to_csv(named_struct('a', 1, 'b', 2), map('sep', ';')), from_json('{a: 1}', 'a int', map('allowUnquotedFieldNames', 'true')).a"
    assert rows(session, sql) == [["1;2", 1]]


def test_options_are_looked_at_once_more_when_they_are_known(session: SparkSession) -> None:
    """Whatever the parser may have made of a name: these are what the function goes by."""
    frame = session.sql("SELECT to_csv(named_struct('a', 1), map('quote', 'a', 'co' || 'dec', 'gzip'))")
    found = permitted._inventory_in(session._jvm).apply(frame._jdf.queryExecution().analyzed()).splitlines()
    assert {line for line in found if line.startswith("option")} == {"option quote", "option codec"}


def test_only_tables_of_ours_are_read(session: SparkSession) -> None:
    """A name that is found is not enough: what stands under it may be another source."""

    class Foreign(DataSource):
        @classmethod
        def name(cls) -> str:
            return "foreign"

        def schema(self) -> str:
            return "a string"

    session.dataSource.register(Foreign)
    session.read.format("foreign").load().createOrReplaceTempView("orders")
    with pytest.raises(UsageError, match=r"^table foreign is not allowed"):
        Query(session, "SELECT * FROM orders", ("archived-topic",)).frame()
    assert Query(session, "SELECT * FROM orders", ("foreign",)).frame().columns == ["a"]


def test_what_spark_shows_of_its_functions_is_permitted(session: SparkSession) -> None:
    """The first example of each function, which its documentation has: also what Spark makes of it is known."""
    tried = 0
    for name, examples in functions_of(session).items():
        if name not in REFUSED and (example := re.search(r"> (SELECT .*?);", examples, re.DOTALL)):
            with contextlib.suppress(AnalysisException):  # for what is switched off in this version
                Query(session, example[1], ()).frame()
                tried += 1
    assert tried > 450


WANTED = (Path(__file__).parent / "wanted.sql").read_text(encoding="utf-8").split("\n;\n")


def test_what_a_query_needs_is_permitted(session: SparkSession) -> None:
    """Joins, aggregates, windows, subqueries, generators, JSON, intervals, pivots, pipes."""
    columns = (
        "'a' AS topic", "1 AS partition", "id AS offset", "timestamp_millis(id) AS timestamp", "0 AS timestampType",
        "cast('k' AS binary) AS key", "cast('v' AS binary) AS value",
        "array(named_struct('key', 'a', 'value', X'41', 'rawKey', X'41')) AS headers",
    )  # fmt: skip
    session.range(3).selectExpr(*columns).createOrReplaceTempView("orders")
    for sql in WANTED:
        Query(session, sql, ()).frame()


def test_a_plan_of_any_size_is_one_call(session: SparkSession) -> None:
    many = ", ".join(map(str, range(20_000)))
    assert rows(session, f"SELECT 7 IN ({many})") == [[True]]
    with pytest.raises(UsageError, match=r"^function reflect is not allowed"):
        rows(session, f"SELECT 7 IN ({many}, length({EVIL}))")
