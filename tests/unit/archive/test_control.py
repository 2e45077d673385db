"""docs/format.md §8: numbered facts that nobody overwrites, and the lives of a topic."""

import contextlib
import json
import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.format.control import (
    READS_AT_ONCE,
    Fact,
    append_fact,
    decode_fact,
    decode_facts,
    encode_fact,
    latest_fact,
    most_fact_bytes,
    most_parsed_bytes,
    newest_listed,
    only_fact,
    read_fact,
    read_history,
    turn_for,
)
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.cluster_topics import is_kept_by_turns
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import (
    Branch,
    Life,
    LifeRange,
    TopicFact,
    is_compacted,
    read_cluster,
    read_topic,
    read_topic_history,
    record_cluster,
)
from archiver.errors import (
    ArchiverError,
    CorruptSegmentError,
    FormatTooNewError,
    StrangerError,
    TemporaryError,
)
from archiver.process.values.json_values import parsed_bytes
from archiver.store.port import MOST_PUT_BYTES, Body, ListedObject, ObjectKind, refuse_larger
from tests.support.memory_store import MemoryStore
from tests.support.topic_notes import note_of, topic_of

LAYOUT = Layout("p")
STREAM = "topics/t"


def count_up(latest: Fact | None) -> Fact:
    return {"format": 1, "count": 1 if latest is None else latest["count"] + 1}


def test_facts_are_numbered_and_the_highest_holds() -> None:
    store = MemoryStore()
    assert latest_fact(Archive(store, LAYOUT), STREAM) is None
    assert list(read_history(Archive(store, LAYOUT), STREAM)) == []
    for number in range(12):
        assert append_fact(Archive(store, LAYOUT), STREAM, count_up) == {"format": 1, "count": number + 1}
    assert list(store.objects) == [f"p/control/topics/t/{number:06}.json" for number in range(12)]
    assert latest_fact(Archive(store, LAYOUT), STREAM) == {"format": 1, "count": 12}
    assert [fact["count"] for *_, fact in read_history(Archive(store, LAYOUT), STREAM)] == list(range(1, 13))


def test_streams_are_kept_apart() -> None:
    """Also one that lies below another, and what somebody else put there."""
    store = MemoryStore()
    append_fact(Archive(store, LAYOUT), "restores/x", count_up)
    for _ in range(3):
        append_fact(Archive(store, LAYOUT), "restores/x/t/0", count_up)
    store.put_if_absent("p/control/restores/x/000009.json.bak", b"", {}, kind=ObjectKind.FACT)
    store.put_if_absent("p/control/restores/x/9.json", b"", {}, kind=ObjectKind.FACT)
    assert latest_fact(Archive(store, LAYOUT), "restores/x") == {"format": 1, "count": 1}
    assert latest_fact(Archive(store, LAYOUT), "restores/x/t/0") == {"format": 1, "count": 3}


def test_a_second_fact_does_not_replace_the_only_one_of_a_stream() -> None:
    store = MemoryStore()
    archive = Archive(store, LAYOUT)
    assert only_fact(archive, "cluster") is None
    forged = LAYOUT.fact_key("cluster", 1)
    assert store.put_if_absent(forged, encode_fact({"format": 1, "cluster_id": "d"}), {}, kind=ObjectKind.FACT)
    assert read_cluster(archive) is None
    record_cluster(archive, "c")
    record_cluster(archive, "c")
    assert read_cluster(archive) == "c"
    with pytest.raises(StrangerError, match=r"control/cluster/000000\.json: this archive belongs to cluster c"):
        record_cluster(archive, "d")


def test_a_put_of_the_only_fact_whose_answer_was_lost_holds() -> None:
    class Losing(MemoryStore):
        def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
            super().put_if_absent(key, body, metadata, kind=kind)
            return None

    archive = Archive(Losing(), LAYOUT)
    record_cluster(archive, "c")
    assert read_cluster(archive) == "c"


