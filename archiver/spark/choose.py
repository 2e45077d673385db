"""Which records a predicate, or the last of each key, chooses: found with Spark SQL before a restore fills anything, and written down.

A restore numbers the records that it writes, and may be gone on with for days. What was chosen therefore stands in the
archive (docs/format.md §8), object by object; tasks only read it.
"""

import hashlib
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from archiver.chosen import encode_chosen, put_chosen
from archiver.config import StorageConfig
from archiver.errors import ArchiverError, NotWholeError, TemporaryError, UsageError
from archiver.facts import PartFacts
from archiver.frame import Longs
from archiver.layout import Layout
from archiver.parts import ObjectPart
from archiver.restore import PartitionPlan, TopicPlan
from archiver.restore_request import RestoreRequest
from archiver.spark.failure import RUN_AGAIN, line_of, line_of_spark, raised_in
from archiver.spark.permitted import filtered
from archiver.spark.scan import ScanTask, read_task
from archiver.spark.session import open_sql
from archiver.spark.source import FIELDS
from archiver.spark.stores import patient_store_of

_CHUNKS_PER_CORE: Final = 8
# A row of the scan: the object it is of (by its number in this job), and the partition's, for keys are a partition's own.
_PART: Final = StructField("__part", IntegerType(), nullable=False)
_LANE: Final = StructField("__lane", IntegerType(), nullable=False)
_WORK: Final = StructType([_PART, _LANE, StructField("task", BinaryType(), nullable=False)])
# What the limits of a target are held against, of each record: they go with it through what chooses.
_BYTES: Final = StructField("__bytes", LongType(), nullable=False)  # of key and value
_TIME: Final = StructField("__time", LongType(), nullable=False)
_MEASURED: Final = ("key", "value", "timestampMs")  # columns that tell both
_CHOSEN: Final = (_PART.name, "offset", _BYTES.name, _TIME.name)
_SUMS: Final = ("records", "min_timestamp", "max_timestamp", "bytes", "largest_record")
_WRITTEN: Final = StructType([
    _PART, StructField("key", StringType(), nullable=False), *(StructField(name, LongType(), nullable=False) for name in _SUMS),
])  # fmt: skip


_Damage = dict[int, str]  # by the number of an object: why it cannot be looked through


class _Joined(AccumulatorParam[_Damage]):
    """What workers tell beside their rows."""

    def zero(self, value: _Damage) -> _Damage:  # noqa: ARG002 - PySpark's
        return {}

    def addInPlace(self, value1: _Damage, value2: _Damage) -> _Damage:  # noqa: N802 - PySpark's name
        return {**value1, **value2}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where it is written down what is chosen of an object."""

    layout: Layout
    restore_id: str
    target: str
    partition: int
    part: ObjectPart

    def key_of(self, content: bytes) -> str:
        """Name it after what is chosen: that another run chose otherwise, when an object was damaged, changes nothing."""
        digest = hashlib.sha256(f"{self.part} ".encode() + content).hexdigest()[:24]
        return self.layout.chosen_key(self.restore_id, self.target, self.partition, digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One object that is looked through."""

    topic: int
    part: ObjectPart
    place: _Place
    task: ScanTask

    @property
    def lane(self) -> tuple[int, int]:
        return self.topic, self.task.partition


def choose(
    spark: SparkContext,
    topics: Sequence[TopicPlan],
    request: RestoreRequest,
    *,
    storage: StorageConfig,
    restore_id: str,
) -> list[TopicPlan]:
    """Narrow plans to the chosen records.

    Who cannot look through an object does not know what it holds, nor, for the last of each key, what another one's
    records are worth: its partition is refused, or it is left out as a whole.
    """
    session = open_sql(spark)
    columns = _columns(session, request)
    pieces = list(_pieces(topics, columns, storage, restore_id))
    damage = spark.accumulator(_Damage(), _Joined())
    try:
        chosen = _chosen(_scan(session, spark.defaultParallelism, pieces, columns, damage), request)
        places = [piece.place for piece in pieces]
        written = chosen.mapInArrow(_writer(storage, places), _WRITTEN).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise _as_ours(error, request.where) from error
    found = _Found(pieces, {row[_PART.name]: row for row in written}, damage.value, request.skips_damage)
    return [found.narrow(index, topic) for index, topic in enumerate(topics)]


