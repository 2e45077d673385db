"""Runs SQL over the archive: each topic is a table under its own name, made when a statement names it."""

import math
import pickle
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, map_entries, struct, transform, unix_micros, when
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from archiver.archive.reading.plain_records import spell_bytes
from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, UsageError
from archiver.spark.session.failure import line_of, missing_program, raised_in
from archiver.spark.session.tasks import run_on_spark
from archiver.spark.table.options import POSITION_OPTIONS, POSITIONS
from archiver.spark.table.permitted import Query
from archiver.spark.table.scan import HOW_TO_GO_ON, ScanTask, scan_for_damage
from archiver.spark.table.source import MissingPartition, ScanPartition, source_for

# Stored bytes of a task: its rows are handed over as a whole in the JVM's memory, a few times as large.
_TASK_BYTES = 8 * 1024 * 1024
_SOURCE = "archived-topic"  # beside one that the session's owner may have registered
_SURVEY = "archived-topic-survey"
_MOST_AT_ONCE = 1_000  # rows; with at most so many, Spark reads only as far as it must to have them
_AS_THEY_ARE = (
    BinaryType, BooleanType, ByteType, DoubleType, FloatType, IntegerType, LongType, NullType, ShortType, StringType,
)  # fmt: skip
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """A statement's answer: names of columns, and an iterator of rows of values that JSON can hold."""

    columns: Sequence[str]
    rows: Iterator[list[Any]]
    skipped: Sequence[str] = ()  # missing or damaged objects that the answer leaves out


def ask(
    spark: SparkSession,
    storage: StorageConfig,
    topics: Collection[str],
    sql: str,
    options: Mapping[str, str],
    *,
    skips_damage: bool = False,
) -> QueryAnswer:
    """Run one query; `topics` are the archived ones, `options` of the data source apply to each that is read.

    Filters are pushed into topics that the plan reads once. A scan planned with the filters of one mention, Spark 4.1
    would use for the other, too (docs/spark.md, "Filters").

    Skippable damage is searched before the query, in just the objects that its plan reads, and the query
    then leaves those out by name; any other damage still fails it. Its own tasks cannot report it: Spark ends them
    under a LIMIT before their reports, and rows would be printed before that is known.
    """
    skipped: list[str] = []
    with _SparkErrors():
        query = Query(spark, sql.strip().removesuffix(";"), tables=(_SOURCE, _SURVEY))
        tables = _Tables(spark, storage, topics, options, is_survey=skips_damage)
        frame = tables.resolve(query)
        once = [topic for topic, count in _mentions(frame).items() if count == 1 and topic != POSITIONS]
        if once:
            # Not before: a plan with filters lists the topic.
            spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
            for topic in once:
                tables.make(topic, pushFilters="true")
            frame = query.frame()
        if skips_damage:
            damage = _damage(spark, _planned(frame))
            skipped = list(damage.values())
            tables.make_for_reading(damage.keys() | set(skipped))
            frame = query.frame()
        kinds = [field.dataType for field in frame.schema]
        plain = frame.toDF(*map(str, range(len(kinds))))
        plain = plain.select(*(_plain(col(str(number)), kind) for number, kind in enumerate(kinds)))
        few = _most_rows(plain) <= _MOST_AT_ONCE
    return QueryAnswer(columns=frame.columns, rows=_rows(plain, kinds, few), skipped=skipped)


def _damage(spark: SparkSession, planned: Collection[object]) -> dict[str, str]:
    """Read all objects of a plan. Returns {object: problem}; a missing object is its own problem."""
    damage = {one: one for part in planned if isinstance(part, MissingPartition) for one in part.missing}
    seen: set[str] = set()
    tasks: list[ScanTask] = []
    for part in planned:
        if isinstance(part, ScanPartition):
            parts = tuple(one for one in part.task.parts if one.object_key not in seen)
            seen |= {one.object_key for one in parts}
            tasks.append(replace(part.task, parts=parts, is_hashed=True))
    found = run_on_spark(spark.sparkContext, [task for task in tasks if task.parts], scan_for_damage, _weight)
    return damage | {key: told for some in sorted(found) for key, told in some}


def _weight(task: ScanTask) -> int:
    return len(task.parts)


def _rows(plain: DataFrame, kinds: Sequence[DataType], few: bool) -> Iterator[list[Any]]:
    with _SparkErrors():
        for row in plain.collect() if few else plain.toLocalIterator(prefetchPartitions=True):
            yield [_value(value, kind) for value, kind in zip(row, kinds, strict=True)]


