"""What an existing topic would do to records, told from its configs and from the facts of objects."""

import random
from dataclasses import replace

import pytest

from archiver.archive.segments.parts import ObjectPart
from archiver.archive.segments.record_counts import Count
from archiver.archive.segments.segment_facts import PartFacts
from archiver.codec.batch_encoder import BatchEncoder
from archiver.codec.compression import BatchCodec
from archiver.codec.selection import ALL_RECORDS, Selection
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from archiver.restore.plan.target_limits import (
    batch_limits,
    expiring_records,
    fill_problems,
    limit_problems,
    most_batch_bytes,
    most_unpacked_bytes,
    records_before,
)
from tests.support.frames import frame_of
from tests.support.records import Rec

NOW_MS = 1_000_000_000
CLUSTER = ("--bootstrap-server", "broker-1:9092,broker-2:9092")
LONGEST = str(2**63 - 1)
LENIENT = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "segment.bytes": "1073741824",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": LONGEST,
    "message.timestamp.after.max.ms": LONGEST,
}


def facts_of(records: int, first_ms: int, last_ms: int, *, largest: int = 100, is_exact: bool = True) -> PartFacts:
    return PartFacts(
        is_exact=is_exact,
        records=records,
        min_timestamp=first_ms,
        max_timestamp=last_ms,
        bytes=records * 50,
        source_bytes=records * 30,
        largest_record=largest,
    )


def plan_of(*facts: PartFacts, selection: Selection = ALL_RECORDS) -> TopicPlan:
    partition = PartitionPlan(
        partition=0,
        parts=[ObjectPart(object_key=f"{number}", from_offset=10 * number) for number in range(len(facts))],
        stored_bytes=0,
        records=sum(one.records for one in facts),
        selection=selection,
        selection_digest="",
        facts=facts,
    )
    return TopicPlan(
        source="orders",
        life=0,
        target="copy",
        partitions=(partition, replace(partition, partition=1, records=0, facts=(), parts=())),
        final_configs={},
        archived_retention={},
    )


@pytest.mark.parametrize(
    ("facts", "selection", "counted"),
    [
        (facts_of(10, 100, 499), ALL_RECORDS, (10, 10)),
        (facts_of(10, 500, 900), ALL_RECORDS, (0, 0)),
        (facts_of(10, 100, 500), ALL_RECORDS, (1, 9)),  # the first is older, the last is not
        (facts_of(1, 100, 100), ALL_RECORDS, (1, 1)),
        (facts_of(10, 100, 499, is_exact=False), ALL_RECORDS, (0, 10)),
        (facts_of(10, 100, 900), Selection(from_ms=500), (0, 0)),  # what is older is not wanted
        (facts_of(10, 100, 900), Selection(from_ms=400), (0, 10)),
        (facts_of(10, 100, 400), Selection(from_ms=50, until_ms=450), (10, 10)),
        (facts_of(10, -1, -1), ALL_RECORDS, (0, 0)),  # no age at all
        (facts_of(10, -1, 100), ALL_RECORDS, (1, 9)),
    ],
)
def test_records_are_counted_by_their_age(facts: PartFacts, selection: Selection, counted: tuple[int, int]) -> None:
    assert records_before(plan_of(facts, selection=selection), 500) == Count(*counted)


def test_counts_of_objects_add_up() -> None:
    counted = records_before(plan_of(facts_of(10, 100, 200), facts_of(10, 400, 600), facts_of(5, 700, 800)), 500)
    assert (counted, str(counted), bool(counted)) == ((11, 19), "11 to 19", True)
    assert (str(Count(1234, 1234)), bool(Count(0, 0))) == ("1,234", False)


