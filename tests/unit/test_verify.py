"""What `verify` finds, level by level, in a store in memory."""

import io
import json
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest
from fastavro.read import HEADER_SCHEMA

from archiver.codec.avro import encode_header
from archiver.codec.compression import BlockCodec
from archiver.control import Branch, settle_branch, settle_cluster, settle_topic
from archiver.errors import NotWholeError
from archiver.holdings import look
from archiver.index import append_to_index, merge_index
from archiver.index_file import IndexEntry
from archiver.inspection import take_apart
from archiver.layout import Layout, SegmentKey
from archiver.store import probe_put_if_absent
from archiver.verify import Level, check_content, check_control, check_listing
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.segments import SOURCE, written

LAYOUT = Layout("p")
KEY = SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=0)
NAME = LAYOUT.segment_key(KEY)


def records_from(first: int, count: int = 20) -> list[Rec]:
    return [Rec(first + index, 1000 + index, 0, b"k", b"value %d" % index) for index in range(count)]


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """Three objects of one partition, 0 to 72, and an index that knows them."""
    made, entries = MemoryStore(), []
    for base in (0, 24, 48):
        content, facts = written(tmp_path, records_from(base), base)
        key = replace(KEY, base=base)
        etag = made.put_if_absent(LAYOUT.segment_key(key), content, facts.to_metadata())
        assert etag
        entries.append(IndexEntry(key, len(content), etag, facts))
    append_to_index(made, LAYOUT, entries)
    settle_cluster(made, LAYOUT, "c")
    settle_topic(made, LAYOUT, topic="orders", topic_id=SOURCE.topic_id, cluster_id="c", partitions=4, configs={})
    return made


def gone(store: MemoryStore, base: int) -> None:
    store.delete([LAYOUT.segment_key(replace(KEY, base=base))])


def test_a_whole_archive_is_whole(store: MemoryStore) -> None:
    found = check_listing(store, LAYOUT)
    assert (found.topics, found.partitions, len(found.segments), found.records) == (1, 1, 3, 60)
    assert not found.problems
    assert not found.notes


@pytest.mark.parametrize(
    ("base", "missing"), [(0, "0-23 are missing"), (24, "24-47 are missing"), (48, "48-71 were archived once")]
)
def test_a_missing_object_is_found_wherever_it_was(store: MemoryStore, base: int, missing: str) -> None:
    gone(store, base)
    (problem,) = check_listing(store, LAYOUT).problems
    assert problem.startswith(f"{SOURCE.topic}-{SOURCE.partition}: offsets {missing}")


def test_control_facts_that_are_gone_or_damaged_are_found_in_the_listing(store: MemoryStore) -> None:
    fact = LAYOUT.fact_key("topics/orders", 0)
    store.delete([fact])
    (problem,) = check_listing(store, LAYOUT).problems
    assert problem.startswith(f"{fact}: is gone")
    store.put_if_absent(fact, b"{", {})
    (problem,) = check_listing(store, LAYOUT).problems
    assert problem.startswith(f"{fact}: not JSON")
    store.put_if_absent(LAYOUT.fact_key("topics/orders", 2), b"{", {})
    assert any(
        f"{LAYOUT.fact_key('topics/orders', 1)}: is gone" in one for one in check_listing(store, LAYOUT).problems
    )
    store.delete([LAYOUT.fact_key("cluster", 0)])
    assert any("cluster/000000.json: is gone" in one for one in check_listing(store, LAYOUT).problems)