def test_a_writer_that_is_always_slower_gives_up_for_now() -> None:
    store = MemoryStore()

    def decide(_: Fact | None) -> Fact:
        append_fact(Archive(store, LAYOUT), STREAM, count_up)
        return {"format": 1, "count": 0}

    with pytest.raises(TemporaryError, match=r"p/control/topics/t/.*other writers were faster"):
        append_fact(Archive(store, LAYOUT), STREAM, decide)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"{}", b'{"format": "1"}', b"\xff\xfe\x00"])
def test_what_is_no_fact_is_named(body: bytes) -> None:
    store = MemoryStore()
    store.put_if_absent(LAYOUT.fact_key(STREAM, 0), body, {}, kind=ObjectKind.FACT)
    with pytest.raises(CorruptSegmentError, match=r"^p/control/topics/t/000000\.json: not"):
        latest_fact(Archive(store, LAYOUT), STREAM)
    with pytest.raises(CorruptSegmentError):
        append_fact(Archive(store, LAYOUT), STREAM, count_up)


def test_a_newer_fact_is_refused_by_name() -> None:
    store = MemoryStore()
    store.put_if_absent(LAYOUT.fact_key(STREAM, 0), b'{"format": 2}', {}, kind=ObjectKind.FACT)
    with pytest.raises(FormatTooNewError, match=r"^p/control/topics/t/000000\.json: format 2"):
        append_fact(Archive(store, LAYOUT), STREAM, count_up)


# --- topics


@st.composite
def histories(draw: st.DrawFn) -> tuple[Life, ...]:
    """Lives as record_topic and record_branch begin them: recreated now and then, some partitions cut back in between."""
    lives = [Life(life=0, topic_id=draw(st.sampled_from(["", "T0"])))]
    for number in range(1, draw(st.integers(1, 6))):
        if draw(st.integers(0, 3)) == 0:
            lives.append(Life(life=number, topic_id=draw(st.sampled_from(["", f"T{number}"]))))
            continue
        topic_id = lives[-1].topic_id
        known = TopicFact(topic="t", cluster_id="c", partitions=3, configs={}, lives=tuple(lives))
        first = draw(st.integers(0, 2))
        parent = known.life_of_partition(topic_id, first).life
        beside = [nr for nr in range(3) if nr != first and known.life_of_partition(topic_id, nr).life == parent]
        cut = [first, *(nr for nr in beside if draw(st.booleans()))]
        branches = {nr: Branch(offset=draw(st.integers(0, 12)), leader_epoch=draw(st.integers(-1, 9))) for nr in cut}
        lives.append(Life(life=number, topic_id=topic_id, parent=parent, branches=branches))
    return tuple(lives)


def fact_of(*lives: Life, partitions: int = 3, **configs: str) -> TopicFact:
    return TopicFact(topic="t", cluster_id="c", partitions=partitions, configs=configs, lives=lives)


@pytest.mark.parametrize(
    ("configs", "effective", "compacted"),
    [
        ({}, None, None),  # by a program from before, or nothing may be read
        ({"cleanup.policy": "compact"}, None, True),
        ({"cleanup.policy": "delete"}, None, False),
        ({}, {"cleanup.policy": "delete"}, False),
        ({}, {"cleanup.policy": "compact"}, True),
        ({}, {"cleanup.policy": "compact,delete"}, True),
        ({}, {"cleanup.policy": "delete, compact"}, True),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "delete"}, False),
        ({}, {"cleanup.policy": ""}, False),
        ({}, {"delete.retention.ms": "5"}, None),
    ],
)
def test_the_policy_that_holds_tells_whether_a_topic_is_compacted(
    configs: dict[str, str], effective: dict[str, str] | None, *, compacted: bool | None
) -> None:
    fact = replace(fact_of(Life(life=0, topic_id="A")), configs=configs, effective=effective)
    assert is_compacted(fact) is compacted
    assert is_kept_by_turns(fact) is compacted
    for topic in ("__consumer_offsets", "_compacted_log_backup_coordination"):
        assert is_kept_by_turns(replace(fact, topic=topic)) is False
    assert topic_of(json.loads(json.dumps(note_of(fact)))) == fact


