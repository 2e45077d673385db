"""The data source `kafka-archive`, for PySpark's Python Data Source API."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from archiver.config.model import StorageConfig
from archiver.errors import UsageError
from archiver.spark.table.filters import Narrowing
from archiver.spark.table.options import (
    POSITION_COLUMNS,
    PositionOptions,
    ScanOptions,
    parse_options,
    parse_position_options,
    wants_positions,
)
from archiver.spark.table.positions import ALWAYS_THERE, read_positions, survey_positions
from archiver.spark.table.scan import TASK_BYTES, ScanTask, plan_scan, read_task, report_missing

NAME = "kafka-archive"

# A reader that takes filters is an error to Spark while spark.sql.python.filterPushdown.enabled is off, and a source
# cannot read that setting. The worker's module shows it: only this worker of PySpark's pushes filters.
_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"

_HEADER = StructType(
    [
        StructField("key", StringType(), nullable=False),
        StructField("value", BinaryType()),
        StructField("rawKey", BinaryType()),
    ]
)
FIELDS = {
    "topic": StructField("topic", StringType(), nullable=False),
    "partition": StructField("partition", IntegerType(), nullable=False),
    "offset": StructField("offset", LongType(), nullable=False),
    "timestamp": StructField("timestamp", TimestampType()),
    "timestampType": StructField("timestampType", IntegerType(), nullable=False),
    "key": StructField("key", BinaryType()),
    "value": StructField("value", BinaryType()),
    "headers": StructField("headers", ArrayType(_HEADER, containsNull=False), nullable=False),
    "timestampMs": StructField("timestampMs", LongType(), nullable=False),
}

_POSITION_TYPES = {
    "life": IntegerType(), "partition": IntegerType(), "leaderEpoch": IntegerType(), "offset": LongType(), "lag": LongType(),
    "committed": TimestampType(), "removed": TimestampType(),
}  # fmt: skip
POSITION_FIELDS = {
    name: StructField(name, _POSITION_TYPES.get(name, StringType()), nullable=name not in ALWAYS_THERE)
    for name in POSITION_COLUMNS
}


class KafkaArchive(DataSource):
    """One topic of an archive, or the positions of its groups."""

    label = NAME
    parallelism = 1  # of the session that it is registered in
    storage: StorageConfig | None = None  # of a session for one archive: then no option names it
    task_bytes = TASK_BYTES
    is_survey = False  # planned only for its objects, and never read
    given_up: AbstractSet[str] = frozenset()  # objects, and missing parts, that the caller knows already

    @classmethod
    def name(cls) -> str:
        return cls.label

    def schema(self) -> StructType:
        if wants_positions(self.options):
            columns = parse_position_options(self.options, self.storage).columns
            return StructType([POSITION_FIELDS[name] for name in columns])
        return StructType([FIELDS[name] for name in parse_options(self.options, self.storage).columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        if wants_positions(self.options):
            found = parse_position_options(self.options, self.storage)
            return PositionReader(self, replace(found, columns=_columns_of(schema, POSITION_FIELDS)))
        options = replace(parse_options(self.options, self.storage), columns=_columns_of(schema, FIELDS))
        kind = PushingReader if options.pushes_filters and _filters_are_pushed() else Reader
        return kind(self, options)


def source_for(
    parallelism: int,
    *,
    label: str = NAME,
    storage: StorageConfig | None = None,
    task_bytes: int = TASK_BYTES,
    is_survey: bool = False,
    given_up: AbstractSet[str] = frozenset(),
) -> type[KafkaArchive]:
    """Return the source for a session that runs so many tasks at once; each reads about so many stored bytes."""
    made_for = {
        "label": label,
        "parallelism": parallelism,
        "storage": storage,
        "task_bytes": task_bytes,
        "is_survey": is_survey,
        "given_up": given_up,
    }
    return type(KafkaArchive.__name__, (KafkaArchive,), made_for)


def _filters_are_pushed() -> bool:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING_WORKER in sys.modules or (main is not None and main.name == _PUSHING_WORKER)


def _columns_of(schema: StructType, fields: Mapping[str, StructField]) -> tuple[str, ...]:
    """Return the columns of the schema to be read. A user may have given it: a column that is not the data source's is refused."""
    for field in schema:
        known = fields.get(field.name)
        if known is None or known.dataType != field.dataType:
            raise UsageError(
                f"the schema's column {field.name} {field.dataType.simpleString()} is not one of"
                f" {', '.join(f'{one.name} {one.dataType.simpleString()}' for one in fields.values())}"
            )
    return tuple(schema.names)


class ScanPartition(InputPartition):
    """The work of one Spark task, as Spark hands it from the planning reader to the reader on an executor."""

    def __init__(self, task: ScanTask) -> None:
        super().__init__(task)
        self.task = task


class MissingPartition(InputPartition):
    """The missing parts of a survey, as a partition without rows: a survey has no other way to report them."""

    def __init__(self, missing: tuple[str, ...]) -> None:
        super().__init__(missing)
        self.missing = missing


class Reader(DataSourceReader):
    """Reads one topic: plans the scan on the driver, and runs its tasks on the executors."""

    def __init__(self, source: KafkaArchive, options: ScanOptions) -> None:
        self._options = options
        self._parallelism = source.parallelism
        self._task_bytes = source.task_bytes
        self._is_survey = source.is_survey
        self._given_up = source.given_up
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        narrow = self._narrowing.selection_of
        plan = plan_scan(self._options, narrow, self._parallelism, self._task_bytes, self._given_up)
        tasks: list[InputPartition] = [ScanPartition(task) for task in plan.tasks]
        if self._is_survey:
            return [*tasks, MissingPartition(plan.missing)]
        report_missing(plan, self._options.on_damage)
        return tasks

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read one task's objects. None is Spark's sign for no partition at all."""
        return read_task(partition.task) if isinstance(partition, ScanPartition) else iter(())


class PositionsPartition(InputPartition):
    """The one task that reads the table of positions."""

    def __init__(self, options: PositionOptions) -> None:
        super().__init__(options)
        self.options = options


class PositionReader(DataSourceReader):
    """Reads the positions of consumer groups."""

    def __init__(self, source: KafkaArchive, options: PositionOptions) -> None:
        self._options = options
        self._is_survey = source.is_survey
        self._given_up = source.given_up

    def partitions(self) -> list[InputPartition]:
        task = PositionsPartition(self._options)
        return [task, MissingPartition(survey_positions(self._options))] if self._is_survey else [task]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the one task's rows."""
        if not isinstance(partition, PositionsPartition):
            return iter(())
        options = partition.options
        schema = to_arrow_schema(StructType([POSITION_FIELDS[name] for name in options.columns]))
        return read_positions(options, schema, self._given_up)


class PushingReader(Reader):
    """A reader that narrows its scan by filters of the query. Spark applies all of them again, so none needs to be applied exactly.

    Used only if an option asks for it: Spark 4.1 keeps the scan planned with the filters of one query for every other query of the
    same DataFrame, which then misses records in silence (docs/spark.md, "Filters").
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._narrowing = Narrowing.of(filters)
        return filters
