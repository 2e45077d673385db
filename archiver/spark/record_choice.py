"""Chooses records by a predicate, or the last of each key, with Spark SQL, and stores lists of them before a restore.

A restore numbers the records that it writes, and may be continued for days. The choice is therefore stored in the
archive (docs/format.md §8), object by object; tasks only read it.
"""

import hashlib
import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from archiver.archive.format.layout import Layout, chosen_name
from archiver.archive.restores.chosen_records import encode_chosen, put_chosen
from archiver.archive.segments.parts import Chosen, FactsOfParts, ObjectPart, ObjectParts
from archiver.archive.segments.segment_facts import PartFacts
from archiver.codec.frame import Longs
from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, NotWholeError, PredicateError, TemporaryError, UsageError
from archiver.process.values.columns import Chain, Numbers, Places, Texts, as_slice, narrow, total
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from archiver.spark.session.failure import RUN_AGAIN, line_of, line_of_spark, raised_in
from archiver.spark.session.spark_session import open_sql
from archiver.spark.table.permitted import filtered
from archiver.spark.table.scan import ScanTask, read_task
from archiver.spark.table.source import FIELDS
from archiver.store.shared import patient_store_of

_CHUNKS_PER_CORE: Final = 8
_LONGEST_TOLD: Final = 200  # characters of a predicate
# A row of the scan: the numbers, in this job, of its object and of its partition, because keys count within a partition.
_PART: Final = StructField("__part", IntegerType(), nullable=False)
_LANE: Final = StructField("__lane", IntegerType(), nullable=False)
_WORK: Final = StructType([_PART, _LANE, StructField("task", BinaryType(), nullable=False)])
# Size and time of each record, for comparison with limits of a target: they stay with the record during the choice.
_BYTES: Final = StructField("__bytes", LongType(), nullable=False)  # of key and value
_TIME: Final = StructField("__time", LongType(), nullable=False)
_MEASURED: Final = ("key", "value", "timestampMs")  # columns with sizes and times
_CHOSEN: Final = (_PART.name, "offset", _BYTES.name, _TIME.name)
_SUMS: Final = ("records", "min_timestamp", "max_timestamp", "bytes", "largest_record")
_DIGEST: Final = StructField("__digest", BinaryType(), nullable=False)  # part of the name of the written list
_DIGEST_BYTES: Final = 12
_WRITTEN: Final = StructType([
    _PART, _DIGEST, *(StructField(name, LongType(), nullable=False) for name in _SUMS),
])  # fmt: skip


_Damage = dict[int, str]  # by the number of an object: why it cannot be read


class _Joined(AccumulatorParam[_Damage]):
    """Joins the damage that workers report beside their rows."""

    def zero(self, value: _Damage) -> _Damage:  # noqa: ARG002 - PySpark's
        return {}

    def addInPlace(self, value1: _Damage, value2: _Damage) -> _Damage:  # noqa: N802 - PySpark's name
        return {**value1, **value2}


class _Lane(NamedTuple):
    """One partition whose records are chosen: the number of its first object in this job, and its plan."""

    first: int
    topic: TopicPlan
    partition: PartitionPlan


def choose_records(
    spark: SparkContext,
    topics: Sequence[TopicPlan],
    request: RestoreRequest,
    *,
    storage: StorageConfig,
    layout: Layout,
    restore_id: str,
) -> list[TopicPlan]:
    """Narrow plans to the chosen records.

    The records of an unreadable object are unknown; so is, for the last of each key, whether records of other objects
    are the last. So its partition is refused, or the object is left out as a whole.
    """
    session = open_sql(spark)
    columns = _columns(session, request)
    lanes = _lanes(topics)
    stems = [layout.chosen_stem(restore_id, lane.topic.target, lane.partition.partition) for lane in lanes]
    damage = spark.accumulator(_Damage(), _Joined())
    try:
        chosen = _chosen(
            _scan(session, _shares(lanes, columns, storage, spark.defaultParallelism), columns, damage), request
        )
        starts = np.array([lane.first for lane in lanes], np.int64)
        written = chosen.mapInArrow(_writer(storage, starts, stems), _WRITTEN).toArrow()
    except (PySparkException, Py4JJavaError) as error:
        raise _as_ours(error, request.where) from error
    found = _Found(_WrittenLists.of(written), damage.value, request.skips_damage)
    narrowed = map(found.narrow, lanes, stems)
    return [
        replace(topic, partitions=tuple(next(narrowed) if _is_asked(one) else one for one in topic.partitions))
        for topic in topics
    ]


def check_predicate(spark: SparkContext, where: str) -> None:
    """Raise PredicateError for a predicate that Spark does not understand, or must not run. Reads no record."""
    _used_by(open_sql(spark), where)


def _columns(session: SparkSession, request: RestoreRequest) -> list[str]:
    """Return the columns that the predicate, or the choice of the last record of each key, needs."""
    needed = {"offset", *(["key"] if request.is_latest_per_key else [])}
    if request.where:
        needed |= _used_by(session, request.where)
    return [name for name in FIELDS if name in needed]