def _columns(session: SparkSession, request: RestoreRequest) -> list[str]:
    """Return what has to be read; a predicate that Spark does not understand is refused here."""
    needed = {"offset", *(["key"] if request.is_latest_per_key else [])}
    if request.where:
        names = list(FIELDS)
        try:
            asked = filtered(session.createDataFrame([], StructType([FIELDS[name] for name in names])), request.where)
            plan = asked._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark tells it nowhere else
        except (PySparkException, Py4JJavaError) as error:
            raise UsageError(f"--where {request.where}: {line_of(error)}") from error
        except UsageError as error:
            raise UsageError(f"--where {request.where}: {error}") from error
        used = plan.expressions().mkString(" ")
        needed |= {name for name in names if f"{name}#" in used}
    return [name for name in FIELDS if name in needed]


def _pieces(
    topics: Sequence[TopicPlan],
    columns: Sequence[str],
    storage: StorageConfig,
    restore_id: str,
) -> Iterator[_Piece]:
    layout = Layout(storage.prefix)
    for index, topic in enumerate(topics):
        for partition in topic.partitions:
            for part in () if partition.problem else partition.parts:
                yield _Piece(
                    topic=index,
                    part=part,
                    place=_Place(
                        layout=layout,
                        restore_id=restore_id,
                        target=topic.target,
                        partition=partition.partition,
                        part=part,
                    ),
                    task=ScanTask(
                        storage=storage,
                        topic=topic.source,
                        partition=partition.partition,
                        columns=tuple(dict.fromkeys((*columns, *_MEASURED))),
                        selection=partition.selection,
                        parts=(part,),
                        is_hashed=True,  # what is damaged is so as a whole
                        tries_first=True,
                        skips_damage=False,
                    ),
                )


def _scan(
    session: SparkSession,
    at_once: int,
    pieces: Sequence[_Piece],
    columns: Sequence[str],
    damage: Accumulator[_Damage],
) -> DataFrame:
    lanes = {lane: number for number, lane in enumerate(dict.fromkeys(piece.lane for piece in pieces))}
    rows = [(number, lanes[piece.lane], pickle.dumps(piece.task)) for number, piece in enumerate(pieces)]
    slices = max(1, min(len(rows), _CHUNKS_PER_CORE * at_once))
    work = session.createDataFrame(session.sparkContext.parallelize(rows, slices), _WORK)
    schema = StructType([_PART, _LANE, _BYTES, _TIME, *(FIELDS[name] for name in columns)])
    return work.mapInArrow(_reader(columns, damage), schema)


def _reader(
    columns: Sequence[str], damage: Accumulator[_Damage]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    names = [_PART.name, _LANE.name, _BYTES.name, _TIME.name, *columns]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read objects, in a worker. Keys and values that nothing asks for stay there: how large they are goes on."""
        for batch in batches:
            for row in batch.to_pylist():
                try:
                    for found in read_task(pickle.loads(row["task"])):  # noqa: S301 - written above
                        count = found.num_rows
                        numbers = [pa.array(np.full(count, row[name], np.int32)) for name in (_PART.name, _LANE.name)]
                        measured = [_size_of(found), found.column("timestampMs")]
                        asked = [found.column(name) for name in columns]
                        yield pa.RecordBatch.from_arrays([*numbers, *measured, *asked], names=names)
                except NotWholeError as error:
                    damage.add({row[_PART.name]: str(error)})

    return read


def _size_of(found: pa.RecordBatch) -> pa.Array:
    sizes = (pc.fill_null(pc.binary_length(found.column(name)), 0).cast(pa.int64()) for name in ("key", "value"))
    return pc.add(*sizes)


def _chosen(found: DataFrame, request: RestoreRequest) -> DataFrame:
    wanted = filtered(found, request.where) if request.where else found
    if not request.is_latest_per_key:
        return wanted.select(*_CHOSEN)
    key: Column = F.col("key")
    # A record without a key replaces no other one.
    last = F.max(F.struct("offset", *(name for name in _CHOSEN if name != "offset"))).alias("last")
    grouped = wanted.groupBy(_LANE.name, "key", F.when(key.isNull(), F.col("offset"))).agg(last)
    return (
        grouped.select(*(f"last.{name}" for name in _CHOSEN))
        .repartition(_PART.name)
        .sortWithinPartitions(_PART.name, "offset")
    )


def _writer(
    storage: StorageConfig, places: Sequence[_Place]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write down what is chosen of each object; rows come object by object, in the order of their offsets."""
        store = patient_store_of(storage)
        for part, (offsets, sizes, times) in _by_part(batches):
            content = encode_chosen(offsets)
            key = places[part].key_of(content)
            put_chosen(store, key, content)
            sums = [len(offsets), times.min(), times.max(), sizes.sum(), sizes.max()]
            columns = [pa.array([part], pa.int32()), pa.array([key]), *(pa.array([one], pa.int64()) for one in sums)]
            yield pa.RecordBatch.from_arrays(columns, names=_WRITTEN.names)

    return write


def _by_part(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Longs]]:
    """Tell offsets, sizes and times of the chosen records of each object, a row of an array each."""
    current = -1
    pieces: list[Longs] = []
    for batch in batches:
        parts, found = batch.column(0).to_numpy(), np.stack([column.to_numpy() for column in batch.columns[1:]])
        edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
        for start, stop in pairwise(edges):
            if start == stop:
                continue
            if int(parts[start]) != current:
                if pieces:
                    yield current, np.concatenate(pieces, axis=1)
                current, pieces = int(parts[start]), []
            pieces.append(found[:, start:stop])
    if pieces:
        yield current, np.concatenate(pieces, axis=1)