def test_nothing_is_wrong_with_a_lenient_topic() -> None:
    plan = plan_of(facts_of(1000, 0, NOW_MS * 2, largest=1_000_000))
    assert limit_problems(plan, LENIENT, NOW_MS, CLUSTER) == []
    assert limit_problems(plan, {}, NOW_MS, CLUSTER) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cleanup.policy", "compact", "would drop those of the 30 records that have a later one"),
        ("retention.ms", "60000", "delete 11 to 19 of the 30 records, which are older"),
        ("retention.bytes", "1499", "1 of 2 partitions gets more, partition 0 up to 1,500 bytes"),
        (
            "max.message.bytes",
            "90000",
            "is too small for the largest record, of 90,000 bytes (orders-0, from offset 10)",
        ),
        ("segment.bytes", "90000", "is too small for the largest record, of 90,000 bytes"),
        ("message.timestamp.type", "LogAppendTime", "would replace the timestamps of all 30 records"),
        ("message.timestamp.before.max.ms", "60000", "refuse 11 to 19 of the 30 records, which are older"),
        ("message.timestamp.after.max.ms", "60000", "refuse 1 of the 30 records, which are further in the future"),
        ("message.timestamp.difference.max.ms", "60000", "refuse 11 to 19 of the 30 records, which are older"),
    ],
)
def test_each_config_that_does_harm_is_named(name: str, value: str, said: str) -> None:
    old, both = facts_of(10, 5, NOW_MS - 100_000, largest=90_000), facts_of(10, NOW_MS - 90_000, NOW_MS)
    plan = plan_of(both, old, facts_of(9, NOW_MS, NOW_MS), facts_of(1, NOW_MS + 90_000, NOW_MS + 90_000))
    found = limit_problems(plan, LENIENT | {name: value}, NOW_MS, CLUSTER)
    if "difference" in name:
        assert "further in the future" in found.pop()
    (problem,) = found
    assert problem.startswith(f"copy: {name}={value} ")
    assert said in problem
    assert f"{' '.join(CLUSTER)} --entity-type topics --entity-name copy --alter --add-config {name}=" in problem
    assert "--rename orders=NEW" in problem


def test_what_is_said_to_do_no_harm_does_none() -> None:
    plan = plan_of(facts_of(10, 5, 10, largest=5_000_000))
    harmful = {"max.message.bytes": "100", "segment.bytes": "100", "retention.ms": "1", "retention.bytes": "0"}
    harmful |= {"cleanup.policy": "compact,delete", "message.timestamp.before.max.ms": "1"}
    configs = LENIENT | harmful
    problems = limit_problems(plan, configs, NOW_MS, CLUSTER)
    assert len(problems) == len(harmful)
    for problem in problems:
        name, _, value = problem.partition("--add-config ")[2].partition("`")[0].partition("=")
        configs[name] = value
    assert limit_problems(plan, configs, NOW_MS, CLUSTER) == []


def test_the_newer_limit_of_timestamps_wins_over_the_older_one() -> None:
    plan = plan_of(facts_of(10, 5, 10))
    older = LENIENT | {"message.timestamp.difference.max.ms": "60000"}
    assert limit_problems(plan, older | {"message.timestamp.before.max.ms": str(10**12)}, NOW_MS, CLUSTER) == []


def test_expiring_records_are_reported_only_with_a_delete_policy() -> None:
    plan = plan_of(facts_of(10, 5, 10))
    assert expiring_records(plan, {"retention.ms": "60000"}, NOW_MS) == (10, 10)
    assert expiring_records(plan, {"retention.ms": "-1"}, NOW_MS) == (0, 0)
    assert expiring_records(plan, {"retention.ms": "60000", "cleanup.policy": "compact"}, NOW_MS) == (0, 0)


def test_batches_stay_under_the_limits() -> None:
    assert most_batch_bytes({}) > 2**60
    assert most_batch_bytes(LENIENT) > 1_000_000
    assert most_batch_bytes({"max.message.bytes": "100000"}) == 100_000
    assert most_batch_bytes({"max.message.bytes": "100000", "segment.bytes": "5000"}) == 5000
    assert batch_limits(LENIENT, 5_000_000) == (5_000_000, 1_000_000)
    assert batch_limits({"max.message.bytes": "100000"}, 5_000_000) == (5_000_000, 100_000)
    assert batch_limits({"max.message.bytes": "0"}, 5_000_000).sent == 1
    records, sent = batch_limits({"max.message.bytes": "100000", "compression.type": "gzip"}, 5_000_000)
    assert 90_000 < records < sent == 100_000