def _used_by(session: SparkSession, where: str) -> set[str]:
    """Return the columns that a predicate needs."""
    nothing = session.createDataFrame([], StructType(list(FIELDS.values())))
    try:
        query = filtered(nothing, where)._jdf.queryExecution()  # noqa: SLF001 - Spark tells it nowhere else
        query.executedPlan()  # evaluates constants of the predicate: toArrow would hide what that raises
    except (PySparkException, Py4JJavaError) as error:
        raise _refusal(where, line_of(error)) from error
    except UsageError as error:
        raise _refusal(where, str(error)) from error
    used = query.analyzed().expressions().mkString(" ")
    return {name for name in FIELDS if f"{name}#" in used}


def _lanes(topics: Sequence[TopicPlan]) -> list[_Lane]:
    found = [(topic, one) for topic in topics for one in topic.partitions if _is_asked(one)]
    firsts = accumulate((len(one.parts) for _, one in found), initial=0)
    return [_Lane(first, *pair) for first, pair in zip(firsts, found, strict=False)]


def _is_asked(partition: PartitionPlan) -> bool:
    return bool(partition.parts) and not partition.problem


_Row = tuple[int, int, bytes]  # of _WORK


def _shares(lanes: Sequence[_Lane], columns: Sequence[str], storage: StorageConfig, at_once: int) -> list[list[_Row]]:
    """Cut all objects, in order, into shares of equal count; one row has consecutive objects of a partition."""
    objects = sum(len(lane.partition.parts) for lane in lanes)
    count = max(1, min(objects, _CHUNKS_PER_CORE * at_once))
    bounds = [number * objects // count for number in range(count + 1)]
    shares: list[list[_Row]] = [[] for _ in range(count)]
    for number, lane in enumerate(lanes):
        parts = lane.partition.planned_parts
        end = lane.first + len(parts)
        for share in range(bisect_right(bounds, lane.first) - 1, bisect_left(bounds, end)):
            start, stop = max(lane.first, bounds[share]), min(end, bounds[share + 1])
            task = _task(lane, parts[start - lane.first : stop - lane.first], columns, storage)
            shares[share].append((start, number, pickle.dumps(task)))
    return shares


def _task(lane: _Lane, parts: Sequence[ObjectPart], columns: Sequence[str], storage: StorageConfig) -> ScanTask:
    return ScanTask(
        storage=storage,
        topic=lane.topic.source,
        partition=lane.partition.partition,
        columns=tuple(dict.fromkeys((*columns, *_MEASURED))),
        selection=lane.partition.selection,
        parts=parts,
        is_hashed=True,  # a damaged object is left out whole
        tries_first=True,
        skips_damage=False,
    )


def _scan(
    session: SparkSession, shares: list[list[_Row]], columns: Sequence[str], damage: Accumulator[_Damage]
) -> DataFrame:
    rows = session.sparkContext.parallelize(shares, len(shares)).flatMap(iter)
    schema = StructType([_PART, _LANE, _BYTES, _TIME, *(FIELDS[name] for name in columns)])
    return session.createDataFrame(rows, _WORK).mapInArrow(_reader(columns, damage), schema)


def _reader(
    columns: Sequence[str], damage: Accumulator[_Damage]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    names = [_PART.name, _LANE.name, _BYTES.name, _TIME.name, *columns]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read objects in a worker. Keys and values that no predicate needs stay there: only their sizes are returned."""
        for number, lane, task in _each_object(batches):
            try:
                for found in read_task(task):
                    numbers = [pa.array(np.full(found.num_rows, one, np.int32)) for one in (number, lane)]
                    measured = [_size_of(found), found.column("timestampMs")]
                    asked = [found.column(name) for name in columns]
                    yield pa.RecordBatch.from_arrays([*numbers, *measured, *asked], names=names)
            except NotWholeError as error:
                damage.add({number: str(error)})

    return read


def _each_object(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, ScanTask]]:
    """Split rows, in a worker, into an object's number, its partition's number, and the task that reads it."""
    for batch in batches:
        for row in batch.to_pylist():
            task: ScanTask = pickle.loads(row["task"])  # noqa: S301 - written above
            for number, part in enumerate(task.parts, start=row[_PART.name]):
                yield number, row[_LANE.name], replace(task, parts=(part,))


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
    storage: StorageConfig, starts: Longs, stems: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that writes lists of chosen records in a worker.

    `starts`: the number of each partition's first object. `stems`: the common beginning of the keys of each partition's lists.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the list of each object's chosen records; rows come object by object, in the order of their offsets.

        A list is named after its content. So a list of another run, which chose otherwise for a damaged object, stays apart.
        """
        store = patient_store_of(storage)
        for part, (offsets, sizes, times) in _by_part(batches):
            content = encode_chosen(offsets)
            digest = hashlib.sha256(content).digest()[:_DIGEST_BYTES]
            stem = stems[int(np.searchsorted(starts, part, "right")) - 1]
            put_chosen(store, f"{stem}{chosen_name(digest.hex())}", content)
            sums = [len(offsets), times.min(), times.max(), sizes.sum(), sizes.max()]
            columns = [pa.array([part], pa.int32()), pa.array([digest]), *(pa.array([one], pa.int64()) for one in sums)]
            yield pa.RecordBatch.from_arrays(columns, names=_WRITTEN.names)

    return write


def _by_part(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Longs]]:
    """Return each object's number, and the offsets, sizes and times of its chosen records as the three rows of an array."""
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


class _WrittenLists(NamedTuple):
    """The written lists, in the order of their objects."""

    objects: Numbers
    digests: Texts
    sums: Mapping[str, Numbers]

    @classmethod
    def of(cls, told: pa.Table) -> "_WrittenLists":
        objects = told.column(_PART.name).to_numpy()
        order = as_slice(np.argsort(objects, kind="stable"))
        packed = [chunk.cast(pa.binary(_DIGEST_BYTES)) for chunk in told.column(_DIGEST.name).chunks]
        kind = np.dtype((np.void, _DIGEST_BYTES))
        digests = [np.frombuffer(one.buffers()[1], kind)[one.offset : one.offset + len(one)] for one in packed]
        return cls(
            objects[order],
            Texts(np.concatenate(digests or [np.zeros(0, kind)])[order], 2 * _DIGEST_BYTES),
            {name: narrow(told.column(name).to_numpy()[order]) for name in _SUMS},
        )

    def within(self, first: int, stop: int) -> "_WrittenLists":
        start, end = np.searchsorted(self.objects, [first, stop]).tolist()
        return self.only(slice(start, end))

    def only(self, places: Places) -> "_WrittenLists":
        sums = {name: column[places] for name, column in self.sums.items()}
        return _WrittenLists(self.objects[places], self.digests.only(places), sums)


@dataclass(frozen=True, slots=True)
class _Found:
    """The outcome of the Spark job: which records were chosen of each object, and which objects are damaged."""

    written: _WrittenLists
    damage: _Damage
    skips_damage: bool

    def narrow(self, lane: _Lane, stem: str) -> PartitionPlan:
        first, partition = lane.first, lane.partition
        stop = first + len(partition.parts)
        damaged = sorted(number for number in self.damage if first <= number < stop)
        if damaged and not self.skips_damage:
            told = "; ".join(self.damage[number] for number in damaged)
            problem = f"{lane.topic.source}-{partition.partition}: {told}"
            return replace(partition, parts=(), facts=(), records=0, problem=problem)
        wanted = self.written.within(first, stop)
        if damaged:
            wanted = wanted.only(np.flatnonzero(~np.isin(wanted.objects, damaged)))
        facts = _facts(FactsOfParts.of(partition.facts).only(as_slice(wanted.objects - first)), wanted.sums)
        return replace(
            partition,
            parts=_some_of(partition.parts, wanted.objects - first, stem, wanted.digests),
            facts=facts,
            records=total(facts.numbers("records")),
            missing=(
                *partition.missing,
                *(partition.parts[number - first].describe_damage(self.damage[number]) for number in damaged),
            ),
        )


def _some_of(parts: Sequence[ObjectPart], places: Numbers, stem: str, digests: Texts) -> Sequence[ObjectPart]:
    """Return the parts at these places, each with the name of the list of its chosen records."""
    kept: list[ObjectParts] = []
    begin = 0
    for block in cast("Sequence[ObjectParts]", Chain([parts]).blocks):  # of a plan that was just made
        start, end = np.searchsorted(places, [begin, begin + len(block)]).tolist()
        some = block.only(as_slice(places[start:end] - begin))
        kept.append(some.with_chosen(Chosen(stem, digests.only(slice(start, end)))))
        begin += len(block)
    return Chain(kept)


def _facts(of_objects: FactsOfParts, written: Mapping[str, Numbers]) -> FactsOfParts:
    """Return facts of the chosen records alone: their count, and their share of the object's bytes on a broker's disk."""
    whole = {name: of_objects.numbers(name).astype(float) for name in ("records", "bytes", "source_bytes")}
    payload = np.minimum(whole["bytes"], whole["source_bytes"])
    share = payload * written["bytes"] / np.maximum(1, whole["bytes"])
    share += (whole["source_bytes"] - payload) * written["records"] / np.maximum(1, whole["records"])
    columns = {**written, "source_bytes": narrow(np.ceil(share).astype(np.int64))}
    return FactsOfParts(np.ones(len(share), bool), *(columns[name] for name in PartFacts._fields[1:]))


def _as_ours(error: PySparkException | Py4JJavaError, where: str) -> ArchiverError:
    """Return the error for the user: the one that a worker of ours raised, or why Spark could not evaluate the predicate."""
    if ours := raised_in(error):
        return ours
    if where and line_of_spark(error):
        return _refusal(where, line_of(error))
    return TemporaryError(f"Spark could not choose records: {line_of(error)}; {RUN_AGAIN}")


def _refusal(where: str, reason: str) -> PredicateError:
    told = where if len(where) <= _LONGEST_TOLD else f"{where[:_LONGEST_TOLD]}..."
    return PredicateError(f"--where {told}: {reason}")
