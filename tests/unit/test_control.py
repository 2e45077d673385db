"""docs/format.md §8: numbered facts that nobody overwrites, and the lives of a topic."""

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.control import Fact, Life, TopicFact, append_fact, facts, latest_fact, read_topic, settle_topic
from archiver.errors import CorruptSegmentError, FormatTooNewError, StoreTemporaryError, StrangerError, TemporaryError
from archiver.layout import Layout
from archiver.store import Body
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("p")
STREAM = "topics/t"


def count_up(latest: Fact | None) -> Fact:
    return {"format": 1, "count": 1 if latest is None else latest["count"] + 1}


def test_facts_are_numbered_and_the_highest_holds() -> None:
    store = MemoryStore()
    assert latest_fact(store, LAYOUT, STREAM) is None
    assert facts(store, LAYOUT, STREAM) == []
    for number in range(12):
        assert append_fact(store, LAYOUT, STREAM, count_up) == {"format": 1, "count": number + 1}
    assert list(store.objects) == [f"p/control/topics/t/{number:06}.json" for number in range(12)]
    assert latest_fact(store, LAYOUT, STREAM) == {"format": 1, "count": 12}
    assert [fact["count"] for fact in facts(store, LAYOUT, STREAM)] == list(range(1, 13))


def test_nothing_to_add_adds_nothing() -> None:
    store = MemoryStore()
    assert append_fact(store, LAYOUT, STREAM, lambda _: None) is None
    append_fact(store, LAYOUT, STREAM, count_up)
    assert append_fact(store, LAYOUT, STREAM, lambda _: None) == {"format": 1, "count": 1}
    assert len(store.objects) == 1


def test_streams_are_kept_apart() -> None:
    """Also one that lies below another, and what somebody else put there."""
    store = MemoryStore()
    append_fact(store, LAYOUT, "restores/x", count_up)
    for _ in range(3):
        append_fact(store, LAYOUT, "restores/x/t/0", count_up)
    store.put_if_absent("p/control/restores/x/000009.json.bak", b"", {})
    store.put_if_absent("p/control/restores/x/9.json", b"", {})
    assert latest_fact(store, LAYOUT, "restores/x") == {"format": 1, "count": 1}
    assert latest_fact(store, LAYOUT, "restores/x/t/0") == {"format": 1, "count": 3}


def test_who_was_slower_decides_again_on_what_the_faster_wrote() -> None:
    store = MemoryStore()
    seen: list[Fact | None] = []

    def decide(latest: Fact | None) -> Fact:
        seen.append(latest)
        if len(seen) <= 2:
            append_fact(store, LAYOUT, STREAM, count_up)  # another writer, between our reading and our put
        return {"format": 1, "count": 100}

    append_fact(store, LAYOUT, STREAM, decide)
    assert seen == [None, {"format": 1, "count": 1}, {"format": 1, "count": 2}]
    assert [fact["count"] for fact in facts(store, LAYOUT, STREAM)] == [1, 2, 100]


def test_writers_at_once_never_append_to_what_they_have_not_seen() -> None:
    store = MemoryStore()
    writers, each = 4, 10
    start = threading.Barrier(writers)

    def write(_: int) -> None:
        start.wait()
        for _ in range(each):
            while True:
                try:
                    append_fact(store, LAYOUT, STREAM, count_up)
                except TemporaryError:
                    continue
                break

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    assert [fact["count"] for fact in facts(store, LAYOUT, STREAM)] == list(range(1, writers * each + 1))


def test_a_writer_that_is_always_slower_gives_up_for_now() -> None:
    store = MemoryStore()

    def decide(_: Fact | None) -> Fact:
        append_fact(store, LAYOUT, STREAM, count_up)
        return {"format": 1, "count": 0}

    with pytest.raises(TemporaryError, match=r"p/control/topics/t/.*other writers were faster"):
        append_fact(store, LAYOUT, STREAM, decide)


class LossyStore(MemoryStore):
    """Puts, and loses the answer: it raises, or (the client's own repeat) says that something is there."""

    def __init__(self, *, raises: bool) -> None:
        super().__init__()
        self._raises = raises

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str]) -> bool:
        super().put_if_absent(key, body, metadata)
        if self._raises:
            raise StoreTemporaryError("lost")
        return False


def test_a_lost_answer_is_settled_by_who_knows_its_own_fact() -> None:
    mine: Fact = {"format": 1, "writer": "me"}

    def decide(latest: Fact | None) -> Fact | None:
        return None if latest == mine else mine

    assert append_fact(LossyStore(raises=False), LAYOUT, STREAM, decide) == mine
    store = LossyStore(raises=True)
    with pytest.raises(StoreTemporaryError):
        append_fact(store, LAYOUT, STREAM, decide)
    assert append_fact(store, LAYOUT, STREAM, decide) == mine
    assert facts(store, LAYOUT, STREAM) == [mine]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"{}", b'{"format": "1"}', b"\xff\xfe\x00"])
def test_what_is_no_fact_is_named(body: bytes) -> None:
    store = MemoryStore()
    store.put_if_absent(LAYOUT.fact_key(STREAM, 0), body, {})
    with pytest.raises(CorruptSegmentError, match=r"^p/control/topics/t/000000\.json: not"):
        latest_fact(store, LAYOUT, STREAM)
    with pytest.raises(CorruptSegmentError):
        append_fact(store, LAYOUT, STREAM, count_up)


