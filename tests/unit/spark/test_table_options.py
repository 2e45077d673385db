"""The options of the data source, and what a plan makes of them and of pushed filters. No Spark runs."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from archiver.archive.copies.archived_topic import wanted_readings
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.segments.partition_segments import Segment, SegmentSlice
from archiver.codec.selection import ALL_RECORDS, FIRST_LONG, LAST_LONG, Selection
from archiver.errors import UsageError
from archiver.spark.table.filters import Narrowing
from archiver.spark.table.options import DEFAULT_COLUMNS, OnDamage, ScanOptions, Verify, parse_options
from archiver.spark.table.scan import grouped
from tests.support.segments import facts_of

GIVEN = {"url": "s3://bucket/prefix", "topic": "orders"}


def parse(**options: str) -> ScanOptions:
    return parse_options({**GIVEN, **{name.rstrip("_"): text for name, text in options.items()}})


def test_defaults() -> None:
    options = parse()
    assert options.columns == DEFAULT_COLUMNS
    assert (options.on_damage, options.verify, options.is_hashed) == (OnDamage.FAIL, Verify.DIGEST, True)
    assert options.wanted.of(7) == ALL_RECORDS


def test_names_and_words_come_in_any_case() -> None:
    options = parse_options({**GIVEN, "ONDAMAGE": " Skip ", "Columns": "TimestampType, KEY"})
    assert (options.on_damage, options.columns, options.is_hashed) == (OnDamage.SKIP, ("timestampType", "key"), True)


def test_partitions_offsets_and_times() -> None:
    options = parse(
        partitions="0,3-5", offsets="0:100-200, 3:50-,7:1", from_="1970-01-01T00:00:01Z", until="1970-01-01T00:00:02Z"
    )
    assert options.wanted.of(0) == Selection(first_offset=100, last_offset=200, from_ms=1000, until_ms=2000)
    assert options.wanted.of(3) == Selection(first_offset=50, last_offset=LAST_LONG, from_ms=1000, until_ms=2000)
    assert [options.wanted.of(number) for number in (1, 4, 7)] == [None, None, None]


def test_the_storage_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "archive.yaml"
    path.write_text("storage: {url: s3://from-file/p, endpoint: http://localhost:9}\n")
    storage = parse_options({"config": str(path), "topic": "orders"}).storage
    assert (storage.bucket, storage.prefix, storage.endpoint) == ("from-file", "p", "http://localhost:9")


WRONG = [
    ({"topic": "a/b"}, "option topic: 'a/b' is not the name of a topic"),
    ({"topic": ""}, "option topic: '' is not"),
    ({"url": "file:///x"}, "option url: is not like s3://"),
    ({"endpoint": "localhost"}, "option endpoint: is not like https://"),
    ({"partitions": "2-1"}, "option partitions: '2-1' is not like 3 or 3-5"),
    ({"partitions": ""}, "option partitions: '' is not like"),
    ({"partitions": "0-999999999"}, "option partitions"),
    ({"offsets": "0:9-3"}, "option offsets: '0:9-3'"),
    ({"offsets": "0:1,0:2"}, "each partition once"),
    ({"offsets": "9-3"}, "option offsets: '9-3' is not like 0:100-200"),
    ({"from": "2023-11-14T22:13:40"}, "option from: has no zone"),
    ({"until": "yesterday"}, "option until: is not a time"),
    ({"columns": "key,kex"}, "option columns: 'kex': there are topic, "),
    ({"columns": ""}, "option columns: '': there are topic, "),
    ({"columns": "key,key"}, "names a column twice"),
    ({"onDamage": "ignore"}, "option onDamage: 'ignore' is none of fail, skip"),
    ({"verify": "all"}, "option verify: 'all' is none of counts, digest"),
    ({"life": "-1"}, "option life: '-1' is not a number"),
    ({"instance": "a/b"}, "option instance: 'a/b' is not the name of an instance: 1 to 64 of a-z"),
    ({"instance": ""}, "option instance: '' is not the name"),
    ({"instance": ".."}, "option instance: '..' is not the name"),
    ({"pushFilters": "1"}, "option pushFilters: '1' is neither true nor false"),
    ({"partition": "7"}, "option partition: there is no such option; there are url, "),
    ({"config": "/nowhere.yaml"}, "option config: has the storage in it; leave url out"),
]


@pytest.mark.parametrize(("options", "told"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_option_is_told(options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_options({**GIVEN, **options})


def test_no_place_at_all() -> None:
    with pytest.raises(UsageError, match="option url: is required"):
        parse_options({"topic": "orders"})


# --- pushed filters

MOMENT = datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)  # between two milliseconds
MS = 1_767_225_600_001

RANGES: list[tuple[Filter, Selection]] = [
    (EqualTo(("offset",), 5), Selection(first_offset=5, last_offset=5)),
    (EqualNullSafe(("offset",), 5), Selection(first_offset=5, last_offset=5)),
    (GreaterThan(("offset",), 5), Selection(first_offset=6)),
    (GreaterThanOrEqual(("offset",), 5), Selection(first_offset=5)),
    (LessThan(("offset",), 5), Selection(last_offset=4)),
    (LessThanOrEqual(("offset",), 5), Selection(last_offset=5)),
    (In(("offset",), (7, None, 5)), Selection(first_offset=5, last_offset=7)),
    (GreaterThan(("timestamp",), MOMENT), Selection(from_ms=MS + 1)),
    (LessThan(("timestamp",), MOMENT), Selection(until_ms=MS)),
    (GreaterThanOrEqual(("timestampMs",), 5), Selection(from_ms=5)),
    (LessThanOrEqual(("timestampMs",), 5), ALL_RECORDS),  # -1 is a number there, and no time
]
NOT_UNDERSTOOD: list[Filter] = [
    Not(EqualTo(("offset",), 5)),
    IsNull(("offset",)),
    EqualTo(("key",), b"k"),
    EqualTo(("headers", "offset"), 5),
    EqualTo(("offset",), None),
    In(("offset",), (5, "x")),
    EqualTo(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001 - without a zone
]


@pytest.mark.parametrize(("one", "selection"), RANGES, ids=lambda value: str(value)[:50])
def test_a_filter_narrows(one: Filter, selection: Selection) -> None:
    assert Narrowing.of([one]).selection_of(0) == selection


@pytest.mark.parametrize("one", NOT_UNDERSTOOD, ids=str)
def test_a_filter_that_is_not_understood_leaves_everything(one: Filter) -> None:
    assert Narrowing.of([one]).selection_of(0) == ALL_RECORDS


def test_filters_narrow_together() -> None:
    narrowing = Narrowing.of([GreaterThan(("offset",), 5), LessThan(("offset",), 9), In(("partition",), (1, 3))])
    assert narrowing.selection_of(2) == Selection(first_offset=6, last_offset=8)
    assert [narrowing.selection_of(number) for number in (0, 4)] == [None, None]


# --- plans


def reading(
    base: int, next_offset: int, size: int = 1, *, min_timestamp: int = 0, max_timestamp: int = 0
) -> SegmentSlice:
    key = SegmentKey(topic="t", partition=0, base=base)
    facts = facts_of(base, next_offset)
    facts = dataclasses.replace(facts, min_timestamp=min_timestamp, max_timestamp=max_timestamp)
    return SegmentSlice(
        segment=Segment(key=key, object_key=Layout().segment_key(key), size=size, facts=facts), from_offset=base
    )


def test_objects_without_a_wanted_record_are_left_out() -> None:
    readings = [
        reading(0, 10, min_timestamp=100, max_timestamp=200),
        reading(10, 20, min_timestamp=150, max_timestamp=300),
        reading(20, 30, min_timestamp=-1, max_timestamp=-1),
    ]

    def bases(**wanted: int) -> list[int]:
        return [one.segment.key.base for one in wanted_readings(readings, Selection(**wanted))]

    assert bases() == [0, 10, 20]
    assert bases(first_offset=9, last_offset=10) == [0, 10]
    assert bases(from_ms=201) == [10]
    assert bases(until_ms=149) == [0]
    assert bases(from_ms=FIRST_LONG + 1) == [0, 10]
    assert bases(from_ms=301) == []


def test_an_object_that_is_cut_by_the_read_rule_counts_by_what_is_left_of_it() -> None:
    above = dataclasses.replace(reading(0, 10), from_offset=8)
    below = dataclasses.replace(reading(0, 10), until_offset=3)
    assert wanted_readings([above], Selection(last_offset=7)) == []
    assert wanted_readings([below], Selection(first_offset=3)) == []
    assert wanted_readings([above, below], Selection(first_offset=2, last_offset=8)) == [above, below]


@pytest.mark.parametrize("sizes", [[], [64], [200], [30, 30, 30, 30], [1] * 100, [100, 1, 1, 1, 100]])
def test_groups_are_runs_of_about_the_limit(sizes: list[int]) -> None:
    readings = [reading(at, at + 1, size) for at, size in enumerate(sizes)]
    groups = grouped(readings, 64)
    assert [one for group in groups for one in group] == readings
    assert all(groups)
    assert all(len(group) == 1 or sum(one.segment.size for one in group) <= 64 + max(sizes) for group in groups)


@pytest.mark.parametrize("text", ["1", "2026", "202611", "20261120", "1763647200", str(10**11 - 1)])
def test_a_number_that_is_no_plausible_moment_is_refused(text: str) -> None:
    """A year, a month, a day, seconds."""
    with pytest.raises(UsageError, match="option until: is before 1973"):
        parse(until=text)


def test_numbers_from_1973_and_the_epoch_itself_are_times() -> None:
    wanted = parse(from_="0", until=str(10**11)).wanted
    assert (wanted.from_ms, wanted.until_ms) == (0, 10**11)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(UsageError, match="the range ends before it begins; see options from and until"):
        parse(from_="2026-11-20T14:00:01Z", until="2026-11-20T14:00:00Z")
