"""What `verify` finds, level by level, in a store in memory."""

import hashlib
import io
import json
import re
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest
import zstandard
from fastavro.read import HEADER_SCHEMA

from archiver.archive.format.control import Fact, append_fact, encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, OffsetMapKey, SegmentKey, chosen_name
from archiver.archive.index.fresh_entries import FreshEntries
from archiver.archive.index.index_generations import append_to_index, merge_index
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch, read_topic, record_cluster
from archiver.archive.restores.chosen_records import decode_chosen
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.listing import list_strangers
from archiver.archive.segments.probe import probe_key, probe_store
from archiver.archive.segments.segment import open_segment
from archiver.archive.segments.segment_facts import SegmentFacts, _checksum, facts_from_metadata
from archiver.backup.service.indexer import Indexer
from archiver.cli.inspect import inspection_lines
from archiver.codec.avro import decode_blocks, decode_header, encode_header
from archiver.codec.compression import BlockCodec
from archiver.codec.kernels.varint import encode_long
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.store.port import MOST_PUT_BYTES, ListedObject, ObjectKind
from archiver.upkeep.control_check import check_control, control_problem
from archiver.upkeep.inspection import MOST_BLOCKS, Inspection, take_apart, take_control_apart
from archiver.upkeep.object_check import Level, check_content, check_object
from archiver.upkeep.verify import check_listing
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.segments import SOURCE, written
from tests.support.topic_notes import note_of

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
        etag = made.put_if_absent(LAYOUT.segment_key(key), content, facts.to_metadata(), kind=ObjectKind.SEGMENT)
        assert etag
        entries.append(IndexEntry(key, len(content), etag, facts))
    append_to_index(Archive(made, LAYOUT), entries)
    record_cluster(Archive(made, LAYOUT), "c")
    record_topic(
        Archive(made, LAYOUT), topic="orders", topic_id=SOURCE.topic_id, cluster_id="c", partitions=4, configs={}
    )
    return made


def gone(store: MemoryStore, base: int) -> None:
    store.delete([LAYOUT.segment_key(replace(KEY, base=base))])


@pytest.mark.parametrize("stream", ["cluster", "present"])
def test_a_second_fact_where_there_is_one_is_named_and_not_read(store: MemoryStore, stream: str) -> None:
    key = LAYOUT.fact_key(stream, 1)
    fact = {"format": 1, "cluster_id": "another", "at_ms": 0, "topics": {}}
    assert store.put_if_absent(key, encode_fact(fact), {}, kind=ObjectKind.FACT)
    told = f"{key}: there is one such fact, number 0, and this one is not read; look who put it, and delete it"
    assert told in check_listing(Archive(store, LAYOUT)).problems


def test_a_whole_archive_is_whole(store: MemoryStore) -> None:
    found = check_listing(Archive(store, LAYOUT))
    assert (found.topics, found.partitions, len(found.segments), found.records) == (1, 1, 3, 60)
    assert not found.problems
    assert not found.notes


def put_merged(store: MemoryStore, spool: Path, records: list[Rec]) -> SegmentKey:
    """Put one object over the first two."""
    content, facts = written(spool, records)
    key = replace(KEY, next=48)
    assert facts.next == 48
    assert store.put_if_absent(LAYOUT.segment_key(key), content, facts.to_metadata(), kind=ObjectKind.SEGMENT)
    return key


def test_an_object_over_others_that_has_other_records_is_damage(store: MemoryStore, tmp_path: Path) -> None:
    false = put_merged(store, tmp_path, records_from(43, 1))
    for reads_records in (False, True):
        found = check_listing(Archive(store, LAYOUT), reads_records=reads_records)
        (problem,) = found.problems
        assert f"{LAYOUT.segment_key(false)} is damaged" in problem
        assert not found.notes