def test_a_newer_fact_is_refused_by_name() -> None:
    store = MemoryStore()
    store.put_if_absent(LAYOUT.fact_key(STREAM, 0), b'{"format": 2}', {})
    with pytest.raises(FormatTooNewError, match=r"^p/control/topics/t/000000\.json: format 2"):
        append_fact(store, LAYOUT, STREAM, count_up)


# --- topics

lives_of = st.lists(
    st.tuples(st.text(max_size=22), st.integers(-1, 99), st.none() | st.integers(0, 2**63 - 1)), min_size=1, max_size=5
).map(
    lambda rows: tuple(
        Life(life=number, topic_id=topic_id, leader_epoch=epoch, parent=None if branch is None else 0, branch=branch)
        for number, (topic_id, epoch, branch) in enumerate(rows)
    )
)


@given(lives_of, st.dictionaries(st.text(), st.text(), max_size=4))
def test_a_topic_comes_back_from_json(lives: tuple[Life, ...], configs: dict[str, str]) -> None:
    fact = TopicFact(topic="t", cluster_id="c", partitions=3, configs=configs, lives=lives)
    assert TopicFact.from_fact(json.loads(json.dumps(fact.to_fact()))) == fact
    assert fact.current == lives[-1]


def test_the_json_of_a_topic_is_the_one_of_the_format() -> None:
    lives = (Life(life=0, topic_id="A"), Life(life=1, topic_id="A", leader_epoch=4, parent=0, branch=77))
    fact = TopicFact(topic="t", cluster_id="c", partitions=2, configs={"k": "v"}, lives=lives)
    assert fact.to_fact() == {
        "format": 1,
        "topic": "t",
        "cluster_id": "c",
        "partitions": 2,
        "configs": {"k": "v"},
        "lives": [
            {"life": 0, "topic_id": "A", "leader_epoch": -1, "parent": None, "branch": None},
            {"life": 1, "topic_id": "A", "leader_epoch": 4, "parent": 0, "branch": 77},
        ],
    }


@pytest.mark.parametrize("lives", [[], None, ["x"], [{}], [{"life": 0}]])
def test_a_topic_that_cannot_be_is_corrupt(lives: object) -> None:
    fact = {"format": 1, "topic": "t", "cluster_id": "c", "partitions": 1, "configs": {}, "lives": lives}
    with pytest.raises(CorruptSegmentError, match="a topic's control fact"):
        TopicFact.from_fact(fact)


def settle(store: MemoryStore, topic_id: str = "A", cluster_id: str = "c", partitions: int = 3, **configs: str) -> Life:
    return settle_topic(
        store, LAYOUT, topic="t", topic_id=topic_id, cluster_id=cluster_id, partitions=partitions, configs=configs
    )


def lives_in(store: MemoryStore) -> list[str]:
    known = read_topic(store, LAYOUT, "t")
    assert known is not None
    return [life.topic_id for life in known.lives]


def test_the_first_life_is_number_zero_and_is_written_once() -> None:
    store = MemoryStore()
    assert read_topic(store, LAYOUT, "t") is None
    assert settle(store) == settle(store) == Life(life=0, topic_id="A")
    assert len(store.objects) == 1


def test_new_partitions_and_configs_are_news_of_the_same_life() -> None:
    store = MemoryStore()
    settle(store)
    settle(store, partitions=4)
    assert settle(store, partitions=4, k="v").life == 0
    known = read_topic(store, LAYOUT, "t")
    assert known is not None
    assert (known.partitions, known.configs, len(store.objects)) == (4, {"k": "v"}, 3)


def test_a_recreated_topic_begins_a_life_without_a_parent() -> None:
    store = MemoryStore()
    settle(store, "A")
    assert settle(store, "B") == Life(life=1, topic_id="B", parent=None, branch=None)
    assert lives_in(store) == ["A", "B"]


def test_who_still_sees_the_earlier_topic_stays_in_its_life() -> None:
    """Otherwise two writers, one with old metadata, would begin lives in turn, and archive everything each time."""
    store = MemoryStore()
    settle(store, "A")
    settle(store, "B", partitions=9)
    assert settle(store, "A", partitions=1).life == 0
    assert settle(store, "B", partitions=9).life == 1
    assert lives_in(store) == ["A", "B"]
    assert len(store.objects) == 2


def test_two_writers_of_a_recreated_topic_begin_one_life() -> None:
    store = MemoryStore()
    settle(store, "A")
    start = threading.Barrier(4)

    def write(_: int) -> Life:
        start.wait()
        return settle(store, "B")

    with ThreadPoolExecutor(4) as pool:
        assert {life.life for life in pool.map(write, range(4))} == {1}
    assert lives_in(store) == ["A", "B"]


def test_another_cluster_is_refused() -> None:
    store = MemoryStore()
    settle(store)
    with pytest.raises(StrangerError, match="belongs to cluster c, and this is d; give each cluster its own prefix"):
        settle(store, cluster_id="d")
    assert len(store.objects) == 1


def test_a_settled_topic_survives_a_lost_answer() -> None:
    store = LossyStore(raises=False)
    assert settle(store) == Life(life=0, topic_id="A")
    assert len(store.objects) == 1