@dataclass(frozen=True, slots=True)
class _Found:
    """What became of the objects that were looked through."""

    pieces: Sequence[_Piece]
    wanted: Mapping[int, Row]  # by the number of an object that has some
    damage: _Damage
    skips_damage: bool

    def narrow(self, index: int, topic: TopicPlan) -> TopicPlan:
        mine: dict[int, list[int]] = {partition.partition: [] for partition in topic.partitions}
        for number, piece in enumerate(self.pieces):
            if piece.topic == index:
                mine[piece.task.partition].append(number)
        return replace(
            topic, partitions=tuple(self._narrow(topic, one, mine[one.partition]) for one in topic.partitions)
        )

    def _narrow(self, topic: TopicPlan, partition: PartitionPlan, numbers: Sequence[int]) -> PartitionPlan:
        if partition.problem:
            return partition
        damaged = [number for number in numbers if number in self.damage]
        if damaged and not self.skips_damage:
            told = "; ".join(self.damage[number] for number in damaged)
            return replace(
                partition, parts=(), facts=(), records=0, problem=f"{topic.source}-{partition.partition}: {told}"
            )
        kept = [
            (number, facts)
            for number, facts in zip(numbers, partition.facts, strict=True)
            if number in self.wanted and number not in self.damage
        ]
        return replace(
            partition,
            parts=tuple(replace(self.pieces[number].part, chosen_key=self.wanted[number]["key"]) for number, _ in kept),
            facts=tuple(_facts(facts, self.wanted[number]) for number, facts in kept),
            records=sum(self.wanted[number]["records"] for number, _ in kept),
            missing=(*partition.missing, *(self.pieces[number].part.tell(self.damage[number]) for number in damaged)),
        )


def _facts(of_object: PartFacts, written: Row) -> PartFacts:
    """Tell what the chosen records of an object add up to; what they take of a broker's disk is their share of it."""
    payload = min(of_object.bytes, of_object.source_bytes)
    share = payload * written["bytes"] / max(1, of_object.bytes)
    share += (of_object.source_bytes - payload) * written["records"] / max(1, of_object.records)
    return PartFacts(is_exact=True, source_bytes=math.ceil(share), **{name: written[name] for name in _SUMS})


def _as_ours(error: PySparkException | Py4JJavaError, where: str) -> ArchiverError:
    """Take out of what Spark says what a worker of ours raised, or else why it could not work the predicate out."""
    if ours := raised_in(error):
        return ours
    if where and line_of_spark(error):
        return UsageError(f"--where {where}: {line_of(error)}")
    return TemporaryError(f"Spark could not choose records: {line_of(error)}; {RUN_AGAIN}")