def test_what_is_not_known_leaves_what_was_known() -> None:
    store = MemoryStore()

    def settle(effective: Mapping[str, str] | None) -> TopicFact:
        return record_topic(
            Archive(store, LAYOUT),
            topic="t",
            topic_id="A",
            cluster_id="c",
            partitions=1,
            configs={},
            effective=effective,
        )

    policy = {"cleanup.policy": "compact", "delete.retention.ms": "5"}
    assert [settle(one).effective for one in (None, None, policy, None, policy)] == [None, None, policy, policy, policy]
    assert [fact.effective for fact in read_topic_history(Archive(store, LAYOUT), "t")] == [None, policy]


@given(histories(), st.dictionaries(st.text(), st.text(), max_size=4))
def test_a_topic_comes_back_from_json(lives: tuple[Life, ...], configs: dict[str, str]) -> None:
    fact = TopicFact(topic="t", cluster_id="c", partitions=3, configs=configs, lives=lives)
    assert topic_of(json.loads(json.dumps(note_of(fact)))) == fact
    assert fact.current == lives[-1]


ROOT = {"life": 0, "topic_id": "A", "parent": None}
CHILD = {"life": 1, "topic_id": "A", "parent": 0, "branches": {"0": {"offset": 95, "leader_epoch": 3}}}
GRANDCHILD = {**CHILD, "life": 2, "parent": 1}


@pytest.mark.parametrize(
    "lives",
    [
        [],
        [{"life": 0}],
        [{**ROOT, "branches": CHILD["branches"]}],
        [ROOT, {**CHILD, "branches": {}}],
        [ROOT, {**CHILD, "branches": {"0": {"offset": -1, "leader_epoch": 3}}}],
        [ROOT, {**CHILD, "topic_id": "B"}],
        [ROOT, {**CHILD, "parent": 1}],
        [ROOT, CHILD, {**GRANDCHILD, "parent": 0}],  # two children of one parent for one partition
        [ROOT, CHILD, {**GRANDCHILD, "branches": {"1": {"offset": 5, "leader_epoch": 3}}}],
    ],
)
def test_a_topic_that_cannot_be_is_corrupt(lives: object) -> None:
    fact = {"format": 1, "topic": "t", "cluster_id": "c", "partitions": 1, "configs": {}, "lives": lives}
    with pytest.raises(CorruptSegmentError, match="invalid note of a topic"):
        topic_of(fact)


def settle(
    store: MemoryStore,
    topic_id: str = "A",
    cluster_id: str = "c",
    partitions: int = 3,
    **configs: str,
) -> TopicFact:
    return record_topic(
        Archive(store, LAYOUT),
        topic="t",
        topic_id=topic_id,
        cluster_id=cluster_id,
        partitions=partitions,
        configs=configs,
    )


def life_in(store: MemoryStore, topic_id: str = "A", partitions: int = 3, partition: int = 0) -> int:
    return settle(store, topic_id, partitions=partitions).life_of_partition(topic_id, partition).life


def lives_in(store: MemoryStore) -> list[str]:
    known = read_topic(Archive(store, LAYOUT), "t")
    assert known is not None
    return [life.topic_id for life in known.lives]


def test_the_first_life_is_number_zero_and_is_written_once() -> None:
    store = MemoryStore()
    assert read_topic(Archive(store, LAYOUT), "t") is None
    assert settle(store) == settle(store) == fact_of(Life(life=0, topic_id="A"))
    assert len(store.objects) == 1


def test_new_partitions_and_configs_are_news_of_the_same_life() -> None:
    store = MemoryStore()
    settle(store)
    settle(store, partitions=4)
    assert settle(store, partitions=4, k="v").current.life == 0
    known = read_topic(Archive(store, LAYOUT), "t")
    assert known is not None
    assert (known.partitions, known.configs, len(store.objects)) == (4, {"k": "v"}, 3)


def test_a_writer_that_sees_the_earlier_topic_stays_in_its_life() -> None:
    """Otherwise two writers, one with old metadata, would begin lives in turn, and archive everything each time."""
    store = MemoryStore()
    settle(store, "A")
    settle(store, "B", partitions=9)
    assert life_in(store, "A", partitions=1) == 0
    assert life_in(store, "B", partitions=9) == 1
    assert lives_in(store) == ["A", "B"]
    assert len(store.objects) == 2