@pytest.mark.parametrize("is_true", [True, False])
def test_where_a_sweep_died_half_way_records_are_compared(store: MemoryStore, tmp_path: Path, is_true: bool) -> None:
    """What facts do not tell, the records do: of each object that is still covered by itself."""
    other = [Rec(24, 9999, 0, b"k", b"other"), *records_from(25, 19)]
    key = put_merged(store, tmp_path, [*records_from(0), *(records_from(24) if is_true else other)])
    gone(store, 0)
    archive, name = Archive(store, LAYOUT), LAYOUT.segment_key(key)
    (problem,) = check_listing(archive).problems
    assert "offsets 24-47 are in" in problem
    found = check_listing(archive, reads_records=True)
    assert not found.problems
    assert list(found.covered) == [name]
    body = open_segment(*(store.get(name) or (b"", {})), name)
    if is_true:
        check_object(body, key, Level.RECORDS, found.covered[name])
    else:
        with pytest.raises(CorruptSegmentError, match="has other records at offsets 24-47"):
            check_object(body, key, Level.RECORDS, found.covered[name])


@pytest.mark.parametrize(
    ("base", "missing"), [(0, "0-23 are missing"), (24, "24-47 are missing"), (48, "48-71 were archived once")]
)
def test_a_missing_object_is_found_wherever_it_was(store: MemoryStore, base: int, missing: str) -> None:
    gone(store, base)
    (problem,) = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith(f"{SOURCE.topic}-{SOURCE.partition}: offsets {missing}")


def test_control_facts_that_are_gone_or_damaged_are_found_in_the_listing(store: MemoryStore) -> None:
    fact = LAYOUT.fact_key("topics/orders", 0)
    store.delete([fact])
    (problem,) = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith(f"{fact}: is gone")
    store.put_if_absent(fact, b"{", {}, kind=ObjectKind.FACT)
    (problem,) = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith(f"{fact}: not JSON")
    store.put_if_absent(LAYOUT.fact_key("topics/orders", 2), b"{", {}, kind=ObjectKind.FACT)
    assert any(
        f"{LAYOUT.fact_key('topics/orders', 1)}: is gone" in one
        for one in check_listing(Archive(store, LAYOUT)).problems
    )
    store.delete([LAYOUT.fact_key("cluster", 0)])
    assert any("cluster/000000.json: is gone" in one for one in check_listing(Archive(store, LAYOUT)).problems)


def swap_fact(store: MemoryStore, key: str, other: str) -> None:
    store.objects[key] = store.objects[other]


def test_a_control_fact_of_another_topic_is_found(store: MemoryStore) -> None:
    record_topic(
        Archive(store, LAYOUT),
        topic="other",
        topic_id="BBBBBBBBBBBBBBBBBBBBBQ",
        cluster_id="c",
        partitions=1,
        configs={},
    )
    key = LAYOUT.fact_key("topics/orders", 0)
    swap_fact(store, key, LAYOUT.fact_key("topics/other", 0))
    (problem,) = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith(f"{key}: invalid note of a topic: it names something else than its key")
    with pytest.raises(CorruptSegmentError, match="it names something else than its key"):
        record_topic(
            Archive(store, LAYOUT), topic="orders", topic_id=SOURCE.topic_id, cluster_id="c", partitions=4, configs={}
        )  # a backup begins no new life of it


@pytest.mark.parametrize(
    ("topic_id", "cluster_id", "owner", "messages"),
    [
        ("BBBBBBBBBBBBBBBBBBBBBQ", "c", "c", ["3 objects are of topic id AAAAAAAAAAAAAAAAAAAAAQ"]),
        ("AAAAAAAAAAAAAAAAAAAAAQ", "d", "c", ["is of cluster d, and p/control/cluster/000000.json of c"]),
        ("AAAAAAAAAAAAAAAAAAAAAQ", "c", "d", ["is of cluster c, and", "3 objects are of cluster c, and"]),
    ],
)
def test_facts_that_are_not_of_the_objects_are_found(
    store: MemoryStore, topic_id: str, cluster_id: str, owner: str, messages: list[str]
) -> None:
    store.delete([LAYOUT.fact_key("topics/orders", 0), LAYOUT.fact_key("cluster", 0)])
    record_cluster(Archive(store, LAYOUT), owner)
    record_topic(
        Archive(store, LAYOUT), topic="orders", topic_id=topic_id, cluster_id=cluster_id, partitions=4, configs={}
    )
    problems = check_listing(Archive(store, LAYOUT)).problems
    assert len(problems) == len(messages)
    assert all(message in problem for message, problem in zip(messages, problems, strict=True)), problems