class _Tables:
    """The tables of one statement."""

    def __init__(
        self,
        spark: SparkSession,
        storage: StorageConfig,
        topics: Collection[str],
        options: Mapping[str, str],
        *,
        is_survey: bool,
    ) -> None:
        self._spark = spark
        self._storage = storage
        self._topics = topics
        self._options = options
        self._made: dict[str, Mapping[str, str]] = {}  # with which options of their own
        self._source = self._register(_SURVEY if is_survey else _SOURCE, frozenset())

    def _register(self, label: str, given_up: AbstractSet[str]) -> str:
        source = source_for(
            self._spark.sparkContext.defaultParallelism,
            label=label,
            storage=self._storage,
            task_bytes=_TASK_BYTES,
            is_survey=label == _SURVEY,
            given_up=given_up,
        )
        self._spark.dataSource.register(source)
        return label

    def resolve(self, query: Query) -> DataFrame:
        """Resolve a statement repeatedly, each time with the table that Spark missed: only Spark knows which names are tables."""
        while True:
            try:
                return query.frame()
            except AnalysisException as error:
                if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
                    raise
                topic = self._topic_of(error.getMessageParameters() or {})
                if topic in self._made:  # and it will not find it the next time either
                    raise
                self.make(topic)

    def make(self, topic: str, **options: str) -> None:
        """Make a table of a topic, or make it again."""
        self._made[topic] = options
        held = {name: text for name, text in self._options.items() if topic != POSITIONS or name in POSITION_OPTIONS}
        frame = self._spark.read.format(self._source).options(topic=topic, **held, **options).load()
        frame.createOrReplaceTempView(f"`{topic}`")

    def make_for_reading(self, given_up: AbstractSet[str]) -> None:
        """Make all tables again after a survey, now to be read, without the objects that the survey gave up."""
        self._source = self._register(_SOURCE, given_up)
        for topic, options in list(self._made.items()):
            self.make(topic, **options)

    def _topic_of(self, said: Mapping[str, str]) -> str:
        parts = [part.replace("``", "`") for part in _QUOTED.findall(said.get("relationName", ""))]
        topic = ".".join(parts)
        if topic not in {*self._topics, POSITIONS}:
            hint = f"; where groups stood is in `{POSITIONS}`" if topic.startswith("@") else ""
            raise UsageError(f"topic {topic} is not in the archive; `archiver ls` shows what is{hint}")
        if len(parts) > 1:
            raise UsageError(f"topic {topic}: a name with a dot in it stands in backquotes: `{topic}`")
        return topic


def _mentions(frame: DataFrame) -> Counter[str]:
    """Count how often the plan reads each topic: once per mention, except inlined or removed ones."""
    return Counter(str(scan.relation().options().get("topic")) for scan in _scans(frame))


def _planned(frame: DataFrame) -> list[object]:
    """Return the input partitions that the readers of a plan's scans have planned, each reader with the filters of its scan."""
    partitions = (one for scan in _scans(frame) for one in scan.scan().toBatch().planInputPartitions())
    return [pickle.loads(one.pickedPartition()) for one in partitions]  # noqa: S301 - by a process of ours


def _scans(frame: DataFrame) -> Iterator[Any]:
    plan = _plan_of(frame)
    for part in [plan, *_each(plan.subqueriesAll())]:
        for leaf in _each(part.collectLeaves()):
            if leaf.getClass().getSimpleName() == "DataSourceV2ScanRelation":
                yield leaf


def _each(sequence: Any) -> Iterator[Any]:  # noqa: ANN401 - of Scala
    return (sequence.apply(index) for index in range(sequence.size()))


def _most_rows(frame: DataFrame) -> float:
    """Return the largest possible number of rows of a statement, by Spark's plan."""
    found = _plan_of(frame).maxRows()
    return math.inf if found.isEmpty() else int(found.get())


def _plan_of(frame: DataFrame) -> Any:  # noqa: ANN401 - of the JVM
    return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - as above


# --- values


def _plain(column: Column, kind: DataType) -> Column:
    """Turn a column into types that PySpark hands over without loss: its datetime, for one, ends with the year 9999."""
    match kind:
        case TimestampType():
            return unix_micros(column)
        case StructType():
            fields = [_plain(column.getField(field.name), field.dataType).alias(field.name) for field in kind]
            return when(column.isNotNull(), struct(*fields))
        case ArrayType():
            return transform(column, _plainer(kind.elementType))
        case MapType():
            entry = StructType().add("key", kind.keyType).add("value", kind.valueType)
            return transform(map_entries(column), _plainer(entry))
        case _:
            return column if isinstance(kind, _AS_THEY_ARE) else column.cast("string")


def _plainer(kind: DataType) -> Callable[[Column], Column]:
    return lambda column: _plain(column, kind)


def _value(value: Any, kind: DataType) -> Any:  # noqa: ANN401 - of any type that SQL has
    """Turn a value of a column that `_plain` has made into a value that JSON can hold."""
    told: Any = value
    match kind:
        case _ if value is None:
            pass
        case BinaryType():
            told = spell_bytes(bytes(value))
        case TimestampType():
            told = _moment(value)
        case DoubleType() | FloatType():
            told = value if math.isfinite(value) else str(value)
        case StructType():
            told = {field.name: _value(part, field.dataType) for part, field in zip(value, kind, strict=True)}
        case ArrayType():
            told = [_value(part, kind.elementType) for part in value]
        case MapType():
            told = [[_value(key, kind.keyType), _value(part, kind.valueType)] for key, part in value]
        case _:
            pass
    return told


def _moment(microseconds: int) -> str:
    moment = np.datetime64(microseconds, "us")
    return f"{np.datetime_as_string(moment, unit='us' if microseconds % 1000 else 'ms')}Z"


# --- errors


class _SparkErrors:
    """A context manager that turns errors of Spark into errors of ours, with one line that explains them."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, PySparkException | Py4JError):
            raise _as_ours(error) from error


def _as_ours(error: PySparkException | Py4JError) -> ArchiverError:
    """Return the error for the user: the data source's own, from the tracebacks of Python and Java, else Spark's own line."""
    if ours := raised_in(error, less=HOW_TO_GO_ON):
        return ours
    if program := missing_program(
        str(error)
    ):  # Spark plans a source of ours on the driver's machine, by the executors' Python
        return UsageError(
            f"the driver's machine has no {program}, which spark.pyspark.python names, and a query is planned by it:"
            " unpack the environment there, too (docs/clusters.md)"
        )
    said = line_of(error)
    if isinstance(error, AnalysisException):  # also SQL that cannot be parsed
        return UsageError(f"the SQL is refused: {said.removesuffix(';')}")
    return ArchiverError(f"the query failed: {said}")