def test_another_cluster_is_refused() -> None:
    store = MemoryStore()
    settle(store)
    with pytest.raises(StrangerError, match="belongs to cluster c, and this is d; give each cluster its own prefix"):
        settle(store, cluster_id="d")
    assert len(store.objects) == 1


def test_a_prefix_belongs_to_one_cluster() -> None:
    store = MemoryStore()
    record_cluster(Archive(store, LAYOUT), "c")
    record_cluster(Archive(store, LAYOUT), "c")
    with pytest.raises(
        StrangerError, match=r"control/cluster/000000.json: this archive belongs to cluster c, and this is d"
    ):
        record_cluster(Archive(store, LAYOUT), "d")
    assert len(store.objects) == 1


def roots_in(fact: TopicFact) -> list[tuple[str, int]]:
    return [(life.topic_id, fact.root(life.life)) for life in fact.lives]


def test_a_life_with_an_empty_id_is_not_continued() -> None:
    store = MemoryStore()
    append_fact(Archive(store, LAYOUT), STREAM, lambda _: note_of(fact_of(Life(life=0, topic_id=""))))
    assert roots_in(settle(store, "A")) == [("", 0), ("A", 1)]
    assert roots_in(settle(store, "A")) == [("", 0), ("A", 1)]
    assert life_in(store, "A") == 1


@pytest.mark.parametrize("known", [None, "", "A"])
def test_a_topic_is_not_recorded_without_an_id(known: str | None) -> None:
    store = MemoryStore()
    if known is not None:
        append_fact(Archive(store, LAYOUT), STREAM, lambda _: note_of(fact_of(Life(life=0, topic_id=known))))
    before = dict(store.objects)
    with pytest.raises(ValueError, match="topic t has no topic id"):
        settle(store, "")
    assert store.objects == before


# --- logs that were cut back


def cut(store: MemoryStore, partition: int, parent: int, offset: int, epoch: int = 3) -> int:
    """Branch off, and return the life; the branch that was asked for is the one that holds."""
    asked = Branch(offset=offset, leader_epoch=epoch)
    life, held = record_branch(Archive(store, LAYOUT), topic="t", partition=partition, parent=parent, branch=asked)
    assert held == asked
    return life


def test_one_election_that_cuts_many_logs_makes_one_life() -> None:
    store = MemoryStore()
    settle(store, partitions=50)
    assert {cut(store, partition, 0, 95 + partition) for partition in range(49)} == {1}
    known = read_topic(Archive(store, LAYOUT), "t")
    assert known is not None
    assert known.life_of_partition("A", 7) == known.current
    assert known.lineage(1, 7) == [(0, 0, 102), (1, 102, None)]
    assert known.life_of_partition("A", 49).life == 0
    assert known.lineage(1, 49) == [LifeRange(0, 0, None)]
    assert known.lineage(0, 7) == [(0, 0, None)]
    assert life_in(store, partitions=50, partition=7) == 1


def test_a_life_takes_in_a_partition_once_and_only_from_its_own_parent() -> None:
    store = MemoryStore()
    settle(store)
    assert [cut(store, 0, 0, 95), cut(store, 0, 1, 99), cut(store, 1, 0, 50)] == [1, 2, 3]
    assert cut(store, 2, 0, 40) == 3
    assert cut(store, 0, 2, 120) == 4
    known = read_topic(Archive(store, LAYOUT), "t")
    assert known is not None
    assert known.lineage(4, 0) == [(0, 0, 95), (1, 95, 99), (2, 99, 120), (4, 120, None)]
    assert known.lineage(3, 0) == [(0, 0, 95), (1, 95, 99), (2, 99, None)]  # it lived on beside life 3
    assert known.lineage(4, 2) == [(0, 0, 40), (3, 40, None)]