def test_what_is_put_while_we_look_is_no_loss(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_behind(*given: object, **more: object) -> object:
        found = look(*given, **more)  # type: ignore[arg-type]
        content, facts = written(tmp_path, records_from(72), 72)
        key = replace(KEY, base=72)
        etag = store.put_if_absent(LAYOUT.segment_key(key), content, facts.to_metadata())
        append_to_index(store, LAYOUT, [IndexEntry(key, len(content), etag or "", facts)])
        return found

    monkeypatch.setattr("archiver.verify.look", put_behind)
    assert not check_listing(store, LAYOUT).problems


def test_a_partition_that_is_gone_altogether_is_found(store: MemoryStore) -> None:
    for base in (0, 24, 48):
        gone(store, base)
    (problem,) = check_listing(store, LAYOUT).problems
    assert "offsets 0-71 were archived once" in problem


def test_a_lost_end_is_remembered_when_the_index_is_merged(store: MemoryStore) -> None:
    gone(store, 48)
    for _ in range(2):
        merge_index(store, LAYOUT)
    (problem,) = check_listing(store, LAYOUT).problems
    assert "offsets 48-71 were archived once" in problem


def test_only_the_wanted_topics_are_looked_at(store: MemoryStore) -> None:
    gone(store, 24)
    gone(store, 48)
    assert not check_listing(store, LAYOUT, lambda topic: topic != SOURCE.topic).problems


def test_strangers_are_noted(store: MemoryStore) -> None:
    store.put_if_absent(f"{LAYOUT.topics_prefix}readme.txt", b"x", {})
    found = check_listing(store, LAYOUT)
    assert not found.problems
    assert found.notes == ["p/topics/readme.txt: is not one of ours"]


def problem_of(content: bytes, metadata: dict[str, str], level: Level) -> str:
    try:
        check_content(content, metadata, KEY, NAME, level)
    except NotWholeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("codec", [BlockCodec.NULL, BlockCodec.ZSTANDARD])
def test_every_flipped_bit_of_an_object_is_found(tmp_path: Path, codec: BlockCodec) -> None:
    content, facts = written(tmp_path, records_from(0), codec=codec)
    metadata = facts.to_metadata()
    assert not problem_of(content, metadata, Level.RECORDS)
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        assert NAME in problem_of(bytes(flipped), metadata, Level.RECORDS), place


def test_the_order_of_a_schemas_keys_is_no_damage(tmp_path: Path) -> None:
    """It differs from writer to writer."""
    content, facts = written(tmp_path, records_from(0))
    source, target = io.BytesIO(content), io.BytesIO()
    header = fastavro.schemaless_reader(source, HEADER_SCHEMA, None)
    assert isinstance(header, dict)
    schema = json.loads(header["meta"]["avro.schema"])
    header["meta"]["avro.schema"] = json.dumps(dict(reversed(list(schema.items())))).encode()
    fastavro.schemaless_writer(target, HEADER_SCHEMA, header)
    other = target.getvalue() + content[source.tell() :]
    assert other != content
    assert not problem_of(other, facts.to_metadata(), Level.RECORDS)
    header["meta"]["avro.schema"] = json.dumps(schema | {"doc": "Something else."}).encode()
    target = io.BytesIO()
    fastavro.schemaless_writer(target, HEADER_SCHEMA, header)
    changed = target.getvalue() + content[source.tell() :]
    assert "its header is not as it was written" in problem_of(changed, facts.to_metadata(), Level.RECORDS)


def test_every_changed_fact_of_the_metadata_is_found(tmp_path: Path) -> None:
    content, facts = written(tmp_path, records_from(0))
    metadata = facts.to_metadata()
    for name, text in metadata.items():
        changed = text[:-1] + ("1" if text[-1:] != "1" else "2")
        assert NAME in problem_of(content, metadata | {name: changed}, Level.COUNTS), name


def test_every_flipped_bit_beside_the_records_is_found(store: MemoryStore) -> None:
    known = {"topic": "orders", "topic_id": SOURCE.topic_id, "cluster_id": "c"}
    settle_topic(store, LAYOUT, **known, partitions=12, configs={"ä": "ö"})
    branches = {10: 5, 2: 7}
    for partition, offset in branches.items():
        branch = Branch(offset=offset, leader_epoch=4)
        settle_branch(
            store, LAYOUT, topic="orders", topic_id=SOURCE.topic_id, partition=partition, parent=0, branch=branch
        )
    probe_put_if_absent(store, LAYOUT)
    assert check_control(store, LAYOUT) == []
    keys = [item.key for item in store.list(LAYOUT.control_root)]
    assert len(keys) == 7
    for key in keys:
        found = store.objects[key]
        for place in range(len(found.body)):
            flipped = bytearray(found.body)
            flipped[place] ^= 1 << place % 8
            store.objects[key] = replace(found, body=bytes(flipped))
            (problem,) = check_control(store, LAYOUT)
            assert key in problem, place
        store.objects[key] = found


def test_a_stranger_beside_the_facts_is_told(store: MemoryStore) -> None:
    store.put_if_absent(f"{LAYOUT.control_root}topics/orders/notes.txt", b"", {})
    (problem,) = check_control(store, LAYOUT)
    assert problem.endswith("notes.txt: is not one of ours")


def test_blocks_are_counted_without_a_record_being_read(tmp_path: Path) -> None:
    content, facts = written(tmp_path, records_from(0))
    other, _ = written(tmp_path, records_from(0, 19))
    start = content.index(content[-16:]) + 16
    header = content[:start].replace(content[-16:], other[-16:])
    swapped = header + other[other.index(other[-16:]) + 16 :]
    assert "19 records in its blocks, 20 in its facts" in problem_of(swapped, facts.to_metadata(), Level.COUNTS)


def test_facts_that_agree_with_each_other_and_not_with_the_records_are_found(tmp_path: Path) -> None:
    """Counts, offsets and the bytes' own hash are right; only the records tell."""
    content, facts = written(tmp_path, records_from(0))
    _, lying = written(tmp_path, [replace(one, value=b"another") for one in records_from(0)])
    lying = replace(lying, sha256=facts.sha256)
    header = content.index(content[-16:]) + 16
    forged = encode_header(BlockCodec.ZSTANDARD, content[-16:], lying.to_header()) + content[header:]
    assert not problem_of(forged, lying.to_metadata(), Level.COUNTS)
    assert "do not add up to its facts: bytes, largest_record, digest" in problem_of(
        forged, lying.to_metadata(), Level.RECORDS
    )


def test_an_object_is_taken_apart(tmp_path: Path) -> None:
    content, facts = written(tmp_path, records_from(0))
    found = take_apart(content, facts.to_metadata(), KEY, NAME)
    assert (found.records, len(found.blocks), found.blocks[-1].end) == (20, 1, len(content))
    assert (found.schema, found.codec) == ("AvroKafkaRecord-v2.0", "zstandard")
    assert [(check.what, check.problem) for check in found.checks] == [
        ("structure", ""),
        ("facts", ""),
        ("counts", ""),
        ("records", ""),
    ]
    cut = take_apart(content[:-3], facts.to_metadata(), KEY, NAME)
    assert "cut or broken" in cut.checks[0].problem
    garbage = take_apart(b"garbage", {}, None, "x")
    assert (garbage.schema, len(garbage.checks)) == ("", 1)
