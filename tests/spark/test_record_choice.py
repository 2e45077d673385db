"""A restore of chosen records, in the partitions they had and dealt out by key: Spark SQL chooses, brute force compares."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
import archiver.restore.targets.targets
import archiver.spark.session.spark_session
from archiver.codec.selection import LAST_LONG, TopicSelection
from archiver.errors import PredicateError, TargetError
from archiver.restore.plan.request import Existing
from tests.support.brokers import Broker, Bucket
from tests.support.dealt_records import Rows, brute_force, fill, on_target
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.produce_doubles import Killed, MortalProduce
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, archive_site
from tests.support.spark_bucket import lend_bucket, own_daemon
from tests.support.target_topics import log_of, previewed

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(600)]

SIZES = (400, 0, 150, 250)


@pytest.fixture
def site(
    bucket: Bucket, tmp_path: Path, spark_avro: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ArchiveSite]:
    """An empty archive. What is chosen is chosen by Spark, all else is done in this process."""
    context = spark_avro.sparkContext
    with archive_site(bucket, tmp_path) as site, own_daemon(context):
        lend_bucket(bucket, context, monkeypatch)
        opened = contextlib.nullcontext(lambda: context)
        monkeypatch.setattr(archiver.spark.session.spark_session, "open_context", lambda _name, **_: opened)
        yield site


def latest(rows: list[Rec]) -> list[Rec]:
    last = {row.key: row.offset for row in rows}
    return [row for row in rows if row.key is None or last[row.key] == row.offset]


# What is asked for, and which of a partition's records that is. Records without a key are left out by the middle one of
# three in turn, so that those behind them are dealt to other partitions.
CASES: dict[str, tuple[dict[str, Any], Callable[[int, list[Rec]], list[Rec]]]] = {
    "where": (
        {"where": "length(value) > 20 and exists(headers, h -> h.value is not null) and offset % 3 != 1"},
        lambda _, rows: [row for row in rows if len(row.value or b"") > 20 and row.offset % 3 != 1],
    ),
    "latest": ({"is_latest_per_key": True}, lambda _, rows: latest(rows)),
    "both": (
        {
            "where": f"timestampMs < {NOW_MS + 700} and (key is null or length(key) > 2)",
            "is_latest_per_key": True,
            "wanted": TopicSelection(offsets={0: (13, 333), 3: (0, LAST_LONG)}),
        },
        lambda number, rows: latest([
            row
            for row in rows
            if row.timestamp < NOW_MS + 700
            and (row.key is None or len(row.key) > 2)
            and (number == 3 or (number == 0 and 13 <= row.offset <= 333))
        ]),
    ),
    "nothing": ({"where": "value = X'00FF00FF00FF00FF'"}, lambda _number, _rows: []),
}  # fmt: skip
SHORT_CASES = ("where", "both", "nothing")
DEALT_CASES = ("both", "nothing")  # how records are chosen, who deals them does not ask


def archived(broker: Broker, topic: str, site: ArchiveSite, seed: int) -> Rows:
    written = fill(broker, topic, SIZES, seed)
    site.back_up(broker.bootstrap, topic, records=60)
    return written


def check(oracle: JavaOracle, broker: Broker, target: str, chosen: Rows, partitions: int | None) -> None:
    """These records are there, each once and in order; dealt out by key, or in the partitions that they had."""
    if partitions is None:
        found = oracle.consume(broker.bootstrap, target).records
        expected = {number: [replace(row, offset=at) for at, row in enumerate(rows)] for number, rows in chosen.items()}
        assert {number: found[number] for number in chosen} == expected
    else:
        dealt = on_target(oracle, broker, target)
        assert {which: rows for which, rows in dealt.items() if which[0] in chosen} == brute_force(chosen, partitions)


@pytest.mark.parametrize("partitions", [None, pytest.param(5, marks=pytest.mark.long)])
def test_chosen_records_are_what_brute_force_finds(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    seed: int,
    partitions: int | None,
    pytestconfig: pytest.Config,
) -> None:
    """Of a key that lies in several source partitions each has its last; a record without one counts when it is chosen."""
    written = archived(broker_41, topic, site, seed)
    is_long = pytestconfig.getoption("--long")
    for name in DEALT_CASES if partitions else CASES if is_long else SHORT_CASES:
        asked, choose = CASES[name]
        chosen = {number: choose(number, rows) for number, rows in written.items()}
        target = f"{topic}.{name}"
        for already_there in (0, 1) if is_long or name == "both" else (0,):
            (restored,) = site.restore(
                broker_41.bootstrap, topics=topic, rename=[f"{topic}={target}"], repartition=partitions, **asked
            ).topics
            assert [one.error for one in restored.errors] == []
            assert [one.records for one in restored.partitions] == [len(rows) for rows in chosen.values()]
            assert sum(one.already_there for one in restored.partitions) == already_there * restored.records
            assert sum(one.records for one in restored.target_partitions) == ((partitions and restored.records) or 0)
        check(java_oracle, broker_41, target, chosen, partitions)


@pytest.mark.seeds(1034404079)  # it chooses so few records that they went into fewer batches than there were deaths
@pytest.mark.parametrize("partitions", [None, pytest.param(5, marks=pytest.mark.long)])
def test_a_killed_restore_continues_with_the_chosen_records(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int | None,
    pytestconfig: pytest.Config,
) -> None:
    """It dies when all is chosen and nothing is planned, and then every few batches. What is archived meanwhile counts until there is a plan."""
    written = archived(broker_41, topic, site, seed)
    asked, choose = CASES["both"]
    asked = {
        **asked,
        "rename": [f"{topic}={topic}.back"],
        "repartition": partitions,
        "batch_bytes": 1,
    }  # a batch for each record
    lifetimes = (1, 4, 2, 9) if pytestconfig.getoption("--long") else (1, 4)
    mortal, deaths = MortalProduce(seed), 0

    def die(name: str) -> None:
        if name == "target.created":
            raise Killed

    def add(key: bytes | None, *values: bytes) -> None:
        """Records that are chosen: without a key all of them, with one the last, in the place of the one that was."""
        rows = written[3]
        for value in values:
            more = Rec(0, NOW_MS, 0, key, value, ((b"at", b"3/%d" % len(rows)),))
            produce_raw(broker_41.bootstrap, topic, [encode(batch_of([more]))], 3)
            rows.append(replace(more, offset=len(rows)))
        site.back_up(broker_41.bootstrap, topic, records=60)

    with monkeypatch.context() as patch:
        patch.setattr(archiver.restore.targets.targets, "reach", die)
        with pytest.raises(Killed):
            site.restore(broker_41.bootstrap, topics=topic, **asked)
    key = next(row.key for row in reversed(written[3]) if row.key is not None and len(row.key) > 2)
    add(None, *(b"number %d" % number for number in range(sum(lifetimes))))  # enough to die of
    add(key, b"in time")
    chosen = {number: choose(number, rows) for number, rows in written.items()}
    assert chosen[3][-1].value == b"in time"
    monkeypatch.setattr(archiver.restore.fill.sending, "produce", mortal)
    for lifetime in (*lifetimes, 10**6):
        mortal.live(lifetime)
        try:
            (restored,) = site.restore(broker_41.bootstrap, topics=topic, **asked).topics
            assert [one.error for one in restored.errors] == []
        except Killed:
            deaths += 1
            add(key, b"too late")
    assert deaths == len(lifetimes)
    check(java_oracle, broker_41, f"{topic}.back", chosen, partitions)


@pytest.mark.parametrize(("partitions", "skips"), [(None, False), (3, True)])
def test_what_cannot_be_looked_at_stops_its_partition_or_is_skipped(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    seed: int,
    partitions: int | None,
    skips: bool,
) -> None:
    written = archived(broker_41, topic, site, seed)
    client = s3_client(site.bucket)
    key = keys_in(site.bucket, f"topics/{topic}/partition=0/")[1]  # offsets 60 to 119
    found = client.get_object(Bucket=site.bucket.name, Key=key)
    content = found["Body"].read()
    client.put_object(Bucket=site.bucket.name, Key=key, Body=content[:-9], Metadata=found["Metadata"])
    asked: dict[str, Any] = {
        "rename": [f"{topic}={topic}.back"],
        "repartition": partitions,
        "is_latest_per_key": True,
    }
    (restored,) = site.restore(broker_41.bootstrap, topics=topic, skips_damage=skips, **asked).topics
    chosen = {
        number: latest([row for row in rows if number or not 60 <= row.offset < 120])
        for number, rows in written.items()
    }
    if skips:
        assert [one.error for one in restored.errors] == []
        (missing,) = restored.partitions[0].missing
        assert missing.startswith(f"offsets 60-119 in {key}: ")
        assert missing.count(key) == 1
    else:
        (wrong,) = restored.errors
        assert (wrong.partition, wrong.exit_code, key in wrong.error) == (0, 3, True)
        assert [one.records for one in restored.partitions] == [0, *(len(chosen[number]) for number in (1, 2, 3))]
        client.put_object(Bucket=site.bucket.name, Key=key, Body=content, Metadata=found["Metadata"])
        (restored,) = site.restore(broker_41.bootstrap, topics=topic, **asked).topics  # the same, when it is mended
        assert restored.errors == ()
        chosen[0] = latest(written[0])
    check(java_oracle, broker_41, f"{topic}.back", chosen, partitions)


def test_a_topic_that_is_there_is_judged_by_what_is_chosen(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """Of sixty records one is too old for it, and one too large: they are in the way only where they are chosen."""
    now_ms = time.time_ns() // 1_000_000
    rows = [Rec(at, now_ms, 0, b"k%d" % (at % 20), b"v%d" % at) for at in range(60)]
    rows[3] = replace(rows[3], timestamp=NOW_MS)
    rows[30] = replace(rows[30], value=b"v" * 20_000)
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    produce_raw(broker_41.bootstrap, topic, [encode(batch_of(rows))], 0)
    site.back_up(broker_41.bootstrap, topic, records=20)
    limits = {"retention.ms": "3600000", "max.message.bytes": "10000", "retention.bytes": "15000"}
    create_topic(broker_41.bootstrap, f"{topic}.back", 1, KEEP_ALL | limits)
    produce_raw(broker_41.bootstrap, f"{topic}.back", [encode(batch_of([Rec(0, now_ms, 0, b"k", b"there")]))], 0)
    asked: dict[str, Any] = {"existing": Existing.APPEND}

    def refused(**chosen: Any) -> list[str]:  # noqa: ANN401
        preview = previewed(site, broker_41, topic, **asked, **chosen)
        assert (preview.refused, len(preview.doubts)) == ((), 3)  # a dry run does not know yet
        with pytest.raises(TargetError) as caught:
            site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], **asked, **chosen)
        return [line.partition(": ")[2].partition(";")[0] for line in str(caught.value).splitlines()]

    old = "retention.ms=3600000 would have the brokers delete 1 to 19 of the {} chosen records, which are older"
    large = "max.message.bytes=10000 is too small for the largest of the chosen records, of 20,003 bytes"
    large += f" ({topic}-0, from offset 20 to 39)"
    much = "retention.bytes=15000 would have the brokers delete the oldest records there"
    found = refused(where="offset < 60")
    assert (found[0], found[1].partition(":")[0], found[2]) == (large, much, old.format(60))
    assert refused(where="length(value) < 100") == [old.format(59)]
    found = refused(where=f"timestampMs > {NOW_MS}")
    assert (found[0], found[1].partition(":")[0], len(found)) == (large, much, 2)
    expected = [b"there"]
    for chosen, keeps in (
        ({"where": f"timestampMs > {NOW_MS} and length(value) < 100"}, range(60)),
        ({"is_latest_per_key": True}, range(40, 60)),  # what was too old or too large has a later one of its key
    ):
        (restored,) = site.restore(
            broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], **asked, **chosen
        ).topics
        assert restored.errors == ()
        expected += [b"v%d" % at for at in keeps if at not in {3, 30}]
        assert [row.value for row in java_oracle.consume(broker_41.bootstrap, f"{topic}.back").records[0]] == expected


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param({"where": "offset < 0"}, marks=pytest.mark.long),
        {"where": "offset < 0", "is_latest_per_key": True},
    ],
)
def test_a_dry_run_says_that_a_purge_hangs_on_what_is_chosen(
    broker_41: Broker, topic: str, site: ArchiveSite, seed: int, chosen: dict[str, Any]
) -> None:
    archived(broker_41, topic, site, seed)
    there = Rec(0, NOW_MS, 0, b"k", b"there")
    create_topic(broker_41.bootstrap, f"{topic}.back", 1, KEEP_ALL)
    produce_raw(broker_41.bootstrap, f"{topic}.back", [encode(batch_of([there]))], 0)
    asked: dict[str, Any] = {"existing": Existing.PURGE, **chosen}
    preview = previewed(site, broker_41, topic, **asked)
    assert (preview.refused, preview.damage) == ((), ())
    (doubt,) = preview.doubts
    assert doubt.startswith(
        f"target topic {topic}.back is purged only if a record of {topic} is chosen; where none is, "
    )
    with pytest.raises(TargetError, match="is not purged") as caught:
        site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], **asked)
    assert caught.value.exit_code == 2
    assert log_of(broker_41, f"{topic}.back") == (0, 1)


OF_RECORDS = "cast(cast(value as string) as int) > 5"  # what is wrong with it only they tell


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("nonsense = 1", "nonsense"),
        pytest.param(
            "KEY is null", "KEY", marks=pytest.mark.long
        ),  # names are as they are written, as in `archiver query`
        (OF_RECORDS, "CAST_INVALID_INPUT"),
        ("reflect('java.lang.System', 'getenv', 'PATH') > ''", "function reflect is not allowed"),
        pytest.param("exists(select 1)", "Project, OneRowRelation are not allowed", marks=pytest.mark.long),
        pytest.param("1 / 0 > offset", "DIVIDE_BY_ZERO", marks=pytest.mark.long),
        ("length(repeat('a', 2000000000)) > offset", "Java heap space"),
        pytest.param(f"{'(' * 3000}true{')' * 3000}", "StackOverflowError", marks=pytest.mark.long),
    ],
)
def test_a_predicate_that_fails_is_told_in_a_line(
    broker_41: Broker, topic: str, site: ArchiveSite, seed: int, where: str, told: str
) -> None:
    archived(broker_41, topic, site, seed)
    with pytest.raises(PredicateError) as caught:
        site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.x"], where=where)
    assert str(caught.value).startswith(f"--where {where[:200]}")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    if where == OF_RECORDS:
        assert any("tried on no record" in note for note in previewed(site, broker_41, topic, where=where).notes)
    else:
        with pytest.raises(PredicateError) as told_before:
            previewed(site, broker_41, topic, where=where)
        assert str(told_before.value) == str(caught.value)
