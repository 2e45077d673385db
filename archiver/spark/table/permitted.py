"""Checks that a user's SQL only reads: anything not known to only read is refused by name (decision 28)."""

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession

from archiver.errors import UsageError

_HERE: Final = Path(__file__).parent
_OF_PLANS: Final = (
    "class catalyst.plans.",
    "class execution.",
    "class catalyst.analysis.UnresolvedRelation",
    "class catalyst.analysis.UnresolvedInlineTable",
    "class catalyst.analysis.UnresolvedTableValuedFunction",
)
_ADVICE: Final = (
    'docs/spark.md, "What SQL may say", tells what is; for more, use the data source in a Spark session of your own'
)


class Query:
    """A statement whose names Spark resolves only after it was checked: resolving alone opens files and calls functions."""

    def __init__(self, spark: SparkSession, sql: str, tables: Collection[str]) -> None:
        """Take a query; commands are refused. `tables` are the data sources that it may read."""
        self._spark = spark
        self._sql = sql
        self._permission = _Permission(spark, frozenset(tables))
        self._parsed()

    def frame(self) -> DataFrame:
        """Resolve the statement with the tables that exist now.

        The statement is parsed for each try: Spark remembers of a plan that it could not be resolved.
        """
        dataset = _jvm_of(self._spark).org.apache.spark.sql.classic.Dataset  # PySpark has only spark.sql(text)
        resolved = dataset.ofRows(self._spark._jsparkSession, self._parsed())  # noqa: SLF001
        self._permission.require(resolved.queryExecution().analyzed())
        return DataFrame(resolved, self._spark)

    def _parsed(self) -> Any:  # noqa: ANN401 - of the JVM
        parsed = _parser(self._spark).parseQuery(self._sql)
        self._permission.require(parsed)
        return parsed


def filtered(frame: DataFrame, predicate: str) -> DataFrame:
    """Filter by a predicate over the columns of a frame alone. Raises UsageError."""
    spark = frame.sparkSession
    permission = _Permission(spark, None)
    parsed = _parser(spark).parseExpression(predicate)
    permission.require(parsed)
    found = frame.where(Column(_jvm_of(spark).org.apache.spark.sql.classic.ExpressionUtils.column(parsed)))
    analysed = found._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark tells it nowhere else
    permission.require(analysed.expressions())
    if not analysed.condition().deterministic():
        raise UsageError(
            "it chooses other records each time; use columns of the record, such as crc32(key) % 2 = 0 for half"
        )
    return found


class _Permission:
    """The permitted parts of a plan, and the check of a plan, by one call into the JVM for a plan of any size."""

    def __init__(self, spark: SparkSession, tables: Collection[str] | None) -> None:
        """`tables`: the data sources that a plan may read; None: only expressions are permitted, and so no subqueries."""
        self._inventory = _inventory_in(_jvm_of(spark))
        permitted = (_HERE / "permitted_sql.txt").read_text(encoding="utf-8").splitlines()
        self._permitted = {line for line in permitted if tables is not None or not line.startswith(_OF_PLANS)}
        self._permitted |= {f"table {name}" for name in tables or ()}

    def require(self, plan: Any) -> None:  # noqa: ANN401 - of the JVM
        found = str(self._inventory.apply(plan)).splitlines()
        for clause in (line.removeprefix("clause ") for line in found if line.startswith("clause ")):
            raise UsageError(
                f"Spark reads a column named like a clause, such as offset, behind {clause} as that clause, and {clause}"
                f" as the name of a table; write {clause} (offset) IN (1, 2), with the column in parentheses"
            )
        if unknown := [_spelled(line) for line in found if line not in self._permitted]:
            refusal = "is not allowed, for it" if len(unknown) == 1 else "are not allowed, for they"
            raise UsageError(f"{', '.join(unknown)} {refusal} may do more than read records; {_ADVICE}")


@cache  # py4j knows a class by its name: a second one in the same JVM would be taken for the first
def _inventory_in(jvm: Any) -> Any:  # noqa: ANN401 - of the JVM
    """Compile the class that lists the parts of a plan (0.2 s), by the compiler that Spark's own queries need afterwards."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook((_HERE / "PlanInventory.java").read_text(encoding="utf-8"))
    return compiler.getClassLoader().loadClass("PlanInventory").newInstance()


def _jvm_of(spark: SparkSession) -> Any:  # noqa: ANN401 - PySpark shows no type of it
    return spark._jvm  # noqa: SLF001 - Spark shows neither parser nor plan otherwise


def _parser(spark: SparkSession) -> Any:  # noqa: ANN401 - of the JVM
    """Return the parser. It uses the settings of the active session, which may be another one."""
    session = spark._jsparkSession  # noqa: SLF001 - as above
    _jvm_of(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    return session.sessionState().sqlParser()


def _spelled(line: str) -> str:
    kind, _, name = line.partition(" ")
    return name.rpartition(".")[2].rstrip("$") if kind == "class" else f"{kind} {name}"