@given(histories())
def test_every_offset_is_held_by_the_newest_life_that_reaches_it(lives: tuple[Life, ...]) -> None:
    fact = fact_of(*lives)
    for newest in lives:
        for partition in range(3):
            stretches = fact.lineage(newest.life, partition)
            beginnings = [life.life for life in lives[: newest.life + 1] if life.parent is None]
            family = lives[beginnings[-1] : newest.life + 1]  # a topic that is gone gets no more branches
            for offset in range(20):
                holders = [
                    life.life
                    for life in family
                    if life.holds(partition) and (life.parent is None or life.branches[partition].offset <= offset)
                ]
                found = [
                    life for life, start, until in stretches if start <= offset and (until is None or offset < until)
                ]
                assert found == holders[-1:]
            assert [life for life, _, _ in stretches] == sorted(life for life, _, _ in stretches)
    assert fact.lineage(len(lives) - 1, 0)[-1].life == fact.life_of_partition(lives[-1].topic_id, 0).life


def test_the_second_writer_gets_the_existing_branch() -> None:
    store = MemoryStore()
    settle(store)
    first = (cut(store, 0, 0, 90), Branch(offset=90, leader_epoch=3))
    assert write_late(store) == first
    cut(store, 0, 1, 100)  # one that slept through the next cut is sent through the lives one by one
    assert write_late(store) == first
    assert len(store.objects) == 3


def write_late(store: MemoryStore) -> tuple[int, Branch]:
    return record_branch(Archive(store, LAYOUT), topic="t", partition=0, parent=0, branch=Branch(offset=5))


def test_a_branch_of_what_is_not_there_is_refused() -> None:
    store = MemoryStore()
    with pytest.raises(StrangerError, match="t: life 0 is not of the topic that is there now"):
        cut(store, 0, 0, 95)
    settle(store, "A")
    settle(store, "B")
    with pytest.raises(StrangerError, match="t: life 0 is not of the topic that is there now; it was created again"):
        cut(store, 0, 0, 95)
    assert cut(store, 0, 1, 95) == 2
    with pytest.raises(ValueError, match="t-1 lives in life 1, and never did in life 2"):
        cut(store, 1, 2, 95)
    with pytest.raises(KeyError):
        fact_of(Life(life=0, topic_id="A")).life_of_partition("B", 0)


BRANCH = {"offset": 5, "leader_epoch": 1}
FIRST_LIFE: Fact = {"life": 0, "topic_id": "A", "parent": None}
CUT_BACK: Fact = {"life": 1, "topic_id": "A", "parent": 0, "branches": {"0": BRANCH}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions": 10**9}, "topic: 1000000000 where a number of at most 1000000 was to come"),
        ({"topic": ["t"]}, "topic: \\['t'\\] where a text"),
        ({"configs": {"retention.ms": 5}}, "topic: 5 where a text"),
        ({"lives": {}}, "topic: {} where a list"),
        ({"lives": [{"life": 0, "topic_id": ["A"], "parent": None}]}, r"topic: \['A'\] where a text"),
        ({"lives": [FIRST_LIFE, {**CUT_BACK, "branches": {"\u0661": BRANCH}}]}, "topic: not a number"),
        (
            {"lives": [FIRST_LIFE, {**CUT_BACK, "branches": {"0": {**BRANCH, "offset": 10**40}}}]},
            "topic: 1000000000",
        ),
        (
            {"lives": [FIRST_LIFE, {**CUT_BACK, "branches": {"0": {**BRANCH, "offset": 0.5}}}]},
            "topic: 0.5 where a number",
        ),
    ],
)
def test_a_fact_that_would_cost_or_break_its_readers_is_damage(change: Fact, message: str) -> None:
    store = MemoryStore()
    record_topic(Archive(store, LAYOUT), topic="t", topic_id="A", cluster_id="c", partitions=2, configs={})
    append_fact(Archive(store, LAYOUT), STREAM, lambda latest: {**(latest or {}), **change})
    with pytest.raises(CorruptSegmentError, match=message):
        read_topic(Archive(store, LAYOUT), "t")


@pytest.mark.parametrize("depth", [300, 600, 900, 990, 2000, 100_000])
def test_json_that_is_nested_without_end_is_damage(depth: int) -> None:
    deep = b'{"format": 1, "sha256": "x", "deep": ' + b"[" * depth + b"]" * depth + b"}"
    with pytest.raises(CorruptSegmentError, match=r"^the/key: "):
        decode_fact(deep, "the/key")