def test_what_brokers_pack_anew_must_fit_unpacked() -> None:
    limits = {"max.message.bytes": "100000"}
    assert most_unpacked_bytes(limits) is None
    assert most_unpacked_bytes(limits | {"compression.type": "producer"}) is None
    assert most_unpacked_bytes(limits | {"compression.type": "lz4"}) is None
    for codec in ("uncompressed", "gzip", "snappy", "zstd"):
        assert 90_000 < (most_unpacked_bytes(limits | {"compression.type": codec}) or 0) < 100_000


@pytest.mark.parametrize("limit", [300, 1024, 70_000, 1_048_588, 20_000_000])
def test_the_largest_record_that_is_taken_fits_by_itself(limit: int) -> None:
    """As it is sent: no larger one is, but for a few bytes, and it need not compress."""

    def is_taken(largest: int) -> bool:
        configs = LENIENT | {"max.message.bytes": str(limit)}
        return not limit_problems(plan_of(facts_of(1, 5, 5, largest=largest)), configs, NOW_MS, CLUSTER)

    largest = next(size for size in range(limit, 0, -1) if is_taken(size))
    encoder = BatchEncoder(codec=BatchCodec.LZ4, batch_bytes=10**6, most_bytes=limit, producer_id=1, producer_epoch=0)
    encoder.append(frame_of([Rec(2**40, 2**60, 0, None, random.Random(limit).randbytes(largest))]), 0)
    assert limit - 30 < len(encoder.flush().content) <= limit


def test_what_is_said_to_be_enough_has_room_for_headers() -> None:
    (problem,) = limit_problems(plan_of(facts_of(1, 5, 5, largest=1_500_000)), LENIENT, NOW_MS, CLUSTER)
    enough = int(problem.partition("--add-config max.message.bytes=")[2].partition("`")[0])
    assert 1_510_000 < enough < 1_600_000


@pytest.mark.parametrize("limit", [1024, 1_048_588])
def test_what_brokers_pack_anew_may_grow(limit: int) -> None:
    """By a batch's header, and by what the worst codec makes of bytes that do not compress: snappy's frame and its blocks."""
    configs = LENIENT | {"max.message.bytes": str(limit), "compression.type": "snappy"}
    most = most_unpacked_bytes(configs) or 0
    assert most + 61 + 64 + most // 1000 < limit
    for largest, problems in ((most - 20, 0), (most, 1)):
        assert len(limit_problems(plan_of(facts_of(1, 5, 5, largest=largest)), configs, NOW_MS, CLUSTER)) == problems


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("0.8.2", True), ("0.9.0", True), ("0.10.2-IV0", True), ("0.11.0", False), ("1.0", False), ("3.0-IV1", False)],
)
def test_an_old_message_format_is_named(version: str, is_old: bool) -> None:
    problems = limit_problems(
        plan_of(facts_of(1, 5, 5)), LENIENT | {"message.format.version": version}, NOW_MS, CLUSTER
    )
    assert [f"message.format.version={version} is a message format without headers" in one for one in problems] == (
        [True] if is_old else []
    )


def test_what_a_cluster_refuses_of_a_filling_is_a_problem_only_where_it_costs_records() -> None:
    plan = plan_of(facts_of(10, 0, 9))
    hour = LENIENT | {"retention.ms": "3600000"}
    refused = {"retention.ms": "POLICY_VIOLATION (44), no", "segment.ms": "POLICY_VIOLATION (44), no"}
    assert fill_problems(plan, LENIENT, refused, NOW_MS, has_largest=False) == []
    (problem,) = fill_problems(plan, hour, refused, NOW_MS, has_largest=False)
    assert problem.startswith(
        "copy: the cluster refuses retention.ms=-1 (POLICY_VIOLATION (44), no), and retention.ms=3600000 would have the"
        " brokers delete 10 of the 10 records, which are older; give --retention largest"
    )
    (problem,) = fill_problems(plan, hour, refused, NOW_MS, has_largest=True)
    assert problem.endswith("which are older; have that allowed for as long as the restore takes")
    (problem,) = fill_problems(plan, hour, {}, NOW_MS, has_largest=True)
    assert problem.endswith("; create the topic first, with retention.ms=-1, and restore into it")
