"""SQL of users that only reads: what is not known to do just that is refused by name (decision 25)."""

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from archiver.errors import UsageError

_HERE: Final = Path(__file__).parent
_PLANS: Final = ("class catalyst.plans.", "class execution.")
_ADVICE: Final = 'docs/spark.md, "What SQL may say"; use the data source in a Spark session of your own for more'


class Query:
    """A statement that was parsed once: what is looked through is what runs.

    Spark resolves no name in a statement that was not looked through before: that alone opens files and calls functions.
    """

    def __init__(self, spark: SparkSession, sql: str, tables: Collection[str]) -> None:
        """Parse a query, which a command is not; `tables` are the data sources that it may read."""
        self._spark = spark
        self._permission = _Permission(spark, frozenset(tables))
        self._parsed = _parser(spark).parseQuery(sql)
        self._permission.require(self._parsed)

    def frame(self) -> DataFrame:
        """Resolve it with the tables that there are."""
        dataset = getattr(self._spark._jvm, "org.apache.spark.sql.classic.Dataset")  # noqa: B009, SLF001 - PySpark has only spark.sql(text)
        resolved = dataset.ofRows(self._spark._jsparkSession, self._parsed)  # noqa: SLF001
        self._permission.require(resolved.queryExecution().analyzed())
        return DataFrame(resolved, self._spark)


def filtered(frame: DataFrame, predicate: str) -> DataFrame:
    """Filter by a predicate over the columns of a frame, and nothing else. Raises UsageError."""
    spark = frame.sparkSession
    permission = _Permission(spark, None)
    permission.require(_parser(spark).parseExpression(predicate))
    found = frame.where(predicate)
    permission.require(found._jdf.queryExecution().analyzed().expressions())  # noqa: SLF001 - Spark tells it nowhere else
    return found


class _Permission:
    """Looks through plans in the JVM: one call for a plan of any size."""

    def __init__(self, spark: SparkSession, tables: Collection[str] | None) -> None:
        """Without tables, there are no plans either."""
        self._inventory = _inventory_in(spark._jvm)  # noqa: SLF001 - as above
        permitted = (_HERE / "permitted_sql.txt").read_text(encoding="utf-8").splitlines()
        self._permitted = {line for line in permitted if tables is not None or not line.startswith(_PLANS)}
        self._permitted |= {f"table {name}" for name in tables or ()}

    def require(self, plan: Any) -> None:  # noqa: ANN401 - of the JVM
        found = str(self._inventory.apply(plan)).splitlines()
        if unknown := [_spelled(line) for line in found if line not in self._permitted]:
            raise UsageError(f"{', '.join(unknown)} is not allowed, for it may do more than read topics; {_ADVICE}")


@cache  # py4j knows a class by its name: a second one in the same JVM would be taken for the first
def _inventory_in(jvm: Any) -> Any:  # noqa: ANN401 - of the JVM
    """Compile what looks (0.2 s), by the compiler that Spark's own queries need afterwards."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook((_HERE / "PlanInventory.java").read_text(encoding="utf-8"))
    return compiler.getClassLoader().loadClass("PlanInventory").newInstance()


def _parser(spark: SparkSession) -> Any:  # noqa: ANN401 - of the JVM
    return spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - as above


def _spelled(line: str) -> str:
    kind, _, name = line.partition(" ")
    return name.rpartition(".")[2].rstrip("$") if kind == "class" else f"{kind} {name}"