def test_json_that_is_nested_too_deep_to_be_checked_is_damage() -> None:
    for depth in range(900, 1000):
        deep = b'{"format": 1, "said": "\\ud83d\\ude00", "deep": ' + b"[" * depth + b"]" * depth + b"}"
        with contextlib.suppress(CorruptSegmentError):
            decode_fact(deep, "the/key")


@pytest.mark.parametrize(
    "said",
    [b"NaN", b"-Infinity", b"9" * 5000, b'"\\ud800"'],
    ids=["nan", "inf", "long", "half"],
)
def test_json_that_nobody_could_write_again_is_damage(said: bytes) -> None:
    with pytest.raises(CorruptSegmentError, match=r"^the/key: not JSON"):
        decode_fact(b'{"format": 1, "said": ' + said + b"}", "the/key")


def test_a_fact_that_is_too_large_is_not_asked_for() -> None:
    """By its row of a listing; and where that lies, no byte of it is read, though it is asked for twice."""
    store = Weighed()
    record_topic(Archive(store, LAYOUT), topic="t", topic_id="A", cluster_id="c", partitions=2, configs={})
    for listed in (1 << 40, 0):
        store.listed, store.real, store.asked = listed, 1 << 40, 0
        with pytest.raises(CorruptSegmentError, match=r"p/control/topics/t/000000.json: has 1,099,511,627,776 bytes"):
            read_topic(Archive(store, LAYOUT), "t")
        assert (store.asked, store.read_bytes) == (0 if listed else 2, 0)
    with pytest.raises(CorruptSegmentError, match=r"000000.json: has"):
        read_fact(Archive(store, LAYOUT), STREAM, 0)
    store.listed, store.real = 200 << 20, None
    store.objects[LAYOUT.fact_key(STREAM, 1)] = store.objects[LAYOUT.fact_key(STREAM, 0)]
    with pytest.raises(CorruptSegmentError, match=r"p/control/topics/t/: has 419,430,400 bytes"):
        read_topic_history(Archive(store, LAYOUT), "t")


class Weighed(MemoryStore):
    """Its objects have other sizes, in a listing and when they are asked for, than what is in them."""

    listed: int | None = None
    real: int | None = None
    asked = read_bytes = 0

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for item in super().list(prefix, start_after):
            yield item if self.listed is None else replace(item, size=self.listed)

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        self.asked += 1
        refuse_larger(key, self.real or 0, most_bytes)
        self.read_bytes += self.real or 0
        return super().get(key, most_bytes)


def _cut_back_topic() -> Fact:
    branches = {nr: Branch(offset=2**62, leader_epoch=2**31 - 1, seen_ms=2**41) for nr in range(100)}
    first = Life(life=0, topic_id="t" * 22)
    lives = [Life(life=nr, topic_id="t" * 22, parent=nr - 1, branches=branches) for nr in range(1, 11)]
    return note_of(fact_of(first, *lives))


def _ends() -> Fact:
    return {"topics": {"t" * 249: {"topic_id": "", "ends": {str(nr + 10**6): [2**40, 99] for nr in range(10_000)}}}}


@pytest.mark.parametrize(
    ("stream", "members"),
    [(STREAM, _cut_back_topic()), ("present", _ends()), ("sweeps/plans/d", {"objects": ["k" * 190] * 3000})],
    ids=["10,000 partitions cut back ten times", "the ends of a million partitions", "a sweep of 300,000 objects"],
)
def test_the_largest_facts_are_within_their_limits(stream: str, members: Fact) -> None:
    """Of a hundredth of what a limit is made for, each takes less than a hundredth of it, written and parsed."""
    content = encode_fact({"format": 1, **members})
    assert 100 * len(content) < most_fact_bytes(stream)
    assert 100 * parsed_bytes(content.decode()) < most_parsed_bytes(stream)


MANY = 40