def test_a_life_without_a_topic_id_has_objects_of_any_id(store: MemoryStore) -> None:
    archive = Archive(store, LAYOUT)
    noted = read_topic(archive, "orders")
    assert noted is not None
    unknown = replace(noted, lives=tuple(replace(life, topic_id="") for life in noted.lives))
    append_fact(archive, "topics/orders", lambda _: note_of(unknown))
    assert check_listing(archive).problems == []


def test_objects_of_a_life_that_no_fact_has_are_found(store: MemoryStore) -> None:
    name = LAYOUT.segment_key(KEY)
    store.objects[LAYOUT.segment_key(replace(KEY, life=1))] = store.objects[name]
    (problem,) = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith("orders@1: 1 object is of a life that the newest fact in p/control/topics/orders/ ")


def test_objects_of_a_partition_that_the_note_does_not_have_are_found(store: MemoryStore) -> None:
    """An earlier topic of the name may have had more partitions."""
    archive, name = Archive(store, LAYOUT), LAYOUT.segment_key(KEY)
    stray = LAYOUT.segment_key(replace(KEY, partition=4))
    store.objects[stray] = store.objects[name]
    (problem,) = (one for one in check_listing(archive).problems if "does not have" in one)
    assert problem.startswith("orders-4: objects of a partition that the newest fact in p/control/topics/orders/ ")
    record_topic(archive, topic="orders", topic_id="another", cluster_id="c", partitions=1, configs={})
    assert not [one for one in check_listing(archive).problems if "does not have" in one]


def test_nothing_is_not_whole(store: MemoryStore) -> None:
    assert not check_listing(Archive(store, LAYOUT)).is_empty
    assert check_listing(Archive(store, LAYOUT), lambda topic: topic == "ordesr").is_empty
    assert check_listing(Archive(MemoryStore(), LAYOUT)).is_empty
    for base in (0, 24, 48):
        gone(store, base)
    store.delete([LAYOUT.fact_key("topics/orders", 0)])
    assert not check_listing(Archive(store, LAYOUT)).is_empty  # the index remembers


def test_the_index_is_read_once_and_before_the_listing(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def get(key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        asked.append(key)
        return MemoryStore.get(store, key, most_bytes)

    def listed(prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        asked.append(prefix)
        return MemoryStore.list(store, prefix, start_after)

    monkeypatch.setattr(store, "get", get)
    monkeypatch.setattr(store, "list", listed)
    assert not check_listing(Archive(store, LAYOUT)).problems
    files = [key for key in asked if LAYOUT.parse_index(0, key) is not None]
    assert len(files) == len(set(files)) == 1
    assert asked.index(files[0]) < asked.index(LAYOUT.topics_prefix)


def test_an_index_that_cannot_be_read_is_found_in_the_listing(store: MemoryStore) -> None:
    """What it remembered of ends is gone with it; and deeper looks do not tell it again in other words."""
    key = LAYOUT.index_key(0, 0)
    found = store.objects[key]
    for metadata in (found.metadata, {}):
        for place in (15, len(found.body) - 20):
            flipped = bytearray(found.body)
            flipped[place] ^= 1
            store.objects[key] = replace(found, body=bytes(flipped), metadata=metadata)
            (problem,) = check_listing(Archive(store, LAYOUT)).problems
            assert problem.startswith(f"{key}: ")
            assert check_control(Archive(store, LAYOUT)) == [problem]


def test_a_part_of_the_index_that_cannot_be_read_is_found_where_no_object_is_left(store: MemoryStore) -> None:
    """The listing has no such topic, so that nobody else asks the index for it."""
    key, facts = SegmentKey(topic="gone", partition=0, base=0), facts_from_metadata(store.objects[NAME].metadata, NAME)
    assert facts is not None
    append_to_index(Archive(store, LAYOUT), [IndexEntry(key, 5, "e", facts)])
    name = LAYOUT.index_key(0, 1)
    body = store.objects[name].body[:-1] + b"x"
    store.objects[name] = replace(store.objects[name], body=body, metadata={})
    (problem,) = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith(f"{name}: not an index: ")


def test_an_archive_without_an_index_does_not_know_its_ends_and_says_so(store: MemoryStore) -> None:
    store.delete([LAYOUT.index_key(0, 0)])
    gone(store, 48)
    found = check_listing(Archive(store, LAYOUT))
    assert not found.problems
    (note,) = found.notes
    assert note.startswith("p/control/index/: there is no index")


def test_files_of_the_index_that_are_gone_are_noted(store: MemoryStore) -> None:
    for _ in range(2):
        append_to_index(Archive(store, LAYOUT), [])
    assert not check_listing(Archive(store, LAYOUT)).notes
    store.delete([LAYOUT.index_key(0, 0), LAYOUT.index_key(0, 1)])
    assert check_listing(Archive(store, LAYOUT)).notes == [
        "p/control/index/: 2 files of the index are gone, and with that what was remembered of where partitions ended"
    ]


def test_a_newest_fact_that_is_gone_is_remembered(store: MemoryStore) -> None:
    """Also when the index is merged; and an older one that is lost with it is told, too."""
    for life in (0, 1):
        branch = Branch(offset=72 + life, leader_epoch=3)
        record_branch(Archive(store, LAYOUT), topic="orders", partition=life, parent=0, branch=branch)
    entry = IndexEntry(KEY, 1, "not there", written_facts(store))
    fresh = FreshEntries()
    fresh.note(entry)
    Indexer(Archive(store, LAYOUT), fresh, clock=lambda: 0.0).write()
    assert not check_listing(Archive(store, LAYOUT)).problems
    keys = [LAYOUT.fact_key("topics/orders", number) for number in (1, 2)]
    store.delete(keys[1:])
    assert [one.partition(":")[0] for one in check_listing(Archive(store, LAYOUT)).problems] == keys[1:]
    assert not check_listing(Archive(store, LAYOUT), lambda topic: topic != "orders").problems
    for _ in range(2):
        merge_index(Archive(store, LAYOUT))
    store.delete(keys)
    assert [one.partition(":")[0] for one in check_listing(Archive(store, LAYOUT)).problems] == keys


def written_facts(store: MemoryStore) -> SegmentFacts:
    facts = facts_from_metadata(store.objects[NAME].metadata, NAME)
    assert facts is not None
    return facts


@pytest.mark.parametrize("level", [Level.COUNTS, Level.RECORDS])
def test_objects_without_their_metadata_are_not_whole(store: MemoryStore, level: Level) -> None:
    """As a tool leaves them that copies bytes alone: size and ETag are those that the index has."""
    for base in (0, 24, 48):
        name = LAYOUT.segment_key(replace(KEY, base=base))
        store.objects[name] = found = replace(store.objects[name], metadata={})
        with pytest.raises(CorruptSegmentError, match=f"{re.escape(name)}: has no archiver-"):
            check_object(open_segment(found.body, {}, name), replace(KEY, base=base), level)
    problems = check_listing(Archive(store, LAYOUT)).problems
    assert [one.partition(";")[0] for one in problems] == [
        f"{LAYOUT.segment_key(replace(KEY, base=base))}: has no archiver-* metadata" for base in (0, 24, 48)
    ]


def test_metadata_that_the_index_remembers_otherwise_is_told(store: MemoryStore) -> None:
    name = LAYOUT.segment_key(replace(KEY, base=48))
    found = store.objects[name]
    facts = facts_from_metadata(found.metadata, name)
    assert facts is not None
    store.objects[name] = replace(found, metadata=replace(facts, next=112, records=19).to_metadata())
    (problem,) = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith(f"{name}: its metadata is not as it was written: the index has other next, records;")


def test_an_object_in_the_place_of_another_is_told(store: MemoryStore, tmp_path: Path) -> None:
    """Of another partition, say: it has the same base, and in itself no fault."""
    content, facts = written(tmp_path, records_from(24, 10), 24)
    facts = replace(facts, next=48)
    name = LAYOUT.segment_key(replace(KEY, base=24))
    store.objects[name] = replace(store.objects[name], body=content, metadata=facts.to_metadata())
    (problem,) = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith(f"{name}: is not the object that was put there: the index has other last, records, ")


def test_what_is_gone_beside_the_records_is_told_by_what_is_there(store: MemoryStore) -> None:
    """Of every stream but those of topics, which the index remembers, too."""
    streams = ["group-positions/2026-11-20", "restores/r-1/orders/0", "starts/orders/1"]
    for stream in streams:
        for number in range(3):
            store.put_if_absent(LAYOUT.fact_key(stream, number), encode_fact({"format": 1}), {}, kind=ObjectKind.FACT)
    assert not check_listing(Archive(store, LAYOUT)).problems
    for stream in streams:
        store.delete([LAYOUT.fact_key(stream, 1)])
    gone = [f"{LAYOUT.fact_key(stream, 1)}: is gone" for stream in streams]
    assert sorted(one.partition(";")[0] for one in check_listing(Archive(store, LAYOUT)).problems) == gone


@pytest.mark.parametrize("stream", ["group-positions/2026-11-20", "topics/orders"])
def test_many_facts_that_are_gone_in_a_row_are_one_finding(store: MemoryStore, stream: str) -> None:
    """One object with a name that nobody gave it was a million findings."""
    if stream.startswith("topics/"):
        store.put_if_absent(
            LAYOUT.fact_key(stream, 999_999), store.objects[LAYOUT.fact_key(stream, 0)].body, {}, kind=ObjectKind.FACT
        )
        missing = 999_998
    else:
        for number in (0, 2, 999_999):
            store.put_if_absent(LAYOUT.fact_key(stream, number), encode_fact({"format": 1}), {}, kind=ObjectKind.FACT)
        missing = 999_996
    *before, problem = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith(f"{LAYOUT.fact_key(stream, 999_999 - missing)} to {LAYOUT.fact_key(stream, 999_998)}: ")
    assert f": {missing:,} facts are gone; " in problem
    assert len(before) == (not stream.startswith("topics/"))


def test_an_offset_map_that_is_gone_is_told(store: MemoryStore) -> None:
    keys = [OffsetMapKey(restore_id="r-1", topic="orders", partition=number, topic_id="A") for number in (0, 1)]
    for key in keys:
        store.put_if_absent(LAYOUT.offset_map_key(key), b"", {}, kind=ObjectKind.FACT)
    for stream in ("0", "1", "plan", "finished"):
        store.put_if_absent(
            LAYOUT.fact_key(f"restores/r-1/orders/{stream}", 0), encode_fact({"format": 1}), {}, kind=ObjectKind.FACT
        )
    assert not check_listing(Archive(store, LAYOUT)).problems
    store.delete([LAYOUT.offset_map_key(keys[1])])
    (problem,) = check_listing(Archive(store, LAYOUT)).problems
    assert problem.startswith(
        "p/control/restores/r-1/orders/1/offsets/: the offset map is gone; run that restore again"
    )
    store.delete([LAYOUT.fact_key("restores/r-1/orders/finished", 0)])
    assert not check_listing(Archive(store, LAYOUT)).problems  # it is on its way


def beside_of(store: MemoryStore) -> list[str]:
    """What is written beside the records of an archive with a restore: one key of each kind."""
    chosen = LAYOUT.chosen_key("r-1", "orders", 0, "a" * 24)
    offset_map = OffsetMapKey(restore_id="r-1", topic="orders", partition=0, topic_id="A")
    plan = {"format": 1, "partitions": [{"parts": [["an object", 0, None, None, chosen]]}]}
    facts: dict[str, Fact] = {
        "group-positions/2026-11-20": {"format": 1},
        "present": {"format": 1},
        "starts/orders/0": {"format": 1},
        "restores/r-1/orders/plan": plan,
        "restores/r-1/orders/0": {"format": 1},
        "restores/r-1/orders/finished": {"format": 1},
    }
    for stream, fact in facts.items():
        store.put_if_absent(LAYOUT.fact_key(stream, 0), encode_fact(fact), {}, kind=ObjectKind.FACT)
    others = [chosen, LAYOUT.offset_map_key(offset_map), probe_key(LAYOUT)]
    for key in others:
        store.put_if_absent(key, b"probe", {}, kind=ObjectKind.FACT)
    return [*(LAYOUT.fact_key(stream, 0) for stream in facts), *others]


def test_what_a_note_names_and_what_lies_below_a_higher_number_is_missed(store: MemoryStore) -> None:
    """The newest note of a stream, and the only one, are missed by nobody: docs/reference.md."""
    keys = beside_of(store)
    assert not check_listing(Archive(store, LAYOUT)).problems
    for key in keys:
        found = store.objects.pop(key)
        problems = check_listing(Archive(store, LAYOUT)).problems
        if "/plan/" in key or "/offsets/" in key or LAYOUT.is_chosen(key):
            (problem,) = problems
            assert "gone" in problem
            assert key.startswith(problem.partition(":")[0]), problem
        else:
            assert not problems
        store.objects[key] = found
    lost = LAYOUT.fact_key("group-positions/2026-11-20", 0)
    later = LAYOUT.fact_key("group-positions/2026-11-20", 1)
    store.put_if_absent(later, encode_fact({"format": 1}), {}, kind=ObjectKind.FACT)
    store.delete([lost])
    assert check_listing(Archive(store, LAYOUT)).problems == [
        f"{lost}: is gone; bring it back from the bucket's versions"
    ]


def test_a_restore_that_chooses_while_we_list_is_no_loss(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lists sort before the plan that names them, and are put before it."""
    listed = MemoryStore.list

    def put_between(prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        found = list(listed(store, prefix, start_after))
        if prefix == LAYOUT.control_root:  # as a page that was read before, and one that was read after
            beside_of(store)
            found += [item for item in listed(store, prefix) if item.key.endswith("/plan/000000.json")]
        return iter(found)

    monkeypatch.setattr(store, "list", put_between)
    assert not check_listing(Archive(store, LAYOUT)).problems


def test_looking_at_an_archive_writes_nothing(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every object is asked for, and those that an index should have known are no news to it."""
    monkeypatch.setattr("archiver.archive.index.learned_facts._MANY", 1)
    before = set(store.objects)
    check_listing(Archive(store, LAYOUT))
    assert set(store.objects) == before


def test_only_the_wanted_topics_are_looked_at(store: MemoryStore) -> None:
    gone(store, 24)
    gone(store, 48)
    assert not check_listing(Archive(store, LAYOUT), lambda topic: topic != SOURCE.topic).problems


def test_strangers_are_noted(store: MemoryStore) -> None:
    store.put_if_absent(f"{LAYOUT.topics_prefix}readme.txt", b"x", {}, kind=ObjectKind.FACT)
    found = check_listing(Archive(store, LAYOUT))
    assert not found.problems
    assert found.notes == ["p/topics/readme.txt: is not one of ours"]


def test_strangers_beside_the_archive_are_noted(store: MemoryStore) -> None:
    strange = ["p/!", "p/control", "p/junk", "p/topics.bak/orders/x", "p/topics.bak/y", "p/topics0", "p/zoo/a/b"]
    for key in [*strange, "q/other", "pq"]:
        store.put_if_absent(key, b"x", {}, kind=ObjectKind.FACT)
    found = check_listing(Archive(store, LAYOUT))
    told = ["p/!", "p/control", "p/junk", "p/topics.bak/", "p/topics0", "p/zoo/"]
    assert sorted(found.notes) == sorted(f"{key}: is not one of ours" for key in told)
    assert not found.problems
    assert not check_listing(Archive(store, LAYOUT), lambda _: True).notes
    for number in range(300):
        store.put_if_absent(f"p/many{number:03}/x", b"", {}, kind=ObjectKind.FACT)
        store.put_if_absent(f"p/many{number:03}.txt", b"", {}, kind=ObjectKind.FACT)
    assert len(list_strangers(Archive(store, LAYOUT))) == 100


def test_a_whole_bucket_may_be_the_archive(store: MemoryStore) -> None:
    assert list_strangers(Archive(store, Layout(""))) == ["p/"]


def problem_of(content: bytes, metadata: dict[str, str], level: Level) -> str:
    try:
        check_content(open_segment(content, metadata, NAME), KEY, level)
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
    topic_id, configs = SOURCE.topic_id, {"ä": "ö"}
    record_topic(
        Archive(store, LAYOUT), topic="orders", topic_id=topic_id, cluster_id="c", partitions=12, configs=configs
    )
    branches = {10: 5, 2: 7}
    for partition, offset in branches.items():
        branch = Branch(offset=offset, leader_epoch=4)
        record_branch(Archive(store, LAYOUT), topic="orders", partition=partition, parent=0, branch=branch)
    probe_store(Archive(store, LAYOUT))
    assert check_control(Archive(store, LAYOUT)) == []
    keys = [item.key for item in store.list(LAYOUT.control_root)]
    assert len(keys) == 7
    for key in keys:
        found = store.objects[key]
        for place in range(len(found.body)):
            flipped = bytearray(found.body)
            flipped[place] ^= 1 << place % 8
            store.objects[key] = replace(found, body=bytes(flipped))
            (problem,) = check_control(Archive(store, LAYOUT))
            assert key in problem, place
        store.objects[key] = found


def test_an_index_without_its_digest_is_told(store: MemoryStore) -> None:
    key = LAYOUT.index_key(0, 0)
    store.objects[key] = replace(store.objects[key], metadata={"archiver-sha257": "x"})
    assert check_control(Archive(store, LAYOUT)) == [
        f"{key}: has no archiver-sha256 metadata; copy it again, with its metadata"
    ]


def test_a_fact_without_its_digest_is_told(store: MemoryStore) -> None:
    key = LAYOUT.fact_key("copies/blue/orders/0/0", 0)
    store.put_if_absent(key, b'{"format": 1, "generation": 0, "next": 0}', {}, kind=ObjectKind.FACT)
    (problem,) = check_control(Archive(store, LAYOUT))
    assert problem.startswith(f"{key}: has no sha256, and nothing tells whether it is as it was written")


@pytest.mark.parametrize(
    "steps",
    [None, b"", b"1234567", bytes(16), b"\xff" * 8, (b"\x01" + bytes(7)) * 2**21, (b"\xff" * 7 + b"\x7f") * 2],
    ids=["garbage", "none", "cut", "twice", "negative", "many", "beyond"],
)
def test_a_choice_of_a_restore_is_no_bomb(steps: bytes | None) -> None:
    """What a few bytes expand to is read a piece at a time, and no further than the object has offsets."""
    content = b"garbage" if steps is None else zstandard.compress(steps)
    digest = hashlib.sha256(content).hexdigest()
    tracemalloc.start()
    try:
        with pytest.raises(CorruptSegmentError, match=r"^k/[0-9a-f]{24}\.offsets: no list of offsets: "):
            decode_chosen(content, digest, f"k/{chosen_name(digest[:24])}", most=1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_a_stranger_beside_the_facts_is_told(store: MemoryStore) -> None:
    store.put_if_absent(f"{LAYOUT.control_root}topics/orders/notes.txt", b"", {}, kind=ObjectKind.FACT)
    (problem,) = check_control(Archive(store, LAYOUT))
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


def blocks_of(content: bytes) -> bytes:
    return content[decode_header(content, NAME).size :]


def outcomes(found: Inspection) -> list[tuple[str, str]]:
    return [(check.what, check.outcome) for check in found.checks]


def test_an_object_is_taken_apart(tmp_path: Path) -> None:
    content, facts = written(tmp_path, records_from(0))
    found = take_apart(content, facts.to_metadata(), KEY, NAME)
    assert (found.records, found.block_count, found.blocks[-1].end) == (20, 1, len(content))
    assert (found.schema, found.codec) == ("AvroKafkaRecord-v2.0", "zstandard")
    assert outcomes(found) == [("structure", "ok"), ("facts", "ok"), ("records", "ok")]


def test_an_inspection_tells_a_fault_once(tmp_path: Path) -> None:
    content, facts = written(tmp_path, records_from(0))
    metadata = facts.to_metadata()
    cut = take_apart(content[:-3], metadata, KEY, NAME)
    assert "cut or broken" in cut.checks[0].problem
    assert outcomes(cut) == [("structure", "DAMAGED"), ("facts", "not looked at"), ("records", "not looked at")]
    other = take_apart(content, metadata | {"archiver-records": "19"}, KEY, NAME)
    assert "metadata and Avro header differ: records; bring" in other.checks[1].problem
    assert outcomes(other) == [("structure", "ok"), ("facts", "DAMAGED"), ("records", "not looked at")]
    flipped = bytearray(content)
    flipped[-30] ^= 1
    assert outcomes(take_apart(bytes(flipped), metadata, KEY, NAME))[-1] == ("records", "DAMAGED")
    bare = take_apart(encode_header(BlockCodec.ZSTANDARD, content[-16:], {}) + blocks_of(content), {}, KEY, NAME)
    assert outcomes(bare) == [("structure", "ok"), ("facts", "DAMAGED"), ("records", "ok")]
    garbage = take_apart(b"garbage", {}, None, "x")
    assert garbage.schema == ""
    assert [check.problem for check in garbage.checks] == ["x: not an Avro object container file", ""]


def test_an_inspection_holds_metadata_against_the_header(tmp_path: Path) -> None:
    content, facts = written(tmp_path, records_from(0))
    metadata = facts.to_metadata()
    bare = take_apart(content, {}, KEY, NAME)
    assert outcomes(bare) == [("structure", "ok"), ("facts", "DAMAGED"), ("records", "ok")]
    assert "has no archiver-* metadata" in bare.checks[1].problem
    assert outcomes(take_apart(content, None, KEY, NAME))[1:] == [("facts", "ok"), ("records", "ok")]  # a file has none
    later = replace(facts, next=2790, last=50).to_metadata()
    lost = {name: text for name, text in metadata.items() if not name.endswith(("-records", "-writer"))}
    for changed, told in (
        (later, "metadata and Avro header differ: last, next; bring"),
        (metadata | {"archiver-facts-sha256": "0"}, "its facts are not those that were written"),
        (lost, "header differ: writer, records"),
    ):
        assert told in take_apart(content, changed, KEY, NAME).checks[1].problem
    later = {**metadata, "archiver-new": "y"}
    later["archiver-facts-sha256"] = _checksum(later)
    assert not take_apart(content, later, KEY, NAME).checks[1].problem
    moved = take_apart(content, metadata, replace(KEY, base=7), NAME)
    assert "its facts cover 0..24, its name says otherwise" in moved.checks[1].problem
    assert "not an Avro object" in take_apart(b'{"format": 1}', metadata, KEY, NAME).checks[0].problem


def test_a_cut_at_a_block_boundary_is_told_by_the_facts(tmp_path: Path) -> None:
    content, facts = written(tmp_path, records_from(0))
    header = decode_header(content, NAME)
    found = take_apart(content[: header.size], facts.to_metadata(), KEY, NAME)
    assert [check.problem for check in found.checks] == ["", f"{NAME}: 0 records in its blocks, 20 in its facts", ""]


def test_millions_of_empty_blocks_are_counted_and_not_told(tmp_path: Path) -> None:
    content, facts = written(tmp_path, records_from(0))
    header = decode_header(content, NAME)
    bomb = content + (encode_long(0) + encode_long(0) + header.sync) * 100_000
    tracemalloc.start()
    try:
        found = take_apart(bomb, facts.to_metadata(), KEY, NAME)
        shown = "\n".join(inspection_lines(found))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.block_count, found.records, len(found.blocks)) == (100_001, 20, MOST_BLOCKS)
    assert "... and 99,001 more blocks" in shown
    assert len(shown) < 100_000
    assert peak < 5_000_000
    assert outcomes(found)[-1] == ("records", "DAMAGED")  # they are not what was written
    frames = list(decode_blocks(memoryview(bomb), header, topic="orders", partition=3, key=NAME))
    assert [len(frame) for frame in frames] == [20]


def test_what_lies_beside_the_records_is_inspected_too(store: MemoryStore) -> None:
    for item in store.list(LAYOUT.control_root):
        got = store.get(item.key)
        assert got is not None
        content, metadata = got
        assert outcomes(
            take_control_apart(content, metadata, control_problem(LAYOUT, item.key, content, metadata))
        ) == [("control", "ok")]
        if item.key.endswith(".json"):
            found = take_apart(content, metadata, None, item.key)
            assert outcomes(found) == [("fact", "ok")]
            assert '"format": 1' in "\n".join(inspection_lines(found))
            broken = take_apart(content.replace(b'"format": 1', b'"format": 0'), metadata, None, item.key)
            assert outcomes(broken) == [("fact", "DAMAGED")]
            long = take_apart(b'{"format": 1, "topic": "' + b"x" * 900_000 + b'"}', {}, None, "f.json")
            assert len("\n".join(inspection_lines(long))) < 1000