@pytest.mark.parametrize("is_history", [True, False])
def test_many_small_facts_are_not_in_memory_at_once(is_history: bool) -> None:
    """Each is within its limits, and takes 30 times as much memory as it has bytes."""
    store = MemoryStore()
    archive, content = Archive(store, LAYOUT), json.dumps({"format": 1, "more": [[]] * 25_000}).encode()
    numbers = {f"topics/{name}": 0 for name in range(MANY)}
    places = [(STREAM, number) for number in range(MANY)] if is_history else list(numbers.items())
    for place in places:
        store.put_if_absent(LAYOUT.fact_key(*place), content, {}, kind=ObjectKind.FACT)
    tracemalloc.start()
    try:
        decode_fact(content, "k", STREAM)
        _, of_one = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        if is_history:
            found = [len(fact) for *_, fact in read_history(archive, STREAM)]
        else:
            found = [*decode_facts(archive, numbers, lambda _, fact: len(fact)).values()]
        _, of_all = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [2] * MANY
    assert of_all < (3 if is_history else READS_AT_ONCE + 3) * of_one


def test_a_fact_that_readers_would_refuse_is_not_written() -> None:
    archive = Archive(MemoryStore(), LAYOUT)
    with pytest.raises(ArchiverError, match=r"p/control/cluster/000000.json: would have .* bytes, and readers take"):
        append_fact(archive, "cluster", lambda _: {"format": 1, "cluster_id": "c" * (1 << 20)})
    with pytest.raises(
        ArchiverError, match=r"cluster/000000.json: readers would need .* bytes of memory, and the limit"
    ):
        append_fact(archive, "cluster", lambda _: {"format": 1, "cluster_id": "c", "more": [[]] * 100_000})
    assert not list(archive.store.list(""))


@pytest.mark.parametrize("stream", ["cluster", STREAM, "present", "restores/r/t/plan"])
def test_a_fact_that_would_need_gigabytes_is_refused_before_it_is_parsed(stream: str) -> None:
    """As large as a fact of its stream may be, and nothing but lists in lists."""
    bomb = b'{"format": 1, "more": [' + b"[]," * (most_fact_bytes(stream) // 3 - 16) + b"0]}"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptSegmentError, match=r"^the/key: not JSON: parsing it may take .* bytes of memory"):
            decode_fact(bomb, "the/key", stream)
        assert tracemalloc.get_traced_memory()[1] < len(bomb) + (1 << 20)
    finally:
        tracemalloc.stop()


def test_a_large_fact_is_requested_once_if_its_size_is_known() -> None:
    """Otherwise twice: the first answer is refused unread, for the body must not come before its turn."""
    archive = Archive(store := Weighed(), LAYOUT)
    append_fact(archive, STREAM, lambda _: {"format": 1, "more": "x" * (2 << 20)})
    assert len(read_fact(archive, STREAM, 0)["more"]) == 2 << 20
    assert store.asked == 2
    (listed,) = newest_listed(archive, "topics").values()
    assert len(read_fact(archive, STREAM, listed)["more"]) == 2 << 20
    assert store.asked == 3
    reader = threading.Thread(target=read_fact, args=(archive, STREAM, listed))
    with turn_for(2 << 20):
        reader.start()
        reader.join(0.05)
        assert store.asked == 3
    reader.join()
    assert store.asked == 4


def test_a_stream_whose_last_number_is_taken_is_told() -> None:
    store = MemoryStore()
    record_topic(Archive(store, LAYOUT), topic="t", topic_id="A", cluster_id="c", partitions=2, configs={})
    store.objects[LAYOUT.fact_key(STREAM, 999_999)] = store.objects[LAYOUT.fact_key(STREAM, 0)]
    with pytest.raises(CorruptSegmentError, match=r"p/control/topics/t/999999.json: is the last number"):
        record_topic(Archive(store, LAYOUT), topic="t", topic_id="B", cluster_id="c", partitions=2, configs={})


def test_a_topic_of_thousands_of_lives_is_read_at_once() -> None:
    """Each is a branch of the one before it: to look at each from each took the cube of their number."""
    lives = [FIRST_LIFE, *({**CUT_BACK, "life": nr, "parent": nr - 1} for nr in range(1, 3000))]
    fact = {"format": 1, "topic": "t", "cluster_id": "c", "partitions": 1, "configs": {}, "lives": lives}
    begun = time.process_time()
    found = topic_of(fact)
    assert [found.root(2999), len(found.lineage(2999, 0))] == [0, 2]
    assert time.process_time() - begun < 1
